"""The time and the headers that transformers of tables see."""

import pytest

from penstock import StreamsBuilder, TopologyTestDriver, ValueTransformerWithKey

CONFIG = {"statestore.cache.max.bytes": 0, "default.key.serde": "string", "default.value.serde": "string"}


class Stamped(ValueTransformerWithKey):
    def transform(self, key, value):
        names = ",".join(name for name, _ in self.context.headers())
        return None if value is None else f"{value}@{self.context.timestamp()}[{names}]"


@pytest.mark.parametrize("batch_size", [1, 10])
def test_transformers_see_the_time_and_the_headers_of_the_row(batch_size: int) -> None:
    builder = StreamsBuilder()
    builder.table("in").transform_values(Stamped).to_stream().to("out")
    with TopologyTestDriver(builder.build(), CONFIG, batch_size=batch_size) as driver:
        driver.input_topic("in").pipe("x", "a", 7, headers=(("trace", b"1"),))
        driver.input_topic("in").pipe("y", "a", 9)
        driver.flush()
        assert driver.output_topic("out").read_values_to_list() == ["x@7[trace]", "y@9[]"]


@pytest.mark.parametrize("batch_size", [1, 10])
def test_transformers_of_rows_that_are_read_see_the_time_of_the_row(batch_size: int) -> None:
    builder = StreamsBuilder()
    table = builder.table("in").transform_values(Stamped)
    builder.stream("s").join(table, lambda a, b: a + b).to("out")
    with TopologyTestDriver(builder.build(), CONFIG, batch_size=batch_size) as driver:
        driver.input_topic("in").pipe("x", "a", 7, headers=(("trace", b"1"),))
        driver.input_topic("s").pipe("s ", "a", 30, headers=(("other", b"1"),))
        driver.flush()
        assert driver.output_topic("out").read_values_to_list() == ["s x@7[]"]
