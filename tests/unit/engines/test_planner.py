"""Where batches begin and end, over the embedded log."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from group_offsets import set_offsets
from penstock import Consumed, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.micro_batches.engine import prepare_job
from penstock.engines.micro_batches.planned_batch import PlannedBatch
from penstock.engines.micro_batches.planner import Planner
from penstock.engines.micro_batches.spark_tasks import cut_into_bins
from penstock.engines.offsets.offsets import SourceOffset
from penstock.errors import (
    CheckpointMismatchError,
    FencedError,
    OffsetOutOfRangeError,
    TopologyError,
    UnknownTopicError,
)
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.state.checkpoint import write_document

START = 1_790_000_000_000
A, B = TopicPartition("in", 0), TopicPartition("in", 1)
NOTHING = SourceOffset()


class Source:
    """A log, and planners of an application that reads its topics."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.log = open_log(f"sqlite:///{root / 'log.db'}")
        self.log.create_topic("in", 2, {"retention.ms": "-1"})
        self.now = 0.0
        self.slept: list[float] = []

    def write(self, topic: str, count: int, partition: int = 0, at: int = START) -> None:
        times = pa.array(range(at, at + count), pa.int64())
        values = pa.array([b"v"] * count, pa.large_binary())
        self.log.append(topic, partition, pa.RecordBatch.from_pydict({"timestamp": times, "value": values}))

    def planner(self, topics: Any = "in", consumed: Consumed | None = None, **settings: Any) -> Planner:
        config = StreamsConfig(
            {
                "application.id": "app",
                "bootstrap.servers": self.log.url,
                "state.dir": str(self.root / "state"),
                "default.key.serde": "string",
                "default.value.serde": "string",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        builder = StreamsBuilder()
        builder.stream(topics, consumed or Consumed()).to("out")
        topology = builder.build()
        lease = self.log.acquire_lease("app", "test", 600_000, force=True)
        app = PlannedApp(topology, config, plan_for(topology, config, self.log), self.log)
        self.job = prepare_job(app, lease, parallelism=2, until_latest=False)
        return Planner(self.job, self.log, lambda: self.now, self.slept.append)


@pytest.fixture
def source(tmp_path):
    made = Source(tmp_path)
    yield made
    made.log.close()


def first(planner: Planner, limit: int | None = None) -> SourceOffset:
    found = planner.next_batch(NOTHING, limit)
    assert found is not None
    return found


def test_the_first_batch_notes_where_it_begins(source):
    source.write("in", 5)
    for policy, starts in (("earliest", {A: 0, B: 0}), ("latest", {A: 5, B: 0})):
        batch = first(source.planner(auto_offset_reset=policy))
        assert batch.starts == starts
        assert batch.ends == {A: 5, B: 0}
        assert SourceOffset.of(batch.to_json()) == batch


def test_a_committed_offset_of_the_group_counts_most(source):
    source.write("in", 5)
    set_offsets(source.log, {A: 3})
    assert first(source.planner(auto_offset_reset="latest")).starts == {A: 3, B: 0}


def test_a_committed_offset_that_retention_has_taken_gives_way_to_the_policy(source):
    source.write("in", 5)
    set_offsets(source.log, {A: 1})
    source.log.delete_records("in", 0, 4)
    assert first(source.planner()).starts == {A: 4, B: 0}


def test_by_duration_and_by_timestamp(source):
    import time

    now = int(time.time() * 1000)
    for age_s in (7200, 1800, 60):
        source.write("in", 1, at=now - age_s * 1000)
    assert first(source.planner(auto_offset_reset="by_duration:PT1H")).starts == {A: 1, B: 0}
    assert first(source.planner(penstock_start_timestamp=now - 120_000)).starts == {A: 2, B: 0}
    assert first(source.planner(penstock_start_timestamp=now)).starts == {A: 3, B: 0}


def test_a_source_may_have_a_policy_of_its_own(source):
    source.write("in", 3)
    assert first(source.planner(consumed=Consumed(offset_reset="latest"))).starts == {A: 3, B: 0}
    with pytest.raises(OffsetOutOfRangeError, match="no committed offset for in-0"):
        first(source.planner(consumed=Consumed(offset_reset="none")))
    with pytest.raises(TopologyError, match="offset_reset is 'newest'"):
        Consumed(offset_reset="newest")


def test_policies_reach_topics_of_patterns(source):
    source.write("in", 3)
    planner = source.planner(re.compile("i."), Consumed(offset_reset="latest"))
    assert first(planner).starts == {A: 3, B: 0}


def test_a_topic_of_a_pattern_may_go(source):
    source.log.create_topic("ix", 1)
    source.write("in", 3)
    planner = source.planner(re.compile("i."))
    batch = first(planner)
    assert set(batch.ends) == {A, B, TopicPartition("ix", 0)}
    source.log.delete_topic("ix")
    source.write("in", 1)
    found = planner.next_batch(batch, None)
    assert found is not None
    assert found.ends == {A: 4, B: 0}


def test_nothing_new_is_no_batch(source):
    source.write("in", 3)
    planner = source.planner()
    batch = first(planner)
    assert planner.next_batch(batch, None) is None
    source.write("in", 1)
    following = planner.next_batch(batch, None)
    assert following is not None
    assert (following.ends[A], following.starts) == (4, {})


def test_partitions_that_the_plan_does_not_know_wait_and_then_begin_at_their_beginning(source):
    planner = source.planner(auto_offset_reset="latest")
    batch = first(planner)
    source.log.create_partitions("in", 3)
    source.write("in", 2, partition=2)
    assert planner.next_batch(batch, None) is None
    found = source.planner(auto_offset_reset="latest").next_batch(batch, None)
    assert found is not None
    assert found.starts == {TopicPartition("in", 2): 0}


def test_retention_that_is_faster_ends_the_application(source):
    source.write("in", 10)
    batch = first(source.planner(), 2)
    source.log.delete_records("in", 0, 8)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 2 to 7 of in-0 before they were read") as caught:
        source.planner().next_batch(batch, None)
    assert "penstock.data.loss=continue" in caught.value.hint


def test_or_goes_on_and_says_what_is_lost(source):
    source.write("in", 10)
    batch = first(source.planner(), 2)
    source.log.delete_records("in", 0, 8)
    planner = source.planner(penstock_data_loss="continue")
    found = planner.next_batch(batch, None)
    assert found is not None
    assert (found.starts, found.lost, found.ends[A]) == ({A: 8}, {A: 6}, 10)
    bins = cut_into_bins(source.job, batch, found)
    assert bins[0].lost == {A: 6}
    assert [(r.start, r.end) for each in bins for r in each.ranges] == [(8, 10)]


def make_again(source: Source, count: int) -> None:
    source.log.delete_topic("in")
    source.log.create_topic("in", 2, {"retention.ms": "-1"})
    source.write("in", count, at=START + 10)


def test_a_topic_that_was_deleted(source):
    source.write("in", 10)
    planner = source.planner()
    batch = first(planner)
    source.log.delete_topic("in")
    with pytest.raises(UnknownTopicError, match="deleted while application 'app' reads it"):
        planner.next_batch(batch, None)


@pytest.mark.parametrize("count", [3, 10, 25])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(source, count, is_running):
    source.write("in", 10)
    planner = source.planner()
    batch = first(planner)
    make_again(source, count)
    if not is_running:
        planner = source.planner()
    source.now = 11.0  # at the latest when it is looked at next
    with pytest.raises(OffsetOutOfRangeError, match="in: deleted and made again") as caught:
        planner.next_batch(batch, None)
    assert "penstock.data.loss=continue" in caught.value.hint


@pytest.mark.parametrize("count", [0, 3, 10, 25])
def test_or_it_is_read_from_its_beginning(source, count):
    source.write("in", 10)
    set_offsets(source.log, {A: 10})
    batch = first(source.planner())
    make_again(source, count)
    set_offsets(source.log, {A: 10}, "penstock batch 0")  # Kafka keeps the offsets of deleted topics
    planner = source.planner(penstock_data_loss="continue", auto_offset_reset="latest")
    again = planner.next_batch(batch, None)
    assert again is not None
    assert (again.starts, again.ends) == ({A: 0, B: 0}, {A: count, B: 0})
    assert planner.next_batch(again, None) is None
    source.write("in", 2)
    following = planner.next_batch(again, None)
    assert following is not None
    assert (following.starts, following.ends[A]) == ({}, count + 2)


def test_a_topic_that_is_made_again_during_a_run_to_the_end(source):
    source.write("in", 10)
    batch = first(source.planner())
    planner = source.planner(penstock_data_loss="continue")
    source.write("in", 10)
    planner.stop_at_present_end()
    make_again(source, 3)
    again = planner.next_batch(batch, None)
    assert again is not None
    assert (again.starts, again.ends[A]) == ({A: 0, B: 0}, 3)


def test_a_checkpoint_of_an_earlier_version_takes_on_what_is_there(source):
    source.write("in", 10)
    noted = first(source.planner()).to_json()
    del noted["ids"]
    planner = source.planner()
    adopted = planner.next_batch(SourceOffset.of(noted), None)
    assert adopted is not None
    assert (adopted.ids, adopted.starts) == (source.log.topic_ids(["in"]), {})
    assert planner.next_batch(adopted, None) is None


def test_a_batch_that_was_planned_over_a_topic_that_is_gone(source):
    source.write("in", 10)
    batch = first(source.planner())
    make_again(source, 20)
    with pytest.raises(OffsetOutOfRangeError, match="in: deleted and made again"):
        source.planner().cut(NOTHING, batch)
    (only,) = source.planner(penstock_data_loss="continue").cut(NOTHING, batch)
    assert [(r.topic, r.start, r.end, r.is_gone) for r in only.ranges] == [("in", 0, 10, True)]


def test_a_topic_that_was_cut_off_goes_on_at_its_end(source):
    source.write("in", 10)
    batch = first(source.planner())
    ahead = SourceOffset({A: 25, B: 0}, ids=batch.ids)
    with pytest.raises(OffsetOutOfRangeError, match="ends at offset 10, but was read up to 25: it was truncated"):
        source.planner().next_batch(ahead, None)
    found = source.planner(penstock_data_loss="continue").next_batch(ahead, None)
    assert found is not None
    assert (found.starts, found.ends[A]) == ({A: 10}, 10)


def test_another_log_at_the_same_place(source):
    source.write("in", 10)
    first(source.planner())
    source.log.close()
    for path in source.root.glob("log.db*"):
        path.unlink()
    source.log = open_log(f"sqlite:///{source.root / 'log.db'}")
    source.log.create_topic("in", 2)
    with pytest.raises(CheckpointMismatchError, match="is not the one that the checkpoint"):
        source.planner()
    source.planner(penstock_data_loss="continue")
    source.planner()


def test_pauses_between_batches(source):
    source.write("in", 10)
    planner = source.planner(penstock_batch_pause_ms=5_000)
    batch = first(planner, 4)
    assert planner.next_batch(batch, 4) is None  # it has ended now
    source.now = 4.9
    assert planner.next_batch(batch, 4) is None
    source.now = 5.1
    assert planner.next_batch(batch, 4) is not None


def test_the_pause_is_kept_where_nothing_would_ask_again(source):
    source.write("in", 10)
    planner = source.planner(penstock_batch_pause_ms=5_000)
    planner.stop_at_present_end()
    batch = first(planner, 4)
    assert planner.next_batch(batch, 4) is not None
    assert source.slept == [5.0]


def test_a_batch_may_wait_for_records(source):
    source.write("in", 3)
    planner = source.planner(penstock_min_records_per_batch=10, penstock_max_wait_ms=2_000)
    batch = first(planner)  # notes where reading begins, at once
    source.write("in", 3)
    assert planner.next_batch(batch, None) is None
    source.now = 2.5
    assert planner.next_batch(batch, None) is not None
    source.write("in", 10)
    assert planner.next_batch(batch, None) is not None


def test_batches_that_take_too_long_become_smaller_and_grow_again(source):
    source.write("in", 100_000)
    planner = source.planner(penstock_max_batch_ms=1_000, penstock_max_records_per_batch=40_000)
    sizes = []
    batch = NOTHING
    for seconds in (4.0, 1.0, 0.5, 0.5):
        found = planner.next_batch(batch, 40_000)
        assert found is not None
        sizes.append(found.ends[A] - batch.ends.get(A, 0))
        batch = found
        source.now += seconds
    assert sizes == [40_000, 10_000, 10_000, 15_000]


def test_batches_share_what_they_may_read(source):
    source.write("in", 300, 0)
    source.write("in", 100, 1)
    planner = source.planner()
    batch = NOTHING
    for _ in itertools.count():
        found = planner.next_batch(batch, 200)
        if found is None:
            break
        assert sum(found.ends[tp] - batch.ends.get(tp, 0) for tp in (A, B)) <= 200
        batch = found
    assert batch.ends == {A: 300, B: 100}


def test_a_batch_is_bounded_by_bytes(source):
    values = pa.array([bytes(10_000)] * 100, pa.large_binary())
    times = pa.array(range(START, START + 100), pa.int64())
    for partition in (0, 1):
        source.log.append("in", partition, pa.RecordBatch.from_pydict({"timestamp": times, "value": values}))
    assert sum(first(source.planner(), 1_000_000).ends.values()) == 200
    planner = source.planner(penstock_max_bytes_per_batch=300_000)
    batch, counts = NOTHING, []
    while (following := planner.next_batch(batch, 1_000_000)) is not None:
        counts.append(sum(following.ends.values()) - sum(batch.ends.values()))
        batch = following
    assert sum(counts) == 200
    assert 25 <= max(counts) <= 30
    assert min(counts[:-1]) >= 20


def test_one_record_of_any_size_is_a_batch(source):
    source.log.create_partitions("in", 3)
    for partition in (0, 1, 2):
        values = pa.array([bytes(100_000)] * 2, pa.large_binary())
        source.log.append("in", partition, pa.RecordBatch.from_pydict({"value": values}))
    planner = source.planner(penstock_max_bytes_per_batch=1_000)
    batch, read = NOTHING, []
    while (following := planner.next_batch(batch, 1_000_000)) is not None:
        read.append([tp.partition for tp, end in following.ends.items() if end > batch.ends.get(tp, 0)])
        batch = following
    assert sorted(read) == [[0], [0], [1], [1], [2], [2]]
    assert len({each for (each,) in read[:3]}) > 1  # they take turns


class Asked:
    """A log that counts the questions it is asked, over another one."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.count: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        self.count[name] = self.count.get(name, 0) + 1
        return getattr(self._log, name)


def test_an_idle_planner_only_waits(source):
    source.log.create_partitions("in", 1000)
    planner = source.planner()
    planner._log = asked = Asked(source.log)
    batch = first(planner)
    assert planner.next_batch(batch, None) is None
    asked.count.clear()
    assert planner.next_batch(batch, None) is None
    assert planner.ends() == batch.ends
    assert asked.count == {"wait_for_data": 1}
    source.write("in", 1, partition=999)
    following = planner.next_batch(batch, None)
    assert following is not None
    assert following.ends[TopicPartition("in", 999)] == 1
    source.now += 11  # seconds: what was known is asked for again now and then
    asked.count.clear()
    assert planner.next_batch(following, None) is None
    assert asked.count["end_offsets"] == 1


def test_all_partitions_of_a_join_are_asked_for_at_once(source):
    source.log.create_partitions("in", 8)
    source.log.create_topic("users", 8)
    for partition in range(8):
        source.write("in", 50, partition)
        source.write("users", 50, partition)
    planner = source.planner(["in", "users"])
    planner._log = asked = Asked(source.log)
    batch = first(planner, 400)
    assert sum(batch.ends.values()) == 400
    assert asked.count["stretches"] == 1


def test_the_folder_of_noted_batches_is_listed_once_in_a_batch(source, monkeypatch):
    source.write("in", 5)
    planner = source.planner()
    batch = first(planner)
    write_document(source.job.checkpoint, "spark/offsets/7", "as Spark notes it")
    listed, iterdir = [], Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: listed.append(path.name) or iterdir(path))
    planner.cut(NOTHING, batch)
    assert listed.count("offsets") == 1


def test_what_a_batch_reads_is_in_the_log_before_its_tasks_begin(source):
    source.write("in", 5)
    planner = source.planner()
    batch = first(planner)
    write_document(source.job.checkpoint, "spark/offsets/7", "as Spark notes it")
    planner.cut(NOTHING, batch)
    assert PlannedBatch.unpack(str(source.log.planned("app"))) == PlannedBatch(7, NOTHING, batch)
    source.log.acquire_lease("app", "another", 600_000, force=True)
    with pytest.raises(FencedError):
        planner.cut(NOTHING, batch)
    source.log.clear_ledger("app")
    assert source.log.planned("app") is None


def test_a_run_that_finishes_for_a_conversion_plans_nothing(source: Source) -> None:
    source.write("in", 5)
    assert source.planner().next_batch(NOTHING, None) is not None
    held = Planner(replace(source.job, reads_nothing=True), source.log, lambda: source.now, source.slept.append)
    assert held.next_batch(NOTHING, None) is None
