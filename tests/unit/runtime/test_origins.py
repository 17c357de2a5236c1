"""A record that waited in a buffer keeps where it came from, as Kafka restores its record context."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from penstock import Joined, Materialized, Processor, StreamsBuilder, TopologyTestDriver

CONFIG = {"statestore.cache.max.bytes": 0, "default.key.serde": "string", "default.value.serde": "string"}


class Where(Processor):
    def process(self, record):
        self.context.forward(record.with_value(f"{record.value}:{self.context.record_metadata().offset}"))


@pytest.mark.parametrize("batch_size", [1, 10])
def test_processors_behind_a_join_with_grace_see_the_waiting_record(batch_size):
    builder = StreamsBuilder()
    table = builder.table("prices", materialized=Materialized("prices", history="1 minute"))
    joined = builder.stream("orders").left_join(table, lambda order, _: order, Joined(grace="1 second"))
    joined.process(Where).process(Where).to("out")
    with TopologyTestDriver(builder.build(), CONFIG, batch_size=batch_size) as driver:
        for number in range(4):
            driver.input_topic("orders").pipe(f"o{number}", "a", number * 600)
        driver.flush()
        assert driver.output_topic("out").read_values_to_list() == ["o0:0:0", "o1:1:1"]


class Same(Processor):
    def process(self, record):
        self.context.forward(record)


@pytest.mark.parametrize(("processor", "looked_up"), [(Same, 0), (Where, 50)])
def test_the_source_of_a_record_is_looked_up_for_processors_that_ask(processor, looked_up):
    """It takes longer than most processors: five items of an Arrow batch as Python objects."""
    called = []

    def on(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "record_context":
            called.append(frame)

    builder = StreamsBuilder()
    builder.stream("in").process(processor).to("out")
    with TopologyTestDriver(builder.build(), CONFIG, batch_size=100) as driver:
        driver.input_topic("in").pipe_many([("a", str(number)) for number in range(50)])
        sys.setprofile(on)
        try:
            driver.flush()
        finally:
            sys.setprofile(None)
        assert len(driver.output_topic("out").read_values_to_list()) == 50
    assert len(called) == looked_up
