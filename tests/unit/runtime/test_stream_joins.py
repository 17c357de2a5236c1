from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_join_model import Model, Windows

from examples import examples
from penstock import JoinWindows, StreamJoined, StreamsBuilder, TopologyTestDriver
from penstock.runtime.joins.unmatched import EMIT_INTERVAL

KEYS = st.sampled_from(["a", "ab", "b"])
RECORDS = st.lists(
    st.tuples(st.sampled_from("lr"), KEYS | st.none(), st.sampled_from("xyz") | st.none(), st.integers(-60, 20)),
    max_size=40,
)
WINDOWS = st.builds(
    Windows,
    st.integers(-5, 30),
    st.integers(5, 30),
    st.sampled_from([0, 0, 5, 40]),
    st.sampled_from([True, True, False]),
)
KINDS = st.sampled_from(["inner", "left", "outer"])


def in_time(records, step):
    """Records whose times go on by ``step``, shifted by a number of their own."""
    return [(side, key, value, max(0, step * i + shift)) for i, (side, key, value, shift) in enumerate(records)]


def built(kind, windows, *, persistent=True, interval=0, optimize="none", same=False):
    builder = StreamsBuilder()
    left = builder.stream("l")
    right = left if same else builder.stream("r")
    join_windows = JoinWindows(windows.before, windows.after, windows.grace, windows.waits)
    verb = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    joined = StreamJoined(store_type=None if persistent else "in_memory")
    verb(right, lambda a, b: f"{a}/{b}", join_windows, joined).to("out")
    config = {
        "statestore.cache.max.bytes": 0,
        "default.key.serde": "string",
        "default.value.serde": "string",
        "topology.optimization": optimize,
        EMIT_INTERVAL: interval,
    }
    return builder.build(config), config


def results(topology, config, records, *, batch_size, ticks=()):
    """What comes out, in order, and how many were dropped; before the records in ``ticks`` the clock moves 600 ms."""
    with TopologyTestDriver(topology, config, batch_size=batch_size, by_column=batch_size > 1) as driver:
        for i, (side, key, value, time) in enumerate(records):
            if i in ticks:
                driver.advance_wall_clock_time(600)
            driver.input_topic(side, "string", "string").pipe(value, key, time)
        driver.flush()
        out = driver.output_topic("out", "string", "string").read_records_to_list()
        return [(r.key, r.value, r.timestamp) for r in out], driver.dropped_records


@settings(max_examples=examples(150), deadline=None)
@given(
    records=RECORDS,
    kind=KINDS,
    windows=WINDOWS,
    persistent=st.booleans(),
    interval=st.sampled_from([0, 0, 1000]),
    step=st.integers(0, 30),
    batch_size=st.sampled_from([1, 3, 7, 1000]),
    ticks=st.sets(st.integers(0, 39), max_size=4),
)
def test_joins_are_those_of_one_record_at_a_time(records, kind, windows, persistent, interval, step, batch_size, ticks):
    records = in_time(records, step)
    model = Model(kind, windows, persistent=persistent, interval=interval)
    for i, record in enumerate(records):
        model.now += 600 * (i in ticks)
        model.process(*record)
    topology, config = built(kind, windows, persistent=persistent, interval=interval)
    out, dropped = results(topology, config, records, batch_size=batch_size, ticks=ticks)
    assert out == model.out
    assert dropped == model.total_dropped()


@settings(max_examples=examples(60), deadline=None)
@given(records=RECORDS, windows=WINDOWS, step=st.integers(0, 30), batch_size=st.sampled_from([1, 7, 1000]))
def test_a_self_join_over_one_store_gives_what_two_stores_give(records, windows, step, batch_size):
    # Java's one-store form lets a record match itself even where the window leaves that out.
    windows = Windows(max(windows.before, 0), windows.after, 10_000)
    records = [("l", *rest) for _, *rest in in_time(records, step)]
    plain, config = built("inner", windows, same=True)
    expected, _ = results(plain, config, records, batch_size=1)
    one_store, config = built("inner", windows, same=True, optimize="all")
    assert "KSTREAM-JOINOTHER" not in str(one_store.describe())
    assert results(one_store, config, records, batch_size=batch_size)[0] == expected


@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
@pytest.mark.parametrize("interval", [0, 1000])
def test_large_batches(kind, interval):
    """Enough records to read whole buckets, to look where the outer store ends, and to wait twice in one row."""
    random = Random(7)
    records = [
        (
            random.choice("lr"),
            f"k{random.randrange(150)}",
            random.choice("xyz"),
            max(0, i // 4 + random.randrange(-30, 5)),
        )
        for i in range(5_000)
    ]
    windows = Windows(20, 10, 5)
    ticks = set(range(0, 5_000, 1_700))
    model = Model(kind, windows, interval=interval)
    for i, record in enumerate(records):
        model.now += 600 * (i in ticks)
        model.process(*record)
    topology, config = built(kind, windows, interval=interval)
    assert results(topology, config, records, batch_size=1_700, ticks=ticks)[0] == model.out
