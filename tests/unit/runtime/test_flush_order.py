"""What leaves a table's cache comes after all else that a record causes, as at Kafka's commit."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Processor, Stores, StreamsBuilder
from penstock.testing import TopologyTestDriver

SETTINGS: dict[str, Any] = {"default.key.serde": "string", "default.value.serde": "string"}


class Pass(Processor[str, str]):
    def process(self, record: Any) -> None:
        self.context.forward(record)


def order(builder: StreamsBuilder, cache_bytes: int) -> list[str]:
    settings = {**SETTINGS, "statestore.cache.max.bytes": cache_bytes}
    with TopologyTestDriver(builder.build(), settings) as driver:
        driver.input_topic("in").pipe("1", key="k", timestamp=0)
        return driver.output_topic("out").read_values_to_list()


def cached_twice(*, sliced: bool) -> StreamsBuilder:
    """A table, a second table of its changes, and the stream itself, all into one topic."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    table = stream.to_table("one")
    table.map_values(lambda value: value + " table").to_stream().to("out")
    table.to_stream().to_table("two").to_stream().map_values(lambda value: value + " second table").to("out")
    if sliced:  # a store that two processors share: records go through one by one
        builder.add_state_store(Stores.key_value("shared"))
        stream = stream.process(Pass, ["shared"]).process(Pass, ["shared"])
    stream.map_values(lambda value: value + " stream").to("out")
    return builder


@pytest.mark.parametrize("sliced", [False, True])
def test_caches_are_flushed_behind_the_record(sliced: bool) -> None:
    assert order(cached_twice(sliced=sliced), 1 << 20) == ["1 stream", "1 table", "1 second table"]
    assert order(cached_twice(sliced=sliced), 0) == ["1 table", "1 second table", "1 stream"]
