"""Versioned tables, joins with grace, and stores that forget: any cut into batches gives what single records give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock import Joined, Materialized, Processor, Stores, StreamsBuilder, TopologyTestDriver

CONFIG = {"statestore.cache.max.bytes": 0, "default.key.serde": "string", "default.value.serde": "string"}
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["x", "yy", "zzz", None]),
        st.integers(0, 9_000),
    ),
    max_size=30,
)


def history(name: str) -> Materialized:
    return Materialized(name, history="4 seconds")


def waiting_join(builder: StreamsBuilder) -> None:
    table = builder.table("right", materialized=history("v")).map_values(lambda v: v * 2)
    joined = builder.stream("left").left_join(table, lambda a, b: f"{a}{b}", Joined(grace="2 seconds"))
    joined.to("out")


def join_with_itself(builder: StreamsBuilder) -> None:
    stream = builder.stream(["left", "right"])
    stream.join(stream.to_table(history("v")), lambda a, b: f"{a}{b}").to("out")


def joined_tables(builder: StreamsBuilder) -> None:
    left, right = (builder.table(name, materialized=history(name)) for name in ("left", "right"))
    left.outer_join(right, lambda a, b: f"{a}{b}", history("joined")).to_stream().to("out")


def kept_filter(builder: StreamsBuilder) -> None:
    table = builder.table("right", materialized=history("v")).filter(lambda v: len(v) > 1, history("f"))
    table.to_stream().to("out")
    builder.stream("left").join(table, lambda a, b: f"{a}{b}").to("joined")


def aggregates(builder: StreamsBuilder) -> None:
    grouped = builder.stream(["left", "right"]).group_by_key()
    grouped.count(history("counts")).to_stream().map_values(str).to("out")
    reduced = grouped.reduce(lambda a, b: None if b == "yy" else a + b, history("reduced"))
    reduced.to_stream().to("joined")


class Last(Processor[str, str]):
    """Forwards what both stores have under the key, then puts the value."""

    def process(self, record: Any) -> None:
        short, lru = (self.context.get_state_store(name) for name in ("short", "lru"))
        known = [*short.all()] if record.value == "zzz" else [short.get(record.key), lru.get(record.key)]
        self.context.forward(record.with_value(str(known)))
        short.put(record.key, record.value)
        lru.put(record.key, record.value)


def forgetting_stores(builder: StreamsBuilder) -> None:
    text = {"key_serde": "string", "value_serde": "string"}
    builder.add_state_store(Stores.key_value("short", ttl="1 second", **text))
    builder.add_state_store(Stores.lru("lru", 2, **text))
    builder.stream(["left", "right"]).process(Last, ["short", "lru"]).to("out")


TOPOLOGIES = [waiting_join, join_with_itself, joined_tables, kept_filter, aggregates, forgetting_stores]


def run(build: Callable[[StreamsBuilder], None], records: list[Any], batch_size: int) -> Any:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), CONFIG, batch_size=batch_size) as driver:
        for topic, key, value, time in records:
            if topic in {t for source in driver.topology.sources for t in source.topics}:
                driver.input_topic(topic).pipe(value, key, time)
        driver.flush()
        written = {t: driver.output_topic(t, "string", "string").read_records_to_list() for t in ("out", "joined")}
        kept = {
            name: list(driver.store(name).all())
            for name, spec in driver.topology.stores.items()
            if spec.kind != "record_buffer"
        }
        return written, kept, driver.dropped_records


@pytest.mark.parametrize("build", TOPOLOGIES)
@settings(max_examples=examples(30), deadline=None)
@given(RECORDS, st.integers(2, 12))
def test_batches_give_what_single_records_give(build: Any, records: list[Any], batch_size: int) -> None:
    assert run(build, records, batch_size) == run(build, records, 1)
