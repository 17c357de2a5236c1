"""Small parts of a partition that a log takes as one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.base import TopicPartition
from penstock.log.kafka.writing import checked
from penstock.log.stored_batches import joined


def part(topic: str, partition: int, *values: str | None) -> tuple[str, int, pa.RecordBatch]:
    rows = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array(range(len(values)), pa.int64()),
            "value": pa.array([None if value is None else value.encode() for value in values], pa.large_binary()),
        }
    )
    return topic, partition, checked(topic, partition, rows)


def values_of(parts: list[tuple[TopicPartition, pa.RecordBatch]]) -> dict[TopicPartition, list[bytes | None]]:
    found: dict[TopicPartition, list[bytes | None]] = {}
    for place, rows in parts:
        found.setdefault(place, []).extend(rows.column("value").to_pylist())
    return found


def test_small_parts_of_a_partition_are_one():
    parts = [part("a", 0, "1"), part("a", 1, "2"), part("a", 0, "3", None), part("b", 0), part("a", 1, "4")]
    found = joined(parts)
    assert [(place.topic, place.partition, rows.num_rows) for place, rows in found] == [("a", 0, 3), ("a", 1, 2)]
    assert values_of(found)[TopicPartition("a", 0)] == [b"1", b"3", None]


def test_large_parts_stay_as_they_are_and_take_turns():
    large = part("a", 0, *["x"] * 10_000)
    found = joined([large, part("a", 0, "y"), part("a", 0, "z"), part("b", 0, "1")])
    assert [(place.topic, rows.num_rows) for place, rows in found] == [("a", 10_000), ("b", 1), ("a", 2)]
    assert found[0][1] is large[2]


def test_parts_with_other_columns_are_not_joined():
    topic, partition, rows = part("a", 0, "1")
    headers = pa.nulls(1, pa.list_(pa.struct({"key": pa.string(), "value": pa.large_binary()})))
    found = joined([(topic, partition, rows), (topic, partition, rows.append_column("headers", headers))])
    assert [each.num_columns for _, each in found] == [3, 4]


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.sampled_from("abc"), max_size=3)), max_size=12))
def test_the_order_of_a_partitions_records_stays(written: list[tuple[int, list[str]]]):
    parts = [part("t", partition, *values) for partition, values in written]
    expected: dict[TopicPartition, list[bytes | None]] = {}
    for partition, values in written:
        if values:
            expected.setdefault(TopicPartition("t", partition), []).extend(value.encode() for value in values)
    assert values_of(joined(parts)) == expected
