"""The working mirror over two logs: copies, cycles, settings, crashes, and groups that go over to the other cluster."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.connect.data import SettingError
from penstock.connect.mirror import Checkpoint, Heartbeat
from penstock.connect.mirror.flows import read_flows
from penstock.connect.mirror.maker import Mirror
from penstock.log.base import TopicPartition
from penstock.log.open import open_log

BASE = {"clusters": "a, b", "a.bootstrap.servers": "-", "b.bootstrap.servers": "-", "a->b.enabled": "true"}
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


@pytest.fixture
def logs():
    return {"a": open_log("memory://"), "b": open_log("memory://")}


def mirror(logs, **more):
    return Mirror(
        {**BASE, **{name.replace("__", "->").replace("_", "."): v for name, v in more.items()}}, lambda c: logs[c.alias]
    )


def write(log, topic, values, partition=0):
    headers = [[{"key": "h", "value": b"x"}]] * len(values)
    columns = {"timestamp": list(range(len(values))), "key": [b"k"] * len(values), "value": values, "headers": headers}
    batch = pa.RecordBatch.from_pydict(columns)
    log.append(topic, partition, batch)


def read(log, topic, partition=0, start=None):
    first = log.beginning_offset(topic, partition) if start is None else start
    return log.read(topic, partition, first, 10**6).records.to_pylist()


def test_topics_partitions_settings_and_records_are_copied_as_they_are(logs):
    config = {"retention.ms": "1000", "min.insync.replicas": "2"}
    logs["a"].create_topic("orders", 2, {"retention.ms": "1000"})
    write(logs["a"], "orders", [b"1", None, b"3"], 1)
    made = mirror(logs)
    assert made.run_once() == 3
    rows = read(logs["b"], "a.orders", 1)
    assert [(r["timestamp"], r["key"], r["value"], r["headers"]) for r in rows] == [
        (r["timestamp"], r["key"], r["value"], r["headers"]) for r in read(logs["a"], "orders", 1)
    ]
    assert logs["b"].topic("a.orders").config["retention.ms"] == config["retention.ms"]
    logs["a"].create_partitions("orders", 3)
    logs["a"].alter_config("orders", {"retention.ms": "2000"})
    write(logs["a"], "orders", [b"4"], 2)
    made.run_once()
    assert logs["b"].topic("a.orders").config["retention.ms"] == "2000"
    assert [row["value"] for row in read(logs["b"], "a.orders", 2)] == [b"4"]


def test_a_new_mirror_goes_on_behind_what_is_copied(logs):
    logs["a"].create_topic("orders")
    for number in range(5):
        write(logs["a"], "orders", [str(number).encode()] * 3)
        assert mirror(logs, emit_heartbeats_enabled="false").run_once() == 3
    assert len(read(logs["b"], "a.orders")) == 15


def test_both_directions_copy_each_others_topics_and_never_their_own_back(logs):
    for name in "ab":
        logs[name].create_topic("orders")
        write(logs[name], "orders", [name.encode()])
    made = mirror(logs, b__a_enabled="true")
    for _ in range(4):
        made.run_once()
    assert [row["value"] for row in read(logs["a"], "b.orders")] == [b"b"]
    assert [row["value"] for row in read(logs["b"], "a.orders")] == [b"a"]
    names = {info.name for log in logs.values() for info in log.topics()}
    assert not {name for name in names if name.startswith(("a.b.", "b.a."))}
    beats = [Heartbeat.read(row["key"], row["value"]) for row in read(logs["a"], "b.heartbeats")]
    assert {(beat.source, beat.target) for beat in beats} == {("a", "b")}


def test_the_identity_policy_keeps_names(logs):
    logs["a"].create_topic("orders")
    write(logs["a"], "orders", [b"1"])
    Mirror({**BASE, **IDENTITY}, lambda cluster: logs[cluster.alias]).run_once()
    assert [row["value"] for row in read(logs["b"], "orders")] == [b"1"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 200),
)
def test_a_group_that_goes_over_misses_no_record(steps, lag):
    """Writes, deletions at the front, a group that reads on and a mirror that starts anew, in any order."""
    logs = {"a": open_log("memory://"), "b": open_log("memory://")}
    log, number, position = logs["a"], 0, 0
    log.create_topic("t")
    made = mirror(logs, offset_lag_max=str(lag), sync_group_offsets_enabled="true")
    for count, skip, anew in steps:
        write(log, "t", [str(each).encode() for each in range(number, number + count)])
        number += count
        log.delete_records("t", 0, min(log.beginning_offset("t", 0) + skip, number))
        made.run_once()
        position = max(position, (number * 2) // 3)
        log.commit_offsets("app", {TopicPartition("t", 0): position})
        if anew:
            made = mirror(logs, offset_lag_max=str(lag), sync_group_offsets_enabled="true")
        made.run_once()
    unread = [row["value"] for row in read(log, "t", start=max(position, log.beginning_offset("t", 0)))]
    there = logs["b"].committed_offsets("app").get(TopicPartition("a.t", 0))
    again = [row["value"] for row in read(logs["b"], "a.t", start=there)]
    assert again[len(again) - len(unread) :] == unread
    copies = [row["value"] for row in read(logs["b"], "a.t")]
    assert len(copies) == len(set(copies))


def test_checkpoints_say_where_a_group_goes_on_and_members_over_there_keep_their_offsets(logs):
    logs["a"].create_topic("t")
    write(logs["a"], "t", [b"x"] * 10)
    logs["a"].commit_offsets("app", {TopicPartition("t", 0): 9}, "note")
    logs["a"].commit_offsets("console-consumer-1", {TopicPartition("t", 0): 9})
    mirror(logs).run_once()
    marks = [Checkpoint.read(row["key"], row["value"]) for row in read(logs["b"], "a.checkpoints.internal")]
    assert marks == [Checkpoint("app", TopicPartition("a.t", 0), 9, 9, "note")]
    assert logs["b"].committed_offsets("app") == {}
    logs["b"].commit_offsets("app", {TopicPartition("a.t", 0): 10})
    mirror(logs, sync_group_offsets_enabled="true").run_once()
    assert logs["b"].committed_offsets("app") == {TopicPartition("a.t", 0): 10}


def copied_groups(log):
    return {Checkpoint.read(row["key"], row["value"]).group for row in read(log, "a.checkpoints.internal")}


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_new_topics_and_groups_are_looked_for_after_the_start_only_if_that_is_enabled(logs, enabled):
    made = mirror(logs, refresh_topics_enabled=enabled, refresh_groups_enabled=enabled)
    for number in range(3):
        logs["a"].create_topic(f"t{number}")
        write(logs["a"], f"t{number}", [b"x"])
        logs["a"].commit_offsets(f"g{number}", {TopicPartition("t0", 0): 1})
        made.run_once()
    seen = range(3) if enabled == "true" else range(1)
    names = {info.name for info in logs["b"].topics()}
    assert {f"a.t{number}" for number in seen} == {name for name in names if name.startswith("a.t")}
    assert copied_groups(logs["b"]) == {f"g{number}" for number in seen}


def test_offsets_of_groups_are_committed_at_their_own_interval(logs):
    logs["a"].create_topic("t")
    write(logs["a"], "t", [b"x"])
    logs["a"].commit_offsets("app", {TopicPartition("t", 0): 1})
    far = {"emit_checkpoints_interval_seconds": "3600", "refresh_groups_interval_seconds": "0"}
    wanted = {"sync_group_offsets_enabled": "true", "sync_group_offsets_interval_seconds": "0"}
    made = mirror(logs, **far, **wanted)
    [flow] = [each for each in made.flows if each.source is not None]
    flow.round(everything=True)
    logs["b"].commit_offsets("app", {TopicPartition("a.t", 0): 0})  # someone takes the group back
    flow.round(everything=False)
    assert logs["b"].committed_offsets("app") == {TopicPartition("a.t", 0): 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clusters": "a"}, "fewer than two"),
        ({"b.bootstrap.servers": ""}, r"b\.bootstrap\.servers is missing"),
        ({"a->c.enabled": "true"}, "clusters has no 'c'"),
        ({"a->b.topics": "("}, "Invalid value"),
        ({"offset.lag.max": "x"}, "Not a number of type LONG"),
        ({"replication.policy.class": "Other"}, "there is no such policy"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(SettingError, match=message):
        read_flows({**BASE, **change})


def test_the_command_copies_between_two_files(tmp_path):
    with open_log(str(tmp_path / "a.db")) as log:
        log.create_topic("orders")
        write(log, "orders", [b"1", b"2"])
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters=a,b\na.bootstrap.servers={tmp_path}/a.db\nb.bootstrap.servers={tmp_path}/b.db\na->b.enabled=true\n"
    )
    done = CliRunner().invoke(app, ["mirror", str(file), "--once"])
    assert done.exit_code == 0, done.output
    with open_log(str(tmp_path / "b.db")) as log:
        assert [row["value"] for row in read(log, "a.orders")] == [b"1", b"2"]
    file.write_text("clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\n")
    assert CliRunner().invoke(app, ["mirror", str(tmp_path / "none")]).exit_code == 1
