"""The mirror's connectors: what they copy and write, how they divide the work, what they refuse."""

from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest

from eventually import eventually
from penstock.connect.connectors.mirror import (
    MirrorCheckpointConnector,
    MirrorHeartbeatConnector,
    MirrorSourceConnector,
)
from penstock.connect.data import RetriableError, SettingError
from penstock.connect.mirror import Checkpoint, Heartbeat
from penstock.connect.mirror.maker import Mirror
from penstock.connect.mirror.replication import MirrorReader
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError, LogUnavailableError
from penstock.log import TopicPartition, open_log

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONVERTERS = {f"{role}.converter": BYTES for role in ("key", "value", "header")}


@pytest.fixture
def config(tmp_path):
    clusters = {"source": "west", "target": "east"}
    aliases = {f"{side}.cluster.alias": alias for side, alias in clusters.items()}
    servers = {f"{side}.cluster.bootstrap.servers": str(tmp_path / f"{alias}.db") for side, alias in clusters.items()}
    return {**aliases, **servers, **CONVERTERS}


@pytest.fixture
def west(config):
    with open_log(config["source.cluster.bootstrap.servers"]) as log:
        log.create_topic("orders", 2, {"retention.ms": "1000"})
        for number in range(2):
            headers = [[{"key": "h", "value": b"\x00x"}], None, None]
            columns = {"timestamp": [1, 2, 3], "key": [b"k", None, b"k"], "value": [b"\xff", b"2", None]}
            log.append("orders", number, pa.RecordBatch.from_pydict({**columns, "headers": headers}))
        yield log


@pytest.fixture
def east(config):
    with open_log(config["target.cluster.bootstrap.servers"]) as log:
        yield log


def rows(log, topic, partition=0):
    return log.read(topic, partition, 0).records.to_pylist()


@pytest.mark.parametrize("crash", [None, Step.POLLED, Step.WRITTEN, Step.COMMITTED])
def test_records_are_copied_once_as_they_are_whenever_the_task_crashes(config, west, east, crash):
    driver = ConnectTestDriver(MirrorSourceConnector, {**config, "topics": "orders"}, log=east)
    driver.poll(crash=crash)
    driver.poll()
    driver.stop()
    assert east.topic("west.orders").config == {"retention.ms": "1000"}
    for number in range(2):
        copied, given = rows(east, "west.orders", number), rows(west, "orders", number)
        assert [{**row, "headers": row["headers"] or None} for row in copied] == given


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_source_that_is_away_for_one_of_its_partitions_loses_no_records(config, west, east, monkeypatch, fails_at):
    west.create_partitions("orders", 3)
    west.append("orders", 2, pa.RecordBatch.from_pydict({"value": [b"7", b"8"]}))
    read, turns = MirrorReader.read, iter(range(1, 100))

    def away_once(self, *given):
        if next(turns) == fails_at:
            raise LogUnavailableError("no broker answers")
        return read(self, *given)

    monkeypatch.setattr(MirrorReader, "read", away_once)
    router = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    router |= {"transforms.r.regex": "(.*)", "transforms.r.replacement": "$1"}  # so records are not copied as they are
    driver = ConnectTestDriver(MirrorSourceConnector, {**config, **router, "topics": "orders"}, log=east)
    found = 0
    for _ in range(4):
        with suppress(RetriableError):
            found += len(driver.poll())
    driver.stop()
    assert found == 8
    assert [len(rows(east, "west.orders", number)) for number in range(3)] == [3, 3, 2]


def test_partitions_are_dealt_out_to_the_tasks(config, west, east):
    west.create_topic("clicks")
    connector = MirrorSourceConnector()
    connector.start(config)
    try:
        assigned = [each["task.assigned.partitions"] for each in connector.task_configs(2)]
        assert sorted(",".join(assigned).split(",")) == ["clicks-0", "orders-0", "orders-1"]
        assert [each["task.index"] for each in connector.task_configs(9)] == ["0", "1", "2"]
    finally:
        connector.stop()
    connector.start({**config, "topics": "none"})
    assert connector.task_configs(2) == []
    connector.stop()


class Asked:
    """The context of a connector outside a worker: it counts the wishes for new configs of tasks."""

    def __init__(self):
        self.times = 0

    def request_task_reconfiguration(self):
        self.times += 1


@contextmanager
def looking(connector, config, what, *, enabled):
    """A connector that looks at the source all the time, or only when it starts."""
    connector.context = Asked()
    connector.start({**config, f"refresh.{what}.enabled": enabled, f"refresh.{what}.interval.seconds": "0"})
    try:
        yield connector
    finally:
        connector.stop()


def assigned(connector, name):
    return {each for config in connector.task_configs(1) for each in config[name].split(",")}


def test_new_topics_are_found_while_a_connector_runs_only_if_that_is_enabled(config, west, east):
    name = "task.assigned.partitions"
    settings = {**config, "topics": ".*"}
    with (
        looking(MirrorSourceConnector(), settings, "topics", enabled="false") as still,
        looking(MirrorSourceConnector(), settings, "topics", enabled="true") as looks,
    ):
        assert assigned(still, name) == assigned(looks, name) == {"orders-0", "orders-1"}
        for number in range(3):  # if both looked, the first would have found the first topic by the third
            west.create_topic(f"more{number}")
            eventually(lambda number=number: f"more{number}-0" in assigned(looks, name))
        assert assigned(still, name) == {"orders-0", "orders-1"}
        eventually(lambda: looks.context.times >= 1)
        assert still.context.times == 0


def test_new_groups_are_found_while_a_connector_runs_only_if_that_is_enabled(config, west, east):
    name = "task.assigned.groups"
    west.commit_offsets("first", {TopicPartition("orders", 0): 1})
    with (
        looking(MirrorCheckpointConnector(), config, "groups", enabled="false") as still,
        looking(MirrorCheckpointConnector(), config, "groups", enabled="true") as looks,
    ):
        assert assigned(still, name) == assigned(looks, name) == {"first"}
        for number in range(3):
            west.commit_offsets(f"more{number}", {TopicPartition("orders", 0): 1})
            eventually(lambda number=number: f"more{number}" in assigned(looks, name))
        assert assigned(still, name) == {"first"}
        assert still.context.times == 0


def test_checkpoints_are_those_of_groups_that_read_mirrored_topics(config, west, east):
    logs = {"west": west, "east": east}
    clusters = {"clusters": "west, east", "west.bootstrap.servers": "-", "east.bootstrap.servers": "-"}
    flow = {"west->east.enabled": "true", "emit.checkpoints.enabled": "false"}
    Mirror({**clusters, **flow}, lambda cluster: logs[cluster.alias]).run_once()
    for group, topic in (("app", "orders"), ("other", "clicks"), ("console-consumer-1", "orders")):
        west.commit_offsets(group, {TopicPartition(topic, 0): 3})
    often = {"emit.checkpoints.interval.seconds": 0, "sync.group.offsets.interval.seconds": 0}
    settings = {**config, **often, "name": "cp", "topics": "orders", "sync.group.offsets.enabled": "true"}
    driver = ConnectTestDriver(MirrorCheckpointConnector, settings, log=east)
    assert [each["task.assigned.groups"] for each in driver.connector.task_configs(3)] == ["app"]
    driver.poll()
    assert driver.poll() == []  # nothing has moved; what was found before is committed
    driver.stop()
    [row] = rows(east, "west.checkpoints.internal")
    mark = Checkpoint.read(row["key"], row["value"])
    assert mark == Checkpoint("app", TopicPartition("west.orders", 0), 3, 3)
    assert east.committed_offsets("app") == {mark.tp: 3}


def test_a_heartbeat_comes_after_each_interval_and_none_where_they_are_off(config, east):
    driver = ConnectTestDriver(MirrorHeartbeatConnector, {**config, "emit.heartbeats.interval.seconds": 0}, log=east)
    [record] = driver.poll()
    driver.stop()
    [row] = rows(east, "heartbeats")
    beat = Heartbeat.read(row["key"], row["value"])
    assert (beat.source, beat.target, beat.timestamp) == ("west", "east", row["timestamp"])
    assert record.source_partition == {"sourceClusterAlias": "west", "targetClusterAlias": "east"}
    later = ConnectTestDriver(MirrorHeartbeatConnector, {**config, "emit.heartbeats.interval.seconds": 60}, log=east)
    assert later.poll() == []
    later.stop()
    connector = MirrorHeartbeatConnector()
    connector.start({**config, "emit.heartbeats.enabled": "false"})
    assert connector.task_configs(1) == []
    connector.stop()


@pytest.mark.parametrize(
    ("connector", "partition", "offset", "message"),
    [
        (MirrorSourceConnector, {"topic": "t", "partition": 0}, {"offset": 1}, "missing the 'cluster' key"),
        (MirrorSourceConnector, {"cluster": "w", "topic": 1, "partition": 0}, {"offset": 1}, "must be a string"),
        (MirrorSourceConnector, {"cluster": "w", "topic": "t", "partition": -1}, {"offset": 1}, "a whole number"),
        (MirrorSourceConnector, {"cluster": "w", "topic": "t", "partition": 0}, {"at": 1}, "missing the 'offset' key"),
        (MirrorSourceConnector, {"cluster": "w", "topic": "t", "partition": 0}, {"offset": True}, "a whole number"),
        (MirrorCheckpointConnector, {"group": "g", "topic": "t", "partition": 0}, {"offset": 1}, "must be 0"),
        (MirrorHeartbeatConnector, {"sourceClusterAlias": "w"}, {"offset": 0}, "targetClusterAlias"),
    ],
)
def test_offsets_of_another_form_are_refused_and_can_be_deleted(connector, partition, offset, message):
    with pytest.raises(ConnectError, match=message):
        connector().alter_offsets({}, [(partition, offset)])
    assert connector().alter_offsets({}, [(partition, None)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topic.filter.class": "my.Filter"}, "there is only org"),
        ({"offset.lag.max": "-1"}, "at least 0"),
        ({"source.cluster.bootstrap.servers": ""}, r"source\.cluster\.bootstrap\.servers is missing"),
        ({"topics": "("}, "Invalid value"),
    ],
)
def test_wrong_settings_end_the_start_of_a_connector(config, change, message):
    with pytest.raises(SettingError, match=message):
        MirrorSourceConnector().start({**config, **change})


def test_settings_of_offset_syncs_need_offset_syncs(config):
    without = {**config, "emit.offset-syncs.enabled": "false"}
    name = "emit.offset-syncs.enabled"
    assert MirrorSourceConnector().validate(without)[name].errors == []
    [error] = MirrorSourceConnector().validate({**without, "offset-syncs.topic.location": "target"})[name].errors
    assert "can't setup offset-syncs" in error
    assert MirrorCheckpointConnector().validate({**without, "enabled": "false"}).get(name) is None
