"""Awaiting coroutine functions: concurrency, order, retries, timeouts, failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Retry, StreamsBuilder, TopologyTestDriver
from penstock.errors import ProcessingError, TopologyError
from penstock.serde import Serdes

AUTO = Serdes.auto()


def run(build: Any, values: list[Any], batch_size: int = 1_000, **config: Any) -> list[tuple[Any, Any]]:
    """(key, value) of what comes out; the keys are the positions."""
    builder = StreamsBuilder()
    build(builder.stream("in")).to("out")
    settings = {"default.key.serde": AUTO, "default.value.serde": AUTO, **config}
    with TopologyTestDriver(builder.build(), settings, batch_size=batch_size) as driver:
        topic = driver.input_topic("in")
        for position, value in enumerate(values):
            topic.pipe(value, key=position, timestamp=position)
        driver.flush()
        return [(r.key, r.value) for r in driver.output_topic("out").read_records_to_list()]


async def slow_first(value: int) -> int:
    await asyncio.sleep(0.03 if value == 0 else 0.001)
    return value * 10


@pytest.mark.parametrize("batch_size", [1, 2, 1_000])
def test_results_keep_the_order_of_the_records(batch_size: int) -> None:
    found = run(lambda s: s.map_values_async(slow_first), [0, 1, 2, 3], batch_size)
    assert found == [(0, 0), (1, 10), (2, 20), (3, 30)]


def test_or_come_as_they_were_completed() -> None:
    completed: list[int] = []

    async def first_is_last(value: int) -> int:
        while value == 0 and len(completed) < 3:
            await asyncio.sleep(0.001)
        completed.append(value)
        return value * 10

    found = run(lambda s: s.map_values_async(first_is_last, ordered=False), [0, 1, 2, 3])
    assert found[-1] == (0, 0)
    assert sorted(found) == [(0, 0), (1, 10), (2, 20), (3, 30)]


def test_map_async_changes_the_key_and_repartitions() -> None:
    async def swap(key: int, value: str) -> tuple[str, int]:
        return value, key

    assert run(lambda s: s.map_async(swap), ["a", "b"]) == [("a", 0), ("b", 1)]
    builder = StreamsBuilder()
    builder.stream("in").map_async(swap, name="swap").group_by_key().count()
    topology = builder.build()
    assert len(topology.internal_topics) == 1
    assert "swap" in topology.nodes


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_as_many_as_the_limit_run_at_once_and_no_more(limit: int) -> None:
    running = most = 0

    async def watch(value: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return value

    run(lambda s: s.map_values_async(watch, limit=limit), list(range(60)))
    assert most == limit


def test_a_failed_call_is_tried_again() -> None:
    attempts: list[int] = []

    async def flaky(value: int) -> int:
        attempts.append(value)
        if attempts.count(value) < 3:
            raise ConnectionError("busy")
        return value

    assert run(lambda s: s.map_values_async(flaky, retry=Retry(2, backoff=1)), [7]) == [(0, 7)]
    assert attempts == [7, 7, 7]
    attempts.clear()
    with pytest.raises(ProcessingError, match=r"flaky.*ConnectionError: busy"):
        run(lambda s: s.map_values_async(flaky, retry=Retry(1, backoff=1)), [7])


def test_only_the_named_exceptions_are_tried_again() -> None:
    calls = 0

    async def wrong(value: int) -> int:
        nonlocal calls
        calls += 1
        raise ValueError(value)

    with pytest.raises(ProcessingError, match="ValueError"):
        run(lambda s: s.map_values_async(wrong, retry=Retry(5, backoff=1, on=(OSError,))), [7])
    assert calls == 1


def test_failures_go_to_the_handler_and_the_others_through() -> None:
    async def odd(value: int) -> int:
        if value == 1:
            raise ValueError("odd one")
        return value

    assert run(lambda s: s.map_values_async(odd), [0, 1, 2], **{"processing.exception.handler": "continue"}) == [
        (0, 0),
        (2, 2),
    ]


def test_a_call_that_takes_too_long_fails() -> None:
    async def forever(value: int) -> int:
        await asyncio.sleep(30)
        return value

    with pytest.raises(ProcessingError, match="TimeoutError"):
        run(lambda s: s.map_values_async(forever, timeout="5 ms"), [1])


def test_a_function_that_gives_no_awaitable_is_named() -> None:
    with pytest.raises(ProcessingError, match="cannot be awaited; write it as async def"):
        run(lambda s: s.map_values_async(lambda value: value), [1])


def test_one_loop_serves_all_batches_also_inside_a_running_loop() -> None:
    loops = set()

    async def note(value: int) -> int:
        loops.add(id(asyncio.get_running_loop()))
        return value

    run(lambda s: s.map_values_async(note), [1, 2, 3], batch_size=1)
    assert len(loops) == 1

    async def in_a_notebook() -> list[tuple[Any, Any]]:
        return run(lambda s: s.map_values_async(note), [1, 2])

    assert asyncio.run(in_a_notebook()) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.map_values_async(note_nothing, limit=0), "limit is 0"),
        (lambda s: s.map_values_async(note_nothing, timeout=0), "timeout is 0"),
        (lambda s: s.map_values_async(note_nothing, retry=3), "retry is 3"),
        (lambda s: s.map_values_async("fetch"), "takes a Python function"),
        (lambda s: Retry(-1), "times is -1"),
        (lambda s: Retry(on=("OSError",)), "Give a tuple of exception classes"),  # type: ignore[arg-type]
    ],
)
def test_wrong_calls_fail_where_they_are_written(wrong: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        wrong(StreamsBuilder().stream("in"))


async def note_nothing(value: Any) -> Any:
    return value
