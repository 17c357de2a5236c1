"""Topologies whose heartbeats were recorded from Kafka Streams in Java, beside those of the recorded cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import (
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
)
from penstock.topology.topology import Topology

__all__ = ["OWN", "SETTINGS", "build"]

# The settings of applications beside their id; Java's got the same.
SETTINGS: dict[str, dict[str, Any]] = {
    "optimised": {"topology.optimization": "all"},
    "topic-settings": {
        "topic.segment.bytes": "2000000",
        "topic.retention.ms": "100000",
        "topic.cleanup.policy": "compact",
        "topic.message.timestamp.type": "LogAppendTime",
        "replication.factor": 1,
        "windowstore.changelog.additional.retention.ms": 1000,
    },
}
_MINUTE = 60_000


def build(name: str) -> Topology:
    """The topology of a recorded application."""
    builder = StreamsBuilder()
    OWN[name](builder)
    return builder.build(SETTINGS.get(name, {}))


def _value(_: Any, value: str) -> str:
    return value


def _both(left: str, right: str | None) -> str:
    return f"{left}{right}"


def _stateless(b: StreamsBuilder) -> None:
    b.stream("in").map_values(str).to("out")


def _count(b: StreamsBuilder) -> None:
    b.stream("in").group_by(_value).count().to_stream().to("out")


def _count_named(b: StreamsBuilder) -> None:
    grouped = b.stream("in", name="source").group_by(_value, Grouped("by-value"))
    grouped.count("counts", name="counter").to_stream(name="to-stream").to("out", name="sink")


def _two_sources(b: StreamsBuilder) -> None:
    b.stream(["b", "a"]).group_by_key().count().to_stream().to("out")


def _repartition_partitions(b: StreamsBuilder) -> None:
    b.stream("in").repartition(Repartitioned("five", partitions=5)).group_by_key().count("c").to_stream().to("out")


def _repartition_twice(b: StreamsBuilder) -> None:
    s = b.stream("in")
    s.repartition(Repartitioned("x", partitions=2)).group_by_key().count("cx").to_stream().to("out")
    s.select_key(_value).group_by_key(Grouped("y")).count("cy").to_stream().to("out")


def _join_repartition_partitions(b: StreamsBuilder) -> None:
    left = b.stream("l4").repartition(Repartitioned("left", partitions=4))
    right = b.stream("r2").select_key(_value)
    window = JoinWindows.of(_MINUTE, grace=2 * _MINUTE)
    left.join(right, _both, window, StreamJoined(store_name="j")).to("out")


def _stream_stream(b: StreamsBuilder) -> None:
    b.stream("l").join(b.stream("r"), _both, JoinWindows.of(5 * _MINUTE)).to("out")


def _stream_table(b: StreamsBuilder) -> None:
    b.stream("orders").join(b.table("users"), _both).to("out")


def _stream_table_rekeyed(b: StreamsBuilder) -> None:
    stream = b.stream("orders4").select_key(_value)
    stream.join(b.table("users", materialized="users-store"), _both).to("out")


def _table_table(b: StreamsBuilder) -> None:
    b.table("a").join(b.table("b"), _both, "joined").to_stream().to("out")


def _foreign_key(b: StreamsBuilder) -> None:
    b.table("a").join(b.table("b"), _both, foreign_key=str).to_stream().to("out")


def _foreign_key_named(b: StreamsBuilder) -> None:
    left, right = b.table("a", materialized="sa"), b.table("b", materialized="sb")
    left.left_join(right, _both, "joined", foreign_key=str, joined=TableJoined("fk")).to_stream().to("out")


def _global_table(b: StreamsBuilder) -> None:
    joined = b.stream("in").join(b.global_table("g"), _both, key=_value)
    joined.group_by_key().count().to_stream().to("out")


def _global_table_first(b: StreamsBuilder) -> None:
    table = b.global_table("g", materialized="gs")
    b.stream("in").join(table, _both, key=_value).to("out")


def _windows(b: StreamsBuilder) -> None:
    windows = TimeWindows.of(_MINUTE, grace=15 * _MINUTE)
    b.stream("in").group_by_key().windowed_by(windows).count().to_stream(lambda k, _: k.key).to("out")


def _sliding(b: StreamsBuilder) -> None:
    windows = SlidingWindows.of(_MINUTE, grace=2 * _MINUTE)
    b.stream("in").group_by_key().windowed_by(windows).count("slides").to_stream(lambda k, _: k.key).to("out")


def _sessions(b: StreamsBuilder) -> None:
    windows = SessionWindows.of(5 * _MINUTE, grace=3 * _MINUTE)
    b.stream("in").group_by_key().windowed_by(windows).count("sessions").to_stream(lambda k, _: k.key).to("out")


def _on_close(b: StreamsBuilder) -> None:
    windows = b.stream("in").group_by_key().windowed_by(TimeWindows.of(_MINUTE))
    windows.emit_strategy("on_window_close").count().to_stream(lambda k, _: k.key).to("out")


def _suppress(b: StreamsBuilder) -> None:
    counts = b.stream("in").group_by_key().windowed_by(TimeWindows.of(_MINUTE)).count()
    counts.suppress(Suppressed.until_window_closes(), name="late").to_stream(lambda k, _: k.key).to("out")


def _logging_config(b: StreamsBuilder) -> None:
    store = Materialized("c", log_config={"segment.bytes": "1000000", "min.insync.replicas": "1"})
    b.stream("in").group_by_key().count(store).to_stream().to("out")


def _logging_off(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().count(Materialized("c", logging=False)).to_stream().to("out")


def _versioned(b: StreamsBuilder) -> None:
    b.table("in", materialized=Materialized("v", history=60 * _MINUTE)).to_stream().to("out")


def _optimised(b: StreamsBuilder) -> None:
    table = b.table("users", materialized="u")
    stream = b.stream("in").select_key(_value)
    stream.group_by_key().count("c1").to_stream().to("out")
    stream.join(table, _both).to("out")


def _reader_of_output(b: StreamsBuilder) -> None:
    b.stream("in").to("mid")
    b.stream("mid").group_by_key().count().to_stream().to("out")


def _many(b: StreamsBuilder) -> None:
    for number in range(12):
        b.stream(f"t{number}").group_by(_value).count(f"s{number}").to_stream().to("out")


def _topic_settings(b: StreamsBuilder) -> None:
    stream = b.stream("in").select_key(_value)
    stream.group_by_key().count("kv").to_stream().to("out")
    windowed = stream.group_by_key().windowed_by(TimeWindows.of(_MINUTE)).count("w")
    windowed.to_stream(lambda k, _: k.key).to("out")


class _Passing(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def _processor_store(b: StreamsBuilder) -> None:

    b.add_state_store(Stores.key_value("shared"))
    b.stream("in").process(_Passing, ["shared"]).to("out")
    b.stream("in2").process(_Passing, ["shared"]).to("out")


OWN: dict[str, Callable[[StreamsBuilder], None]] = {
    made.__name__.removeprefix("_").replace("_", "-"): made
    for made in (
        _stateless,
        _count,
        _count_named,
        _two_sources,
        _repartition_partitions,
        _repartition_twice,
        _join_repartition_partitions,
        _stream_stream,
        _stream_table,
        _stream_table_rekeyed,
        _table_table,
        _foreign_key,
        _foreign_key_named,
        _global_table,
        _global_table_first,
        _windows,
        _sliding,
        _sessions,
        _on_close,
        _suppress,
        _logging_config,
        _logging_off,
        _versioned,
        _optimised,
        _reader_of_output,
        _many,
        _topic_settings,
        _processor_store,
    )
}
