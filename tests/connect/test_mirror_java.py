"""Java's MirrorMaker and ours on the same clusters: each takes up where the other stopped, and reads its topics."""

import contextlib
import subprocess

import pytest

from brokers import running_broker
from connect_group import eventually
from penstock.base.jars import java_command, kafka_java_options
from penstock.connect.mirror import Checkpoint, Heartbeat, OffsetSync
from penstock.connect.mirror.maker import Mirror
from penstock.log import Producer, TopicPartition, open_log
from penstock.tools.broker.java_worker import worker_jars
from penstock.tools.broker.process import guard

pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
PATIENCE_S = 240


@contextlib.contextmanager
def java_mirror(properties, folder):
    """Java's driver of these flows, until the end of the block."""
    file = folder / "mm2.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    java = [java_command(), "-Xmx512m", *kafka_java_options()]
    command = [*java, "-cp", f"{worker_jars()}/*", MAIN, str(file), "--clusters", "y"]
    with (folder / "java.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    watcher = guard(process.pid)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            watcher.kill()
            watcher.communicate()


def produce(log, topic, numbers):
    with Producer(log) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, key=b"%d" % number, partition=0)


def rows(log, topic):
    if topic not in {info.name for info in log.topics()}:
        return []
    place = TopicPartition(topic, 0)
    first, end = log.beginning_offset(topic, 0), log.settled_ends([place])[place]
    return [row for batch in log.read_range(topic, 0, first, end) for row in batch.to_pylist()]


def values(log, topic):
    return [int(row["value"]) for row in rows(log, topic)]


def test_java_and_penstock_take_turns_and_read_each_others_topics(tmp_path):
    with running_broker(tmp_path / "kafka") as broker, open_log(broker.settings.bootstrap_servers) as log:
        servers = broker.settings.bootstrap_servers
        log.create_topic("rounds")
        produce(log, "rounds", range(50))
        log.commit_offsets("reader", {TopicPartition("rounds", 0): 30})
        properties = {
            "clusters": "x,y", "x.bootstrap.servers": servers, "y.bootstrap.servers": servers,
            "x->y.enabled": "true", "x->y.topics": "rounds", "x->y.groups": "reader", "y->x.enabled": "false",
            "replication.factor": "1", "checkpoints.topic.replication.factor": "1", "tasks.max": "1",
            "heartbeats.topic.replication.factor": "1", "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1", "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1", "sync.group.offsets.enabled": "true", "offset.lag.max": "5",
            "emit.checkpoints.interval.seconds": "1", "emit.heartbeats.interval.seconds": "1",
            "sync.group.offsets.interval.seconds": "1", "refresh.topics.interval.seconds": "5",
            "refresh.groups.interval.seconds": "5", "offset.flush.interval.ms": "1000",
            "heartbeats.replication.enabled": "false", "dedicated.mode.enable.internal.rest": "false",
        }  # fmt: skip
        with java_mirror(properties, tmp_path):
            eventually(lambda: values(log, "x.rounds") == list(range(50)), PATIENCE_S, "Java has copied")
            eventually(lambda: rows(log, "x.checkpoints.internal"), PATIENCE_S, "Java has written a checkpoint")
            eventually(lambda: rows(log, "heartbeats"), PATIENCE_S, "Java has written a heartbeat")
        marks = [Checkpoint.read(row["key"], row["value"]) for row in rows(log, "x.checkpoints.internal")]
        assert {(mark.group, mark.tp) for mark in marks} == {("reader", TopicPartition("x.rounds", 0))}
        assert all(0 < mark.downstream <= 30 for mark in marks)
        beats = [Heartbeat.read(row["key"], row["value"]) for row in rows(log, "heartbeats")]
        assert ("x", "y") in {(beat.source, beat.target) for beat in beats}
        syncs = [OffsetSync.read(row["key"], row["value"]) for row in rows(log, "mm2-offset-syncs.y.internal")]
        assert {sync.tp for sync in syncs} == {TopicPartition("rounds", 0)}

        produce(log, "rounds", range(50, 70))
        log.commit_offsets("reader", {TopicPartition("rounds", 0): 65})
        with Mirror(properties) as mirror:
            assert mirror.run_once() == 20
        assert values(log, "x.rounds") == list(range(70))
        last = Checkpoint.read(*(rows(log, "x.checkpoints.internal")[-1][name] for name in ("key", "value")))
        assert (last.upstream, last.tp) == (65, TopicPartition("x.rounds", 0))
        written = len(rows(log, "x.checkpoints.internal"))

        produce(log, "rounds", range(70, 80))
        with java_mirror(properties, tmp_path):
            eventually(lambda: len(values(log, "x.rounds")) >= 80, PATIENCE_S, "Java goes on")
            log.commit_offsets("reader", {TopicPartition("rounds", 0): 80})
            eventually(
                lambda: len(rows(log, "x.checkpoints.internal")) > written, PATIENCE_S, "Java translates the group"
            )
        assert values(log, "x.rounds") == list(range(80))
        assert log.committed_offsets("reader")[TopicPartition("x.rounds", 0)] >= last.downstream
