from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_support import LONG, STRING, OneTask, function, node, plain, rows_of, run_splits, store

from penstock.runtime.aggregate.windows import FOREVER
from penstock.serde.windowed import Window, Windowed
from penstock.topology.operations.definitions import Aggregation, WindowedAggregate, WindowSpec

RECORDS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]) | st.none(), st.integers(0, 9), st.integers(0, 60)), max_size=25
)
SPLITS = st.lists(st.integers(0, 25), max_size=3)
WINDOWS = {
    "tumbling": WindowSpec("time", 10, 10, grace_ms=5),
    "tumbling without grace": WindowSpec("time", 10, 10),
    "hopping": WindowSpec("time", 10, 4, grace_ms=3),
    "unlimited": WindowSpec("unlimited", FOREVER, start_ms=20),
}
TRACE = Aggregation("aggregate", function(lambda k, v, a: f"{a}{k}{v}", 3), initializer=lambda: "")


def windows_of(spec, time):
    if spec.kind == "unlimited":
        return [(spec.start_ms, FOREVER)] if time >= spec.start_ms else []
    start = max(0, time - spec.size_ms + spec.advance_ms) // spec.advance_ms * spec.advance_ms
    return [(s, s + spec.size_ms) for s in range(start, time + 1, spec.advance_ms)]


def reference(spec, records, step, start):
    """Kafka's KStreamWindowAggregate, a record at a time."""
    state, out, dropped, stream_time = {}, [], 0, -1
    for position, (key, value, time) in enumerate(records):
        if key is None:
            dropped += 1
            continue
        stream_time = max(stream_time, time)
        for window in windows_of(spec, time):
            if window[1] <= stream_time - spec.grace_ms:
                dropped += 1
                continue
            old, stamp = state.get((key, window), (start, -1))
            new, stamp = step(key, old, value), max(stamp, time)
            state[key, window] = (new, stamp)
            out.append((position, Windowed(key, Window(*window)), new, old, stamp))
    return out, dropped


def make(spec, aggregation, *, caching=False, value=LONG, on_close=False, config=None):
    operation = WindowedAggregate(aggregation, spec, "store", on_close=on_close, send_old=not on_close)
    size, retention = (spec.size_ms, spec.size_ms + spec.grace_ms) if spec.kind == "time" else (FOREVER, FOREVER)
    stores = (store(value=value, size_ms=size, retention_ms=retention),)
    return lambda: OneTask(node("agg", operation), stores=stores, caching=caching, config=config)


@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=40, deadline=None)
@given(records=RECORDS, splits=SPLITS)
def test_counts_by_key_and_window(kind, records, splits):
    out, task = run_splits(make(WINDOWS[kind], Aggregation("count")), "agg", records, splits)
    expected, dropped = reference(WINDOWS[kind], records, lambda k, a, v: a + 1, 0)
    assert out == expected
    assert task.dropped == dropped


@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=40, deadline=None)
@given(records=RECORDS, splits=SPLITS)
def test_functions_by_key_and_window(kind, records, splits):
    out, task = run_splits(make(WINDOWS[kind], TRACE, value=STRING), "agg", records, splits)
    expected, dropped = reference(WINDOWS[kind], records, lambda k, a, v: f"{a}{k}{v}", "")
    assert out == expected
    assert task.dropped == dropped


@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
@settings(max_examples=40, deadline=None)
@given(records=RECORDS)
def test_with_caching_the_last_count_of_each_window_leaves(kind, records):
    out, _ = run_splits(make(WINDOWS[kind], Aggregation("count"), caching=True), "agg", records, [])
    last = {}
    for row in reference(WINDOWS[kind], records, lambda k, a, v: a + 1, 0)[0]:
        last.pop(row[1], None)
        last[row[1]] = (*row[:3], None, row[4])
    assert out == list(last.values())


def test_null_values_are_counted_in_windows():
    task = make(WINDOWS["tumbling"], Aggregation("count"))()
    out = plain(task.run("agg", rows_of([("a", None, 1), ("a", None, 2)], columnar=False)))
    assert [row[2] for row in out] == [1, 2]


@settings(max_examples=60, deadline=None)
@given(records=RECORDS, splits=SPLITS)
def test_results_on_close_do_not_depend_on_the_batches(records, splits):
    config = {"__emit.interval.ms.kstreams.windowed.aggregation__": 0}
    make_task = make(WINDOWS["tumbling"], TRACE, value=STRING, on_close=True, config=config)
    one_by_one, single = run_splits(make_task, "agg", records, range(26))
    out, task = run_splits(make_task, "agg", records, splits)
    assert out == one_by_one
    assert task.dropped == single.dropped


def test_a_window_leaves_once_when_it_has_closed():
    config = {"__emit.interval.ms.kstreams.windowed.aggregation__": 0}
    task = make(WINDOWS["tumbling"], TRACE, value=STRING, on_close=True, config=config)()
    records = [("b", 1, 2), ("a", 2, 7), ("a", 3, 14), ("a", 4, 15), ("a", 5, 16), ("b", 6, 26)]
    out = plain(task.run("agg", rows_of(records)))
    assert out == [
        (3, Windowed("a", Window(0, 10)), "a2", None, 7),
        (3, Windowed("b", Window(0, 10)), "b1", None, 2),
        (5, Windowed("a", Window(10, 20)), "a3a4a5", None, 16),
    ]


def test_the_emit_interval_holds_results_back():
    task = make(WINDOWS["tumbling"], TRACE, value=STRING, on_close=True)()
    assert plain(task.run("agg", rows_of([("a", 1, 2), ("a", 2, 18)]))) == []
    assert plain(task.run("agg", rows_of([("a", 3, 19)], first=2))) == []
    task.wall_clock_ms = 1000
    assert [row[1:3] for row in plain(task.run("agg", rows_of([("a", 4, 19)], first=3)))] == [
        (Windowed("a", Window(0, 10)), "a1")
    ]
