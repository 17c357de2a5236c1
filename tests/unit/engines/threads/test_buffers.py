"""The buffers of a task take records as Kafka's PartitionGroup does, one after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engines.threads.loop.task import PartitionGroup, Taken
from penstock.log.base import RECORD_SCHEMA, Fetched, TopicPartition
from penstock.runtime.rows import DecodedRecords, TaskInput, TopicBatch
from penstock.serde.column import Column

Record = tuple[TopicPartition, int]  # its partition and offset
A, B, C = (TopicPartition(topic, 0) for topic in "abc")


def fetched(times: list[int], start: int, following: int | None = None) -> Fetched:
    offsets = range(start, start + len(times))
    columns = {"offset": offsets, "timestamp": times, "key": [b""] * len(times), "value": [b""] * len(times)}
    arrays = [
        pa.array(columns[each.name], each.type) if each.name in columns else pa.nulls(len(times), each.type)
        for each in RECORD_SCHEMA
    ]
    end = start + len(times) if following is None else following
    return Fetched(pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA), end)


def in_order(taken: Taken) -> list[Record]:
    """The records in the order in which a task processes them."""
    pieces = []
    for place, records in taken:
        batch = TopicBatch(place.topic, place.partition, records)
        none = Column.nulls(records.num_rows)
        times = records.column("timestamp").to_numpy()
        pieces.append(DecodedRecords(place.topic, batch, None, times, none, none, None))
    joined = TaskInput(pieces, ordered=False)
    topics, partitions, offsets = joined.sources(np.arange(joined.length))
    return [
        (TopicPartition(topic.decode(), int(partition)), int(offset))
        for topic, partition, offset in zip(topics.to_pylist(), partitions, offsets, strict=True)
    ]


@dataclass
class RecordByRecord:
    """Kafka's PartitionGroup in the shortest way: before each record it looks whether it may take one."""

    places: list[TopicPartition]
    idle_ms: int
    queues: dict[TopicPartition, deque[tuple[int, int]]] = field(init=False)  # time, offset
    positions: dict[TopicPartition, int] = field(init=False)
    deadlines: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queues = {place: deque() for place in self.places}
        self.positions = dict.fromkeys(self.places, 0)

    def add(self, place: TopicPartition, times: list[int]) -> None:
        start = self.positions[place]
        self.queues[place].extend((time, start + n) for n, time in enumerate(times))
        self.positions[place] += len(times)

    def is_ready(self, now_ms: int, ends: dict[TopicPartition, int]) -> bool:
        if self.idle_ms == -1:
            return True
        ready = True
        for place, queue in self.queues.items():
            if queue:
                self.deadlines.pop(place, None)
            elif ends.get(place, self.positions[place] + 1) > self.positions[place]:
                self.deadlines.pop(place, None)
                ready = False
            elif now_ms < self.deadlines.setdefault(place, now_ms + self.idle_ms):
                ready = False
        return ready

    def take(self, now_ms: int, ends: dict[TopicPartition, int], most: int) -> list[Record]:
        taken: list[Record] = []
        while self.is_ready(now_ms, ends) and any(self.queues.values()) and len(taken) < most:
            heads = [(queue[0][0], n) for n, queue in enumerate(self.queues.values()) if queue]
            place = self.places[min(heads)[1]]
            taken.append((place, self.queues[place].popleft()[1]))
        return taken


TIMES = st.lists(st.integers(0, 12), max_size=14)
PARTITIONS = st.lists(TIMES, min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 9), st.integers(0, 8), st.booleans()), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(PARTITIONS, STEPS, st.sampled_from([-1, 0, 10]))
def test_batches_hold_what_kafka_takes_record_by_record(partitions: Any, steps: Any, idle_ms: int) -> None:
    """Whatever arrives when, whether or not the ends of the partitions are known, and however they grow."""
    places = [A, B, C][: len(partitions)]
    group = PartitionGroup(dict.fromkeys(places, 0), idle_ms)
    model = RecordByRecord(places, idle_ms)
    left = dict(zip(places, partitions, strict=True))
    ends: dict[TopicPartition, int] = {}
    now_ms = 0
    for which, count, most, later_ms, end_is_near in steps:
        place = places[which % len(places)]
        times, left[place] = left[place][:count], left[place][count:]
        group.add(place, fetched(times, model.positions[place]))
        model.add(place, times)
        ends[place] = model.positions[place] + (0 if end_is_near else len(left[place]))
        now_ms += later_ms
        assert in_order(group.take(now_ms, ends, most)) == model.take(now_ms, ends, most)
        assert group.records == sum(map(len, model.queues.values()))
        following = {p: q[0][1] if q else model.positions[p] for p, q in model.queues.items()}
        assert group.positions() == following


@settings(max_examples=100, deadline=None)
@given(PARTITIONS, st.data(), st.sampled_from([0, 5]))
def test_any_fetches_give_the_merge_of_all_records_when_the_lag_is_known(
    partitions: Any, data: Any, idle_ms: int
) -> None:
    places = [A, B, C][: len(partitions)]
    ends = {place: len(times) for place, times in zip(places, partitions, strict=True)}
    at_once = PartitionGroup(dict.fromkeys(places, 0), idle_ms)
    for place, times in zip(places, partitions, strict=True):
        at_once.add(place, fetched(times, 0))
    everything = RecordByRecord(places, -1)
    for place, times in zip(places, partitions, strict=True):
        everything.add(place, times)
    merge = everything.take(0, ends, 1000)

    group = PartitionGroup(dict.fromkeys(places, 0), idle_ms)
    processed: list[Record] = []
    left = dict(zip(places, partitions, strict=True))
    while any(left.values()):
        place = data.draw(st.sampled_from([each for each in places if left[each]]))
        count = data.draw(st.integers(1, len(left[place])))
        group.add(place, fetched(left[place][:count], ends[place] - len(left[place])))
        left[place] = left[place][count:]
        processed += in_order(group.take(0, ends, data.draw(st.sampled_from([1, 3, 1000]))))
    for now_ms in range(0, 5 * len(merge) + 10, 5):  # with time to wait, and a few at a time
        processed += in_order(group.take(now_ms, ends, 1000))
    assert processed == merge


def test_nothing_is_taken_before_the_end_of_an_empty_partition_is_known() -> None:
    group = PartitionGroup({A: 0, B: 0})
    group.add(A, fetched([1, 2], 0))
    assert group.take(0, {A: 2}, 10) == []
    assert group.take(0, {A: 2, B: 1}, 10) == []
    assert in_order(group.take(0, {A: 2, B: 0}, 10)) == [(A, 0), (A, 1)]


def test_a_batch_ends_where_a_partition_with_lag_runs_empty() -> None:
    group = PartitionGroup({A: 0, B: 0})
    group.add(A, fetched([1, 5, 9], 0))
    group.add(B, fetched([2, 5], 0))
    ends = {A: 3, B: 3}
    assert in_order(group.take(0, ends, 10)) == [(A, 0), (B, 0), (A, 1), (B, 1)]
    assert group.take(0, ends, 10) == []
    group.add(B, fetched([6], 2))
    assert in_order(group.take(0, ends, 10)) == [(B, 2), (A, 2)]


def test_it_waits_for_a_partition_that_is_empty_as_long_as_it_may() -> None:
    group = PartitionGroup({A: 0, B: 0}, 100)
    group.add(A, fetched([1], 0))
    ends = {A: 1, B: 0}
    assert group.take(1_000, ends, 10) == []
    assert group.wakes_at_ms(1_000) == 1_100
    assert group.take(1_099, ends, 10) == []
    assert in_order(group.take(1_100, ends, 10)) == [(A, 0)]
    assert group.wakes_at_ms(1_100) is None


def test_gaps_of_transactions_move_the_position() -> None:
    group = PartitionGroup({A: 0})
    group.add(A, fetched([1], 3, following=7))
    assert group.positions() == {A: 3}
    group.take(0, {}, 10)
    assert group.positions() == {A: 7}
    group.add(A, fetched([], 7, following=9))
    assert group.positions() == {A: 9}


def test_large_records_go_a_few_at_a_time() -> None:
    group = PartitionGroup({A: 0})
    group.add(A, fetched([1] * 10, 0))
    size = group.bytes
    assert [records.num_rows for _, records in group.take(0, {}, 100, size // 2)] == [5]
    assert [records.num_rows for _, records in group.take(0, {}, 100, 1)] == [1]
    assert group.records == 4


@pytest.mark.parametrize("most", [1, 5])
def test_partitions_with_many_buffered_records_are_named(most: int) -> None:
    group = PartitionGroup({A: 0, B: 0})
    group.add(A, fetched([1] * most, 0))
    group.add(B, fetched([1] * (most + 1), 0))
    assert list(group.longer_than(most)) == [B]
