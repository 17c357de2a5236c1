"""Serdes with two methods alone, over three starts in both modes: streams, repartitioned counts, joins of tables, windows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Consumed, Grouped, Materialized, Produced, StreamsBuilder, TimeWindows, Topology


class Pair:
    def serialize(self, value: tuple[str, ...]) -> bytes:
        return "|".join(value).encode()

    def deserialize(self, data: bytes) -> tuple[str, ...]:
        return tuple(data.decode().split("|"))


def topology() -> Topology:
    builder = StreamsBuilder()
    clicks = builder.table("clicks", Consumed(value_serde=Pair()), Materialized("clicks-store"))
    pages = builder.table("pages", Consumed(value_serde=Pair()))
    joined = clicks.outer_join(pages, lambda left, right: (left or ("-",)) + (right or ("-",)))
    joined.to_stream().to("joined", Produced(value_serde=Pair()))
    kept = clicks.left_join(pages, lambda left, right: left + (right or ()), Materialized("kept", value_serde=Pair))
    kept.to_stream().to("kept", Produced(value_serde=Pair))
    again = builder.stream("again", Consumed(value_serde=Pair()))
    by_value = again.group_by(lambda value: value[0], Grouped(key_serde="string", value_serde=Pair()))
    by_value.reduce(lambda a, b: a + b, Materialized("reduced")).to_stream().to("reduced", Produced(value_serde=Pair()))
    windowed = again.group_by_key().windowed_by(TimeWindows.of("1 hour")).reduce(lambda a, b: a + b)
    windowed.to_stream(lambda key, _: key.key).to("windowed", Produced(value_serde=Pair()))
    return builder.build()


@pytest.mark.parametrize("mode", ["micro_batch", "continuous"])
def test_three_starts(bench: Any, mode: str) -> None:
    outputs = ("joined", "kept", "reduced", "windowed")
    for topic in ("clicks", "pages", "again", *outputs):
        bench.log.create_topic(topic, 1, {"retention.ms": "-1"})
    for start in range(3):
        if start < 2:  # the last values of these are read by a later start
            bench.write("clicks", [("k", f"c{start}|x", start)])
        bench.write("pages", [("k", f"p{start}", start)])
        bench.write("again", [("k", f"a|{start}", start)])
        bench.run(topology(), **{"processing.mode": mode})
    last = {topic: bench.read(topic)[-1] for topic in outputs}
    assert last == {
        "joined": ("k", "c1|x|p2"),
        "kept": ("k", "c1|x|p2"),
        "reduced": ("a", "a|0|a|1|a|2"),
        "windowed": ("k", "a|0|a|1|a|2"),
    }
