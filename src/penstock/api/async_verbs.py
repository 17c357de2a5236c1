"""Verbs of KStream that await coroutine functions. Kafka Streams has nothing like them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api.handle import name_of
from penstock.api.options import Named
from penstock.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.async_operations import MapAsync, Retry
from penstock.topology.functions import Function

if TYPE_CHECKING:
    from penstock.api.stream import KStream
    from penstock.topology.operations import Operation

__all__ = ["AsyncVerbs"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
Name = str | Named | None


class AsyncVerbs(Generic[K, V]):
    """``map_async`` and ``map_values_async``, which `KStream` has.

    Many calls run at once, and all of a batch are done before it commits. A call that fails for good goes to
    ``processing.exception.handler``, as any function does. After a failure the batch is processed again, so a call may
    happen more than once for one record: what it does elsewhere should bear that.
    """

    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[V2]] | Callable[[K, V], Awaitable[V2]],
        *,
        limit: int = 100,
        ordered: bool = True,
        retry: Retry | None = None,
        timeout: DurationLike | None = None,
        name: Name = None,
    ) -> KStream[K, V2]:
        """Makes a new value of each record by awaiting a coroutine function of (value) or (key, value).

        Args:
            mapper: ``async def``, or a function that gives an awaitable.
            limit: How many calls run at once in a task.
            ordered: Whether results keep the order of the records; otherwise they come as they were completed.
            retry: What to do after a failure; None: the first failure is final.
            timeout: How long one attempt may take, after which it fails with TimeoutError.
            name: The node's name.

        >>> import asyncio
        >>> from penstock.testing import try_out
        >>> async def shout(word):
        ...     await asyncio.sleep(0.001)
        ...     return word.upper()
        >>> try_out(lambda s: s.map_values_async(shout, limit=10, timeout="1 s"), [("a", "x"), ("b", "y")])
        [('a', 'X'), ('b', 'Y')]
        """
        operation = _operation("map_values_async", mapper, limit, retry, timeout, pairs=False, ordered=ordered)
        return self._then("KSTREAM-MAPVALUES-ASYNC-", name_of(name), operation, values=True)

    def map_async(
        self,
        mapper: Callable[[K, V], Awaitable[tuple[K2, V2]]],
        *,
        limit: int = 100,
        ordered: bool = True,
        retry: Retry | None = None,
        timeout: DurationLike | None = None,
        name: Name = None,
    ) -> KStream[K2, V2]:
        """Makes a (key, value) of each record by awaiting; arguments as in ``map_values_async``.

        A later grouping or join repartitions.

        >>> from penstock.testing import try_out
        >>> async def swap(key, value):
        ...     return value, key
        >>> try_out(lambda s: s.map_async(swap), [("a", "x")])
        [('x', 'a')]
        """
        operation = _operation("map_async", mapper, limit, retry, timeout, pairs=True, ordered=ordered)
        return self._then("KSTREAM-MAP-ASYNC-", name_of(name), operation, keys=True, values=True)

    if TYPE_CHECKING:

        def _then(
            self, prefix: str, name: Name, operation: Operation, *, keys: bool = False, values: bool = False
        ) -> KStream[Any, Any]: ...


def _operation(
    verb: str,
    mapper: object,
    limit: int,
    retry: Retry | None,
    timeout: DurationLike | None,
    *,
    pairs: bool,
    ordered: bool,
) -> MapAsync:
    fn = Function.wrap(mapper, verb=verb, allowed=(1, 2), expression=False)
    timeout_ms = None if timeout is None else duration_ms(timeout, "timeout")
    if limit < 1 or (timeout_ms is not None and timeout_ms < 1):
        raise TopologyError(f"{verb}(): limit is {limit!r}, timeout {timeout!r}", hint="Both are at least 1.")
    if retry is not None and not isinstance(retry, Retry):
        raise TopologyError(f"{verb}(): retry is {retry!r}", hint='Write e.g. Retry(3, backoff="100 ms").')
    return MapAsync(fn, pairs, limit, ordered, retry, timeout_ms)
