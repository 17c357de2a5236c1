"""Windows against brute force: which windows a record belongs to, what sessions and sliding windows hold in the end.

And the fast ways against the plain one: over columns as row by row, in any batches as one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock import (
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyTestDriver,
    UnlimitedWindows,
    agg,
)
from penstock.runtime.aggregate.windows import FOREVER, window_bounds

LONG_GRACE = 1_000_000
LONGS = {"key_serde": "string", "value_serde": "long"}
TIMES = st.integers(0, 60)
KEYS = st.sampled_from(["a", "b", "bb"])
VALUES = st.integers(-9, 9)
DISORDER = st.lists(st.tuples(KEYS, VALUES, TIMES), max_size=40)
# Mostly in order: what the column paths are made for, with a few exceptions among many rows.
STEPS = st.lists(
    st.tuples(KEYS, VALUES, st.sampled_from([0, 0, 1, 2, 4, 5, 6, 11, 30]), st.sampled_from([0] * 9 + [5, 12, 40])),
    max_size=60,
)
SPLITS = st.integers(1, 30)


def in_steps(steps):
    """Records whose times move on, some set back."""
    records, now = [], 10
    for key, value, step, back in steps:
        now += step
        records.append((key, value, max(now - back, 0)))
    return records


@dataclass(frozen=True)
class Run:
    """What came out, what was kept, what was dropped."""

    written: list
    store: list
    dropped: int


def run(build, windows, records, *, batch=1000, emit="on_window_update", by_column=True, cache=0, store_type=None):
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(**LONGS)).group_by_key(Grouped(**LONGS)).windowed_by(windows)
    table = build(grouped.emit_strategy(emit), Materialized("store", store_type=store_type, **LONGS))
    session = isinstance(windows, SessionWindows)
    keys = Serdes.session_windowed("string") if session else Serdes.time_windowed("string", windows.size_ms)
    table.to_stream().to("out", Produced(key_serde=keys, value_serde="long"))
    config = {"statestore.cache.max.bytes": cache, "__emit.interval.ms.kstreams.windowed.aggregation__": 0}
    with TopologyTestDriver(builder.build(config), config, batch_size=batch, by_column=by_column) as driver:
        topic = driver.input_topic("in", "string", "long")
        for key, value, time in records:
            topic.pipe(value, key=key, timestamp=time)
        driver.flush()
        written = [
            (r.key.key, r.key.window.start, r.key.window.end, r.value, r.timestamp)
            for r in driver.output_topic("out", keys, "long").read_records_to_list()
        ]
        stored = driver.get_state_store("store").all()
        kept = [(w.key, w.window.start, w.window.end, getattr(v, "value", v)) for w, v in stored]
        return Run(written, sorted(kept), driver.dropped_records)


def count(grouped, store):
    return grouped.count(store)


# Brute force


@given(st.integers(1, 30), st.integers(1, 30), TIMES)
def test_time_windows_are_those_that_hold_the_time(size, advance, time):
    advance = min(size, advance)
    _, starts, ends = window_bounds(TimeWindows.of(size, advance=advance).spec, np.array([time]))
    expected = [s for s in range(0, time + 1, advance) if s <= time < s + size]
    assert starts.tolist() == expected
    assert ends.tolist() == [s + size for s in expected]


@given(TIMES, TIMES)
def test_unlimited_windows_hold_all_from_their_start(start, time):
    _, starts, ends = window_bounds(UnlimitedWindows.of(start=start).spec, np.array([time]))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == ([(start, FOREVER)] if time >= start else [])


@given(DISORDER, st.integers(1, 12), SPLITS)
@settings(max_examples=examples(60), deadline=None)
def test_sessions_are_the_clusters_of_a_keys_times(records, gap, batch):
    expected = []
    for key in {key for key, _, _ in records}:
        cluster = []
        for time in sorted(t for k, _, t in records if k == key):
            if cluster and time - cluster[-1] > gap:
                expected.append((key, cluster[0], cluster[-1], len(cluster)))
                cluster = []
            cluster.append(time)
        expected.append((key, cluster[0], cluster[-1], len(cluster)))
    assert run(count, SessionWindows.of(gap, grace=LONG_GRACE), records, batch=batch).store == sorted(expected)


@given(DISORDER, st.integers(1, 12), SPLITS)
@settings(max_examples=examples(60), deadline=None)
def test_sliding_windows_hold_every_set_of_near_records(records, difference, batch):
    expected = set()
    for key in {key for key, _, _ in records}:
        times = [t for k, _, t in records if k == key]
        starts = {max(t - difference, 0) for t in times} | {t + 1 for t in times}
        for start in starts:
            held = sum(start <= t <= start + difference for t in times)
            if held:
                expected.add((key, start, start + difference, held))
    assert run(count, SlidingWindows.of(difference, grace=LONG_GRACE), records, batch=batch).store == sorted(expected)


# One by one, in batches, over columns

WINDOWS = {
    "tumbling": TimeWindows.of(10, grace=7),
    "hopping": TimeWindows.of(10, grace=7, advance=3),
    "sliding": SlidingWindows.of(5, grace=7),
    "sliding without grace": SlidingWindows.of(5),
    "session": SessionWindows.of(5, grace=7),
    "session without grace": SessionWindows.of(5),
}
# Each a known aggregation, and the same as a function that nothing is known of.
PAIRS = {
    "count": (count, lambda g, m: g.aggregate(0, lambda k, v, a: a + 1, *_merger(g, lambda k, a, b: a + b), m)),
    "sum": (lambda g, m: g.reduce(lambda a, b: a + b, m), lambda g, m: g.reduce(lambda a, b: b + a, m)),
    "agg.sum": (
        lambda g, m: g.aggregate(agg.sum(), materialized=m),
        lambda g, m: g.reduce(lambda a, b: b + a, m),
    ),
    "max": (lambda g, m: g.reduce(max, m), lambda g, m: g.reduce(lambda a, b: max(b, a), m)),
    "first": (lambda g, m: g.reduce(lambda a, b: a, m), lambda g, m: g.reduce(lambda a, b: (a, b)[0], m)),
    "last": (lambda g, m: g.aggregate(agg.last(), materialized=m), lambda g, m: g.reduce(lambda a, b: (a, b)[1], m)),
}


def _merger(grouped, merger):
    return (merger,) if type(grouped).__name__ == "SessionWindowedKStream" else ()


@pytest.mark.parametrize("kind", WINDOWS)
@given(st.sampled_from(sorted(PAIRS)), STEPS, SPLITS, st.sampled_from([None, "in_memory"]))
@settings(max_examples=examples(40), deadline=None)
def test_columns_give_what_the_row_loop_gives(kind, name, steps, batch, store_type):
    records = in_steps(steps)
    known, unknown = PAIRS[name]
    plain = run(unknown, WINDOWS[kind], records, batch=1, by_column=False, store_type=store_type)
    assert run(known, WINDOWS[kind], records, batch=batch, store_type=store_type) == plain
    assert run(unknown, WINDOWS[kind], records, batch=batch, store_type=store_type) == plain
    assert run(known, WINDOWS[kind], records, batch=1, store_type=store_type) == plain


@pytest.mark.parametrize("kind", WINDOWS)
@given(st.sampled_from(sorted(PAIRS)), STEPS, SPLITS)
@settings(max_examples=examples(25), deadline=None)
def test_windows_close_at_the_same_rows_in_any_batches(kind, name, steps, batch):
    records = in_steps(steps)
    known, unknown = PAIRS[name]
    plain = run(unknown, WINDOWS[kind], records, batch=1, emit="on_window_close", by_column=False)
    assert run(known, WINDOWS[kind], records, batch=batch, emit="on_window_close") == plain
    assert run(unknown, WINDOWS[kind], records, batch=batch, emit="on_window_close") == plain


@pytest.mark.parametrize("kind", WINDOWS)
@given(st.sampled_from(sorted(PAIRS)), STEPS, SPLITS)
@settings(max_examples=examples(25), deadline=None)
def test_a_cache_merges_the_same_changes_over_columns(kind, name, steps, batch):
    records = in_steps(steps)
    known, unknown = PAIRS[name]
    plain = run(unknown, WINDOWS[kind], records, batch=batch, cache=10_000)
    assert run(known, WINDOWS[kind], records, batch=batch, cache=10_000) == plain
