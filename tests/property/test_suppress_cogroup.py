"""Suppressed tables and cogroups: batches of any size, and a new task for every batch, give what single records give."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    BufferConfig,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    agg,
)
from penstock.log.base import RECORD_SCHEMA
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.suppress import operator as suppress
from penstock.runtime.task import StreamTask, TaskPart, TopicBatch
from penstock.state.maps import MemoryTaskState

STRING, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json()
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["x", "yy", "zzz", None]),
        st.integers(0, 300),
        st.sampled_from([(), (("h", b"1"),), (("h", None), ("name", b"value"))]),
    ),
    max_size=40,
)
BUFFERS = [
    BufferConfig.unbounded(),
    BufferConfig.max_records(2),
    BufferConfig.max_records(30),
    BufferConfig.max_bytes(150),
    BufferConfig.max_bytes(5000).with_max_records(40),
]
WINDOWS = [
    TimeWindows.of(40, grace=20),
    TimeWindows.of(60, grace=10, advance=25),
    SlidingWindows.of(30, grace=20),
    SessionWindows.of(20, grace=30),
]


@pytest.fixture(autouse=True, scope="module")
def _columns_for_small_batches():
    before, suppress.FEW = suppress.FEW, 1
    yield
    suppress.FEW = before


def batches(records, split):
    """The records in batches of this many; a batch keeps their order by having an entry for each run of one topic."""
    offsets = {"left": 0, "right": 0}
    for start in range(0, len(records), split):
        batch = []
        for topic, key, value, timestamp, headers in records[start : start + split]:
            row = {
                "offset": offsets[topic],
                "timestamp": timestamp,
                "key": None if key is None else key.encode(),
                "value": None if value is None else value.encode(),
                "headers": [{"key": name, "value": data} for name, data in headers] or None,
            }
            offsets[topic] += 1
            batch.append(TopicBatch(topic, 0, pa.RecordBatch.from_pylist([row], schema=RECORD_SCHEMA)))
        yield batch


def run(topology, records, split, *, restart=False, depth_first=False):
    """What is written to each topic, and the dropped records."""
    state = MemoryTaskState(topology.stores.values())
    config = StreamsConfig({"application.id": "test", "statestore.cache.max.bytes": 0})
    task, written, dropped = None, {}, 0
    for batch in batches(records, split):
        if task is None or restart:
            task = StreamTask(topology, config, TaskPart("0_0", {}), state, TaskEnvironment(wall_clock_ms=0))
        output = task.process(batch, 0, ordered=True, depth_first=depth_first)
        dropped += output.metrics["dropped"]
        for topic, rows in output.records.items():
            written.setdefault(topic, []).extend(rows.to_pylist())
    return written, dropped


def check(topology, records, split):
    read = {topic for node in topology.sources for topic in node.topics}
    records = [record for record in records if record[0] in read]
    expected = run(topology, records, 1, depth_first=True)
    assert run(topology, records, split) == expected
    assert run(topology, records, split, restart=True) == expected
    assert run(topology, records, 1000) == expected


def table(builder, topic):
    return builder.table(topic, Consumed(key_serde=STRING, value_serde=STRING))


def stream(builder, topic):
    return builder.stream(topic, Consumed(key_serde=STRING, value_serde=STRING))


def to(table_or_stream, topic, key=STRING, value=STRING):
    it = table_or_stream.to_stream() if hasattr(table_or_stream, "to_stream") else table_or_stream
    it.to(topic, Produced(key_serde=key, value_serde=value))


@given(RECORDS, st.sampled_from(BUFFERS), st.integers(0, 120), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_suppress_until_a_time_limit(records, buffer, limit_ms, split):
    builder = StreamsBuilder()
    suppressed = table(builder, "left").suppress(Suppressed.until_time_limit(limit_ms, buffer))
    to(suppressed, "out")
    check(builder.build(), records, split)


@given(RECORDS, st.sampled_from(BUFFERS), st.integers(0, 120), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_joins_see_a_suppressed_table_as_it_is_shown(records, buffer, limit_ms, split):
    builder = StreamsBuilder()
    source = table(builder, "left")
    suppressed = source.suppress(Suppressed.until_time_limit(limit_ms, buffer))

    def pair(left, right):
        return f"{left}|{right}"

    to(stream(builder, "right").left_join(suppressed, pair), "looked-up")
    to(source.to_stream().left_join(suppressed, pair), "behind")
    to(suppressed.to_stream().left_join(suppressed, pair), "itself")
    check(builder.build(), records, split)


@given(RECORDS, st.sampled_from(WINDOWS), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_suppress_until_windows_close(records, windows, split):
    builder = StreamsBuilder()
    grouped = stream(builder, "left").group_by_key(Grouped(key_serde=STRING, value_serde=STRING))
    counts = grouped.windowed_by(windows).count(Materialized("counts", key_serde=STRING))
    final = counts.suppress(Suppressed.until_window_closes())
    session = isinstance(windows, SessionWindows)
    keys = Serdes.session_windowed(STRING) if session else Serdes.time_windowed(STRING, windows.size_ms)
    to(final, "out", keys, LONG)
    check(builder.build(), records, split)


@given(
    RECORDS,
    st.sampled_from([None, *WINDOWS]),
    st.integers(2, 12),
    st.booleans(),
    st.sampled_from(["rocksdb", "in_memory"]),
)
@settings(max_examples=30, deadline=None)
def test_cogroups(records, windows, split, known, store_type):
    builder = StreamsBuilder()
    left, right = (stream(builder, topic) for topic in ("left", "right"))
    long = left.filter(lambda value: value is not None and len(value) > 1)

    def trace(sign):
        return lambda key, value, text: f"{text or ''}{sign}{key}{value}"[-12:]

    fns = [agg.count()] * 3 if known else [trace(sign) for sign in "+-*"]
    cogrouped = left.group_by_key().cogroup(fns[0])
    cogrouped = cogrouped.cogroup(right.group_by_key(), fns[1]).cogroup(long.group_by_key(), fns[2])
    serdes = {"key_serde": STRING, "value_serde": LONG if known else STRING}
    store = Materialized("table", store_type=store_type, **serdes)
    if windows is None:
        result, keys = cogrouped.aggregate(None, store), STRING
    elif isinstance(windows, SessionWindows):
        merger = None if known else lambda key, left, right: f"({left}{right})"[-12:]
        result, keys = cogrouped.windowed_by(windows).aggregate(None, merger, store), Serdes.session_windowed(STRING)
    else:
        result = cogrouped.windowed_by(windows).aggregate(None, store)
        keys = Serdes.time_windowed(STRING, windows.size_ms)
    to(result, "out", keys, serdes["value_serde"])
    check(builder.build(), records, split)
