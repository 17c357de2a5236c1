"""The changelog records of every kind of store are those that Kafka Streams writes, byte for byte.

`changelogs/recorded.json` is what `changelogs/ChangelogRecorder.java` printed over Kafka Streams 4.3.1. Times are compared
where the format tells them: a plain store does not know which record a value came from.
"""

from __future__ import annotations

import json
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stages import staged

from penstock import (
    Consumed,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
)

RECORDED = json.loads((Path(__file__).parent / "changelogs" / "recorded.json").read_text())
WITHOUT_TIMES = {"plain", "lru", "sessions", "suppress", "grace", "outer"}
WITHOUT_TIMES |= {f"untyped {kind}" for kind in ("windows", "sessions", "grace", "outer")}
Input = tuple[Any, ...]


class Put(Processor):
    def process(self, record):
        self.context.get_state_store("s").put(record.key, record.value)


class PutVersioned(Processor):
    def process(self, record):
        self.context.get_state_store("s").put(record.key, record.value, record.timestamp)


def counted(windows=None):
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    (grouped.windowed_by(windows) if windows else grouped).count(Materialized("s"))
    return builder


def processed(store, processor=Put):
    builder = StreamsBuilder()
    builder.add_state_store(store)
    builder.stream("in").process(processor, [store.name])
    return builder


def table():
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized("s"))
    return builder


def outer():
    builder = StreamsBuilder()
    windows = JoinWindows.of(10, grace=2)
    joined = StreamJoined("j", store_name="j")
    builder.stream("l").outer_join(builder.stream("r"), lambda x, y: f"{x}{y}", windows, joined).to("out")
    return builder


def suppress():
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10, grace=0))
    counts = windowed.count(Materialized("s")).suppress(Suppressed.until_window_closes().with_name("sup"))
    counts.to_stream().map(lambda k, v: (k.key, str(v))).to("out")
    return builder


def grace():
    builder = StreamsBuilder()
    versions = builder.table("t", materialized=Materialized("tab", history="60 s"))
    builder.stream("in").join(versions, lambda x, y: x + y, Joined("j", grace=10)).to("out")
    return builder


def foreign_key():
    builder = StreamsBuilder()
    left = builder.table("l", materialized=Materialized("left"))
    right = builder.table("r", materialized=Materialized("right"))
    left.join(
        right,
        lambda x, y: x + y,
        Materialized("res", value_serde="string"),
        foreign_key=lambda v: v[:1],
        joined=TableJoined("fk"),
    )
    return builder


def twice(value):
    return value + value


def joined_text(key, value, aggregate):
    return aggregate + value


def untyped():
    """The values' type changes, and nobody says to what: the application's default writes them."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key_serde="string", value_serde="string"))
    stream.map_values(twice).group_by_key().aggregate(str, joined_text, Materialized("s"))
    return builder


def untyped_windows():
    builder = StreamsBuilder()
    windowed = builder.stream("in").map_values(twice).group_by_key().windowed_by(TimeWindows.of(10, grace=0))
    texts = windowed.aggregate(str, joined_text, Materialized("s", key_serde="string")).suppress(
        Suppressed.until_window_closes().with_name("sup")
    )
    texts.to_stream().map(lambda k, v: (k.key, v)).to("out")
    return builder


def untyped_sessions():
    builder = StreamsBuilder()
    windowed = builder.stream("in").map_values(twice).group_by_key().windowed_by(SessionWindows.of(10, grace=5))
    windowed.aggregate(str, joined_text, lambda key, x, y: x + y, Materialized("s"))
    return builder


def untyped_outer():
    builder = StreamsBuilder()
    windows = JoinWindows.of(10, grace=2)
    left, right = builder.stream("l").map_values(twice), builder.stream("r").map_values(twice)
    left.outer_join(right, lambda x, y: f"{x}{y}", windows, StreamJoined("j", store_name="j")).to("out")
    return builder


def untyped_grace():
    builder = StreamsBuilder()
    versions = builder.table("t", materialized=Materialized("tab", history="60 s"))
    builder.stream("in").map_values(twice).join(versions, add, Joined("j", grace=10)).to("out")
    return builder


def untyped_foreign_key():
    """The hashes in the subscriptions are of the left table's mapped values."""
    builder = StreamsBuilder()
    left = builder.table("l", materialized=Materialized("left")).map_values(twice)
    right = builder.table("r", materialized=Materialized("right")).map_values(twice, Materialized("mapped"))
    left.join(right, add, Materialized("res"), foreign_key=lambda v: v[:1], joined=TableJoined("fk"))
    return builder


TEXT = {"key_serde": "string", "value_serde": "string"}
CASES: dict[str, tuple[Any, list[Input]]] = {
    "count": (counted, [("in", "a", "x", 5), ("in", "b", "x", 9), ("in", "a", "y", 3)]),
    "table": (table, [("in", "a", "x", 5), ("in", "b", "x", 9), ("in", "a", None, 12)]),
    "windows": (
        lambda: counted(TimeWindows.of(10, grace=5)),
        [
            ("in", "a", "x", 5),
            ("in", "b", "x", 19),
            ("in", "a", "y", 8),
            ("in", "ab", "y", 200000),
            ("in", "a", "z", 200001),
        ],
    ),
    "sessions": (
        lambda: counted(SessionWindows.of(10, grace=5)),
        [("in", "a", "x", 5), ("in", "a", "x", 19), ("in", "a", "y", 12), ("in", "b", "y", 21)],
    ),
    "plain": (
        lambda: processed(Stores.key_value("s", **TEXT)),
        [("in", "a", "x", 5), ("in", "b", "y", 9), ("in", "a", None, 12)],
    ),
    "lru": (
        lambda: processed(Stores.lru("s", 2, **TEXT)),
        [("in", "a", "x", 5), ("in", "b", "y", 9), ("in", "c", "z", 12)],
    ),
    "versioned": (
        lambda: processed(Stores.versioned("s", history="60 s", **TEXT), PutVersioned),
        [("in", "a", "x", 5), ("in", "a", "z", 12), ("in", "a", "y", 9), ("in", "a", None, 20)],
    ),
    "outer": (
        outer,
        [("l", "a", "x", 5), ("l", "a", "xx", 5), ("r", "b", "yy", 9), ("r", "a", "z", 12), ("l", "c", "z", 40)],
    ),
    "suppress": (
        suppress,
        [("in", "a", "x", 5, "h"), ("in", "b", "x", 6), ("in", "a", "y", 7), ("in", "a", "y", 25)],
    ),
    "grace": (grace, [("t", "a", "T", 1), ("in", "a", "x", 5, "h"), ("in", "b", "y", 6), ("in", "a", "z", 30)]),
    "fk": (foreign_key, [("r", "k", "R", 1), ("l", "1", "k1", 5), ("l", "2", "k2", 6), ("l", "1", None, 7)]),
    "untyped": (untyped, [("in", "a", "x", 5), ("in", "b", "x", 9), ("in", "a", "y", 3)]),
    "untyped windows": (
        untyped_windows,
        [("in", "a", "x", 5), ("in", "b", "x", 6), ("in", "a", "y", 7), ("in", "a", "y", 25)],
    ),
    "untyped sessions": (
        untyped_sessions,
        [("in", "a", "x", 5), ("in", "a", "x", 19), ("in", "a", "y", 12), ("in", "b", "y", 21)],
    ),
    "untyped outer": (
        untyped_outer,
        [("l", "a", "x", 5), ("l", "a", "xx", 5), ("r", "b", "yy", 9), ("r", "a", "z", 12), ("l", "c", "z", 40)],
    ),
    "untyped grace": (
        untyped_grace,
        [("t", "a", "T", 1), ("in", "a", "x", 5, "h"), ("in", "b", "y", 6), ("in", "a", "z", 30)],
    ),
    "untyped fk": (
        untyped_foreign_key,
        [("r", "k", "R", 1), ("l", "1", "k1", 5), ("l", "2", "k2", 6), ("r", "k", "S", 7), ("l", "1", None, 8)],
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_records_are_those_of_kafka_streams(name):
    make, inputs = CASES[name]
    text = Serdes.string()
    config = {
        "default.key.serde": "string",
        "default.value.serde": "string",
        "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
    }
    topics = {*(i[0] for i in inputs), "out"}
    run = SimpleNamespace(topology=make().build(), serdes=dict.fromkeys(topics, (text, text)), config=config, stores=())
    with staged(run) as stages:
        for topic, key, value, time, *header in inputs:
            row = {"topic": topic, "key": key, "value": value, "timestamp": time}
            stages.run([row | {"headers": [{"key": h, "value": b"hv"} for h in header]}])
        found = {topic: stages.changelog(topic) for topic in RECORDED[name]}
    for topic, expected in RECORDED[name].items():
        assert _rows(found[topic], name) == _rows(expected, name), topic


def _rows(rows, name):
    """Without times where they differ by design; changes of one batch in any order."""
    kept = [[None if name in WITHOUT_TIMES else row[0], *row[1:]] for row in rows]
    return sorted(kept, key=repr) if name in WITHOUT_TIMES - {"plain"} else kept
