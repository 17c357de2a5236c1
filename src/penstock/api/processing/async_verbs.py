"""Verbs of KStream that await coroutine functions. Kafka Streams has nothing like them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from penstock.api.handle import Fluent, StreamHandle, name_of
from penstock.api.options import Named
from penstock.base.argument_checks import check_whole
from penstock.base.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.operations.definitions import MapAsync, Retry
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from penstock.api.stream import KStream

__all__ = ["AsyncVerbs"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
Name = str | Named | None


class AsyncVerbs(Fluent[StreamHandle], Generic[K, V]):
    """``map_async`` and ``map_values_async`` of a `KStream`.

    Many calls run at once, and all calls of a batch finish before it commits. A call whose last attempt fails goes to
    ``processing.exception.handler``, like the failure of any function. After a failure the batch is processed again, so
    a record may be passed to the function more than once: side effects should be idempotent.
    """

    @overload
    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[V2]],
        *,
        limit: int = 100,
        ordered: bool = True,
        retry: Retry | None = None,
        timeout: DurationLike | None = None,
        name: Name = None,
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self,
        mapper: Callable[[K, V], Awaitable[V2]],
        *,
        limit: int = 100,
        ordered: bool = True,
        retry: Retry | None = None,
        timeout: DurationLike | None = None,
        name: Name = None,
    ) -> KStream[K, V2]: ...

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
        """Replace each record's value with the awaited result of a coroutine function of (value) or (key, value).

        Args:
            mapper: An ``async def``, or a function that returns an awaitable.
            limit: The number of calls that may run at once in a task.
            ordered: Whether results keep the order of the records; otherwise they come in the order of completion.
            retry: The attempts after a failure; None: the first failure is final.
            timeout: The limit of one attempt, which then fails with TimeoutError.
            name: The node's name.

        >>> import asyncio
        >>> from penstock.testing import try_out
        >>> async def shout(word):
        ...     await asyncio.sleep(0.001)
        ...     return word.upper()
        >>> try_out(lambda s: s.map_values_async(shout, limit=10, timeout="1 s"), [("a", "x"), ("b", "y")])
        [('a', 'X'), ('b', 'Y')]
        """
        from penstock.api.stream import KStream

        calls = _Calls("map_values_async", limit, ordered, retry, timeout)
        operation = calls.operation(mapper, pairs=False)
        return KStream(self._handle.then("KSTREAM-MAPVALUES-ASYNC-", name_of(name), operation, values=True))

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
        """Replace each record with the awaited (key, value) of a coroutine function; see ``map_values_async``.

        A later grouping or join repartitions.

        >>> from penstock.testing import try_out
        >>> async def swap(key, value):
        ...     return value, key
        >>> try_out(lambda s: s.map_async(swap), [("a", "x")])
        [('x', 'a')]
        """
        from penstock.api.stream import KStream

        calls = _Calls("map_async", limit, ordered, retry, timeout)
        operation = calls.operation(mapper, pairs=True)
        return KStream(self._handle.then("KSTREAM-MAP-ASYNC-", name_of(name), operation, keys=True, values=True))


@dataclass(frozen=True, slots=True)
class _Calls:
    """The arguments of a verb that say how its calls run."""

    verb: str
    limit: int
    ordered: bool
    retry: Retry | None
    timeout: DurationLike | None

    def operation(self, mapper: object, *, pairs: bool) -> MapAsync:
        """Return the operation; ``pairs``: the function returns keys and values.

        Raises:
            TopologyError: One of the arguments is of no use.
        """
        fn = Function.wrap(mapper, verb=self.verb, allowed=(1, 2), expression=False, awaits=True)
        check_whole(self.limit, f"{self.verb}(): limit", 1)
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise TopologyError(
                f"{self.verb}(): retry is {self.retry!r}", hint='Write e.g. Retry(3, backoff="100 ms").'
            )
        timeout_ms = None if self.timeout is None else duration_ms(self.timeout, "timeout")
        if timeout_ms is not None and timeout_ms < 1:
            raise TopologyError(f"{self.verb}(): timeout is {self.timeout!r}", hint="Give at least 1 ms.")
        return MapAsync(
            fn, pairs=pairs, limit=self.limit, ordered=self.ordered, retry=self.retry, timeout_ms=timeout_ms
        )
