"""The block of an application in an event loop: who is cancelled by whom, and which error comes out."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

import pytest

from eventually import eventually
from penstock.config import StreamsConfig
from penstock.engines.event_loop import AsyncKafkaStreams, Embedding
from penstock.engines.lifecycle import Lifecycle, State
from penstock.errors import AppFailedError, PenstockError, StateError

LIMIT_S = 120


class Application:
    """An application without tasks: it runs until it is closed or told to fail."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.config = StreamsConfig({"application.id": "embedded", "bootstrap.servers": "memory://embedded"})
        self.lifecycle = Lifecycle("embedded")
        self.refuses = refuses
        self.may_start = threading.Event()
        self.may_start.set()
        self.is_starting = threading.Event()
        self.embedding = Embedding(self, self.lifecycle)

    @property
    def state(self) -> State:
        return self.lifecycle.state

    @property
    def error(self) -> PenstockError | None:
        return self.lifecycle.error

    def start(self) -> None:
        self.is_starting.set()
        assert self.may_start.wait(LIMIT_S)
        if self.refuses:
            self.lifecycle.error = StateError("no such topic")
            self.lifecycle.become(State.ERROR)
            raise self.lifecycle.error
        self.lifecycle.become(State.RUNNING)

    def fail(self) -> None:
        self.lifecycle.fail(AppFailedError("a task has failed"))
        self.lifecycle.become(State.ERROR)

    def close(self, timeout_ms: int | None = None) -> bool:
        self.lifecycle.stop.set()
        if self.state is not State.ERROR:
            self.lifecycle.become(State.NOT_RUNNING)
        return True

    def wait(self, timeout_ms: int | None = None) -> bool:
        return self.lifecycle.wait(None if timeout_ms is None else timeout_ms / 1000)

    def store(self, parameters: Any) -> Any:
        return {"linux": 3}

    def query(self, request: Any) -> Any:
        raise NotImplementedError

    query_metadata_for_key = query

    async def __aenter__(self) -> AsyncKafkaStreams:
        return await self.embedding.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.embedding.leave(kind, error, trace)


@pytest.fixture
def application():
    yield Application()
    names = ("penstock-watch-embedded", "penstock-embedding")
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith(names)], within_s=LIMIT_S)


def test_a_failure_ends_the_block_with_its_error(application: Application) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(AppFailedError, match="a task has failed"):  # noqa: PT012
                async with application as app:
                    assert await app.store("counts").get("linux") == 3
                    assert list(await app.store("counts").items()) == [("linux", 3)]
                    application.fail()
                    await asyncio.Event().wait()
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(run())


def test_a_cancellation_by_others_stays_one(application: Application) -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), application:
                await asyncio.Event().wait()
        assert application.state is State.NOT_RUNNING

    asyncio.run(run())


def test_who_is_cancelled_by_a_failure_and_by_others_is_cancelled(application: Application) -> None:
    entered = asyncio.Event()

    async def block() -> None:
        async with application:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                asyncio.current_task().cancel()

    async def run() -> None:
        task = asyncio.create_task(block())
        await entered.wait()
        application.fail()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())


def test_an_error_of_the_block_comes_first_and_leaves_no_cancellation(application: Application) -> None:
    async def run() -> None:
        with pytest.raises(KeyError):  # noqa: PT012
            async with application:
                application.fail()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise KeyError("cleaning up") from None
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(run())


def test_a_start_that_fails_or_is_cancelled_is_closed(application: Application) -> None:
    application.refuses = True

    async def refused() -> None:
        with pytest.raises(StateError, match="no such topic"):
            async with application:
                raise AssertionError

    asyncio.run(refused())
    cancelled = Application()
    cancelled.may_start.clear()

    async def block() -> None:
        async with cancelled:
            raise AssertionError

    async def run() -> None:
        task = asyncio.create_task(block())
        await asyncio.to_thread(cancelled.is_starting.wait, LIMIT_S)
        task.cancel()
        cancelled.may_start.set()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert cancelled.state is State.NOT_RUNNING


def test_waits_end(application: Application) -> None:
    async def run() -> None:
        async with application as app:
            assert await app.wait_until_running(LIMIT_S * 1000)
            assert await app.wait(1) is False
            waiting = asyncio.create_task(app.wait())
            await app.close()
            assert await waiting is True
            assert await app.wait_until_running() is False
        assert app.state is State.NOT_RUNNING
        assert app.error is None

    asyncio.run(run())
