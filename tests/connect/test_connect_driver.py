"""The driver of connectors: every step by hand, and a crash at any of them."""

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect.api import SinkConnector, SinkTask
from penstock.connect.data import RetriableError
from penstock.connect.functions import Record, sink, source
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConfigError, ConnectError
from penstock.log.base import TopicPartition

SOURCE_STEPS = [None, Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED]
SINK_STEPS = [None, Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED]


@source("Numbers", topic=str, up_to=20, batch=3)
def numbers(settings, offsets):
    at = (offsets.get({"of": "numbers"}) or {"next": 0})["next"]
    while at < settings.up_to:
        upper = min(at + settings.batch, settings.up_to)
        here = {"of": "numbers"}
        yield [Record(settings.topic, n, key=str(n), partition=here, offset={"next": n + 1}) for n in range(at, upper)]
        yield 0
        at = upper


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(SOURCE_STEPS), max_size=12), st.integers(1, 7), st.integers(1, 4))
def test_a_source_writes_each_record_once_wherever_it_crashes(crashes, batch, partitions):
    config = {"topic": "numbers", "batch": batch, "topic.creation.default.partitions": partitions}
    driver = ConnectTestDriver(numbers, config)
    for crash in crashes:
        driver.poll(crash=crash)
    while driver.poll():
        pass
    assert sorted(record.value for record in driver.read("numbers")) == list(range(20))
    assert driver.offsets() == [({"of": "numbers"}, {"next": 20})]
    for place in range(partitions):  # and each partition's in their order
        values = [record.value for record in driver.read("numbers") if record.partition == place]
        assert values == sorted(values)


class KeptOffsets(SinkTask):
    """Writes records and offsets at once, as a database does in a transaction."""

    java_class = "KeptOffsetsTask"
    rows: ClassVar = []
    offsets: ClassVar = {}

    def open(self, places):
        self.context.offset({place: self.offsets[place] for place in places if place in self.offsets})

    def put(self, records):
        for record in records:
            self.rows.append(record.value)
            self.offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1


class KeptOffsetsSink(SinkConnector):
    java_class, task_class = "KeptOffsetsSink", KeptOffsets

    def task_configs(self, max_tasks):
        return [{}] * max_tasks


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(SINK_STEPS) | st.sampled_from(["two tasks", "one task", "restart"]), max_size=10))
def test_a_sink_that_keeps_offsets_writes_each_record_once_and_others_lose_none(events):
    KeptOffsets.rows, KeptOffsets.offsets = [], {}
    seen = Counter()

    @sink("Seen")
    def plain(settings, batch):
        seen.update(record.value for record in batch)

    for connector, found in ((KeptOffsetsSink, lambda: Counter(KeptOffsets.rows)), (plain, lambda: seen)):
        driver = ConnectTestDriver(connector, {"topics": "in"})
        for number, event in enumerate(events):
            driver.produce("in", 2 * number, 2 * number + 1, partition=number % 2)
            if event == "restart":
                driver.restart()
            elif event in ("two tasks", "one task"):
                driver.rebalance(2 if event == "two tasks" else 1)
            else:
                driver.put(crash=event)
        driver.put_all()
        assert set(found()) == set(range(2 * len(events)))
        if connector is KeptOffsetsSink:
            assert set(found().values()) <= {1}


def test_a_crash_of_a_plain_sink_between_put_and_commit_puts_again():
    batches = []

    @sink("Batches")
    def keep(settings, batch):
        batches.append([record.value for record in batch])

    driver = ConnectTestDriver(keep, {"topics": "in"})
    driver.produce("in", 1, 2)
    driver.put(crash=Step.PUT)
    driver.put()
    driver.put()
    assert batches == [[1, 2], [1, 2]]
    assert driver.group_offsets()[TopicPartition("in", 0)].offset == 2


def test_records_come_again_after_a_retriable_error_and_the_task_fails_of_another():
    tries = []

    @sink("Later")
    def later(settings, batch):
        tries.append(len(batch))
        if len(tries) < 3:
            raise RetriableError("not yet")

    driver = ConnectTestDriver(later, {"topics": "in"})
    driver.produce("in", "a")
    assert [len(driver.put()) for _ in range(3)] == [0, 0, 1]

    @sink("Never")
    def never(settings, batch):
        raise ConnectError("refused")

    driver = ConnectTestDriver(never, {"topics": "in"})
    driver.produce("in", "a")
    with pytest.raises(ConnectError, match="refused"):
        driver.put()
    assert driver.group_offsets() == {}


def test_records_that_a_transformation_drops_do_not_move_the_offset_as_in_kafka_connect():
    config = {
        "topic": "out",
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    }
    driver = ConnectTestDriver(numbers, config)
    driver.poll()
    assert driver.offsets() == []
    assert "out" not in {topic.name for topic in driver.log.topics()}


def test_a_rebalance_touches_no_partition_that_stays():
    closed = []

    class Watched(KeptOffsets):
        java_class = "WatchedTask"
        rows, offsets = [], {}

        def close(self, places):
            closed.extend(places)

    class WatchedSink(KeptOffsetsSink):
        task_class = Watched

    driver = ConnectTestDriver(WatchedSink, {"topics": "in"})
    driver.produce("in", 1, partition=3)
    driver.rebalance(2)
    assert [len(task.assignment) for task in driver.sinks] == [2, 2]
    assert closed == [TopicPartition("in", 2), TopicPartition("in", 3)]


@pytest.mark.parametrize("name", ["FileStreamSource", "org.apache.kafka.connect.file.FileStreamSourceConnector"])
def test_connectors_that_come_with_penstock_are_found_by_their_names(tmp_path, name):
    (tmp_path / "lines.txt").write_text("a\nb\n")
    driver = ConnectTestDriver(name, {"file": str(tmp_path / "lines.txt"), "topic": "t"})
    driver.poll()
    assert [record.value for record in driver.read("t")] == ["a", "b"]
    driver.stop()


def test_a_name_of_no_connector_is_a_clear_error():
    with pytest.raises(ConfigError, match=r"(?s)there is no connector 'Nothing'.*penstock connect list"):
        ConnectTestDriver("Nothing", {"topic": "t"})
