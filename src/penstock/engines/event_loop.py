"""An application inside an event loop: what ``async with KafkaStreams(...)`` gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.base.log_lines import own_logger
from penstock.engines.lifecycle import State

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.lifecycle import Lifecycle
    from penstock.errors import PenstockError
    from penstock.query import StateQueryRequest, StateQueryResult, StoreQueryParameters
    from penstock.query.instances import KeyQueryMetadata

__all__ = ["AsyncKafkaStreams", "AsyncStore", "Embedding"]

T = TypeVar("T")

_log = own_logger("penstock.app")


class EmbeddedApplication(Protocol):
    """The part of a `KafkaStreams` object that an embedding needs."""

    config: StreamsConfig

    @property
    def state(self) -> State: ...
    @property
    def error(self) -> PenstockError | None: ...
    def start(self) -> None: ...
    def close(self, timeout_ms: int | None = None) -> bool: ...
    def wait(self, timeout_ms: int | None = None) -> bool: ...
    def store(self, parameters: Any) -> Any: ...
    def query(self, request: StateQueryRequest) -> StateQueryResult: ...
    def query_metadata_for_key(self, store: str, key: Any) -> KeyQueryMetadata: ...


class AsyncStore:
    """A read-only store whose methods are awaited: those of the store itself, ranges as lists.

    ``await app.store("counts").get("linux")`` asks in a thread; the loop goes on meanwhile.
    """

    def __init__(self, store: Callable[[], Any]) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("_"):
            raise AttributeError(name)

        def ask(*arguments: Any, **options: Any) -> Any:
            result = getattr(self._store(), name)
            result = result(*arguments, **options) if callable(result) else result
            return list(result) if isinstance(result, Iterator) else result

        return partial(asyncio.to_thread, ask)


class AsyncKafkaStreams:
    """A running application, for the event loop that embeds it; its calls never block the loop.

    ``async with KafkaStreams(topology, config) as app:`` makes one. `application` is the object itself, for whatever
    does not wait: figures, metrics, states.

    Attributes:
        application: The `KafkaStreams` object.
    """

    def __init__(self, application: EmbeddedApplication) -> None:
        self.application = application

    @property
    def state(self) -> State:
        """The current state of the application."""
        return self.application.state

    @property
    def error(self) -> PenstockError | None:
        """The error that made the application fail; None while it has not."""
        return self.application.error

    async def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the application has stopped; see `KafkaStreams.wait`.

        Returns:
            Whether the application has stopped within that time.

        Raises:
            PenstockError: The error that made the application fail.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:  # in slices: a wait that is cancelled leaves no thread behind for long
            left_ms = 500 if deadline is None else max(0, min(500, int((deadline - loop.time()) * 1000)))
            ended = await asyncio.to_thread(self.application.wait, left_ms)
            if ended or (deadline is not None and loop.time() >= deadline):
                return ended

    async def wait_until_running(self, timeout_ms: int | None = None) -> bool:
        """Wait until tasks run, for readiness probes and tests.

        Returns:
            Whether the state was RUNNING within that time; False if the application has ended.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while self.state is not State.RUNNING:
            if self.state in {State.NOT_RUNNING, State.ERROR} or (deadline is not None and loop.time() >= deadline):
                return False
            await asyncio.sleep(0.05)
        return True

    def store(self, parameters: str | StoreQueryParameters[Any]) -> AsyncStore:
        """Return a read-only store whose methods are awaited; see `KafkaStreams.store`.

        Example:
            count = await app.store("os-counts").get("linux")
        """
        return AsyncStore(lambda: self.application.store(parameters))

    async def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Answer a request partition by partition; see `KafkaStreams.query`.

        Raises:
            StateError: There is no such store.
        """
        return await asyncio.to_thread(self.application.query, request)

    async def query_metadata_for_key(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return the instances that answer for a key, and its partition; Kafka's ``queryMetadataForKey``."""
        return await asyncio.to_thread(self.application.query_metadata_for_key, store, key)

    async def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the application; the end of the block does it as well.

        Returns:
            Whether the application has stopped within that time.
        """
        return await _to_the_end(partial(self.application.close, timeout_ms))


class Embedding:
    """The block of ``async with``: starts the application, and ends the block if the application fails.

    Args:
        application: An application that has not been started.
        lifecycle: Its lifecycle.
    """

    def __init__(self, application: EmbeddedApplication, lifecycle: Lifecycle) -> None:
        self._application = application
        self._lifecycle = lifecycle
        self._task: asyncio.Task[Any] | None = None
        self._has_cancelled = False
        self._cancels = 0  # those that others had asked for before the block

    async def enter(self) -> AsyncKafkaStreams:
        """Start the application in a thread, and watch it."""
        self._task = asyncio.current_task()
        self._cancels = self._task.cancelling() if self._task is not None else 0
        if self._application.state is State.CREATED:
            try:
                await _to_the_end(self._application.start)
            except BaseException:
                await _to_the_end(self._application.close)
                raise
        loop = asyncio.get_running_loop()
        name = f"penstock-watch-{self._application.config['application.id']}"
        threading.Thread(target=self._watch, args=(loop,), name=name, daemon=True).start()
        return AsyncKafkaStreams(self._application)

    async def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop the application; raise its error if it has failed, unless the block has an error of its own."""
        task, self._task = self._task, None
        ours = False
        if self._has_cancelled and task is not None:  # else, or with more, somebody else cancels the task
            ours = task.uncancel() <= self._cancels and isinstance(error, asyncio.CancelledError)
        await _to_the_end(self._application.close)
        failed = self._application.error
        if failed is None:
            return
        if kind is None or ours:
            raise failed from None
        _log.error("%s has failed: %s", self._application.config["application.id"], failed)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lifecycle.await_end(None)
        if self._application.error is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._end_block)

    def _end_block(self) -> None:
        if self._task is not None and not self._task.done():
            self._has_cancelled = True
            self._task.cancel("the application has failed")


async def _to_the_end(call: Callable[[], T]) -> T:
    """Call in a thread and wait for the end, also if the task is cancelled meanwhile, which is raised then.

    The thread is its own: those of the loop may all wait for an application that is to be closed.
    """
    executor = ThreadPoolExecutor(1, "penstock-embedding")
    running = asyncio.wrap_future(executor.submit(copy_context().run, call))
    executor.shutdown(wait=False)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # noqa: BLE001, S110 - `result` raises it below
            pass
    if cancelled is not None:
        if not running.cancelled():
            running.exception()
        raise cancelled
    return running.result()
