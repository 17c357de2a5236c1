"""The number of records that a task processes at once follows the time that they take."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock import Consumed, Produced, StreamsBuilder
from penstock.engines.threads.loop.stream_thread import ThreadHooks
from penstock.engines.threads.loop.task import BatchSize
from penstock.log.open import open_log
from penstock.runtime.sensor import Sensor
from threads import append, new_thread, records_of, settle, thread_app


def test_quick_tasks_take_more_until_the_setting_is_reached() -> None:
    size = BatchSize(100_000)
    taken = []
    for _ in range(6):
        taken.append(size.records)
        size.note(size.records, size.records * 1e-6)
    assert taken == [1_000, 32_000, 100_000, 100_000, 100_000, 100_000]


def test_batches_of_slow_functions_last_half_a_second() -> None:
    size = BatchSize(100_000)
    for _ in range(6):
        size.note(size.records, size.records * 0.02)
    assert size.records == 25


def test_a_function_that_takes_seconds_gets_one_record_at_a_time() -> None:
    size = BatchSize(100)
    for _ in range(8):
        size.note(size.records, 3.0 * size.records)
    assert size.records == 1


def test_one_slow_batch_does_not_count_for_long() -> None:
    size = BatchSize(10_000)
    size.note(1_000, 0.01)
    size.note(1, 1.0)
    assert size.records == 1_250
    size.note(1_250, 0.0125)
    assert size.records == 10_000


def test_small_batches_say_nothing_about_large_ones() -> None:
    size = BatchSize(10_000)
    size.note(3, 0.001)
    size.note(0, 1.0)
    assert size.records == 1_000


class _Sizes(Sensor):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_batch_start(self, task_id: str, records: int) -> None:
        self.sizes.append(records)


@pytest.mark.parametrize("most", [300, 100_000])
def test_a_task_that_is_behind_takes_larger_and_larger_batches(tmp_path: Path, most: int) -> None:
    builder = StreamsBuilder()
    text = {"key_serde": "string", "value_serde": "string"}
    builder.stream("in", Consumed(**text)).to("out", Produced(**text))
    sensor = _Sizes()
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        for topic in ("in", "out"):
            log.create_topic(topic, 1)
        append(log, "in", [("k", str(each), each) for each in range(12_000)])
        thread = new_thread(
            thread_app(builder.build(), {"max.poll.records": most}, log), log, hooks=ThreadHooks(sensor=sensor)
        )
        thread.start()
        settle(thread)
        thread.close(commit=True)
        assert [value for _, value, _ in records_of(log, "out")] == [str(each).encode() for each in range(12_000)]
    found = [size for size in sensor.sizes if size]
    assert found[0] == min(most, 1_000)
    assert max(found) == most if most == 300 else max(found) > 1_000


def test_a_task_with_a_slow_function_commits_in_between(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    text = {"key_serde": "string", "value_serde": "string"}

    def slow(value: str) -> str:
        time.sleep(0.001)
        return value

    builder.stream("in", Consumed(**text)).map_values(slow).to("out", Produced(**text))
    sensor = _Sizes()
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        for topic in ("in", "out"):
            log.create_topic(topic, 1)
        append(log, "in", [("k", str(each), each) for each in range(2_500)])
        thread = new_thread(thread_app(builder.build(), {}, log), log, hooks=ThreadHooks(sensor=sensor))
        thread.start()
        settle(thread)
        thread.close(commit=True)
    found = [size for size in sensor.sizes if size]
    assert found[0] == 1_000
    assert found[1] <= 500
