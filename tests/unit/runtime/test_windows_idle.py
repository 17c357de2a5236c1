"""Windows that close when no record has come for a while: not in Kafka, off unless asked for."""

from __future__ import annotations

import pytest

from penstock import (
    Consumed,
    Grouped,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyTestDriver,
    UnlimitedWindows,
)
from penstock.errors import TopologyError

TEXT = {"key_serde": "string", "value_serde": "string"}
CONFIG = {"statestore.cache.max.bytes": 0}
WINDOWS = {
    "tumbling": TimeWindows.of(10, grace=5),
    "hopping": TimeWindows.of(10, grace=5, advance=5),
    "sliding": SlidingWindows.of(10, grace=5),
    "session": SessionWindows.of(10, grace=5),
}
CLOSED = {
    "tumbling": [("a", 20, 30, 2)],
    "hopping": [("a", 15, 25, 1), ("a", 20, 30, 2), ("a", 25, 35, 1)],
    "sliding": [("a", 11, 21, 1), ("a", 18, 28, 2), ("a", 22, 32, 1)],
    "session": [("a", 21, 28, 2)],
}


def grouped(windows):
    builder = StreamsBuilder()
    return builder, builder.stream("in", Consumed(**TEXT)).group_by_key(Grouped(**TEXT)).windowed_by(windows)


def driver_of(windows, idle, batch_size=1):
    builder, windowed = grouped(windows)
    keys = Serdes.session_windowed("string") if isinstance(windows, SessionWindows) else None
    keys = keys or Serdes.time_windowed("string", windows.size_ms)
    counts = windowed.emit_strategy("on_window_close", idle=idle).count("store")
    counts.to_stream().to("out", Produced(key_serde=keys, value_serde="long"))
    return TopologyTestDriver(builder.build(), CONFIG, batch_size=batch_size), keys


def read(driver, keys):
    records = driver.output_topic("out", keys, "long").read_records_to_list()
    return [(r.key.key, r.key.window.start, r.key.window.end, r.value) for r in records]


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("batch_size", [1, 10])
def test_all_windows_leave_after_the_idle_time(kind, batch_size):
    driver, keys = driver_of(WINDOWS[kind], "5 seconds", batch_size)
    with driver:
        topic = driver.input_topic("in", "string", "string")
        topic.pipe("x", key="a", timestamp=21)
        topic.pipe("x", key="a", timestamp=28)
        driver.flush()
        driver.advance_wall_clock_time("4 seconds")
        assert read(driver, keys) == []
        driver.advance_wall_clock_time("1 second")
        assert read(driver, keys) == CLOSED[kind]
        driver.advance_wall_clock_time("1 minute")
        assert read(driver, keys) == []
        topic.pipe("late", key="a", timestamp=24)
        driver.flush()
        assert driver.dropped_records > 0
        assert read(driver, keys) == []


def test_without_idle_windows_wait_for_a_later_record():
    driver, keys = driver_of(WINDOWS["tumbling"], None)
    with driver:
        driver.input_topic("in", "string", "string").pipe("x", key="a", timestamp=21)
        driver.advance_wall_clock_time("1 hour")
        assert read(driver, keys) == []


def test_the_plan_ticks_only_where_windows_wait():
    from penstock.topology.plan.plan import plan_of

    for idle, ticks in (("1 second", True), (None, False)):
        builder, windowed = grouped(WINDOWS["tumbling"])
        windowed.emit_strategy("on_window_close", idle=idle).count("store")
        assert plan_of(builder.build(), "app", {"in": 1}).ticks is ticks


@pytest.mark.parametrize(
    ("windows", "emit", "idle"),
    [
        (WINDOWS["tumbling"], "on_window_update", "1 second"),
        (WINDOWS["session"], "on_window_close", 0),
        (UnlimitedWindows.of(), "on_window_close", None),
        (WINDOWS["sliding"], "sometimes", None),
    ],
)
def test_what_makes_no_sense_is_refused(windows, emit, idle):
    with pytest.raises(TopologyError):
        grouped(windows)[1].emit_strategy(emit, idle=idle)
