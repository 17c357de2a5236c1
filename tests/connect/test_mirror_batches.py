"""The mirror over a real broker: record batches as they are stored, access control lists, an embedded log on one side."""

import contextlib
import gc
import json

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ClientProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from brokers import running_broker
from eventually import eventually
from penstock.connect.connectors.mirror import MirrorSourceConnector
from penstock.connect.mirror.maker import Mirror
from penstock.connect.mirror.mirror_records import OffsetSync
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.log import open_log
from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.batch_format import CODEC, HEADER
from penstock.log.kafka.wire.batch_reader import BatchHead

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("kafka"), acls=True) as broker:
        yield broker.settings.bootstrap_servers


def properties(a, b, topics, **more):
    return {
        "clusters": "a,b", "a.bootstrap.servers": a, "b.bootstrap.servers": b, "a->b.enabled": "true",
        "a->b.topics": topics,
        "heartbeats.replication.enabled": "false", **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip


def produce(servers, topic, numbers, codec="none", transaction="", *, abort=False):
    settings = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 50}
    producer = ClientProducer({**settings, "transactional.id": transaction} if transaction else settings)
    if transaction:
        producer.init_transactions()
        producer.begin_transaction()
    for number in numbers:
        value = None if number % 10 == 9 else b"v%d" % number * 30
        headers = [("n", b"%d" % number), ("none", None)]
        producer.produce(topic, value, b"k%d" % number, 0, timestamp=1_700_000_000_000 + number, headers=headers)
    producer.flush()
    if transaction:
        producer.abort_transaction() if abort else producer.commit_transaction()


def settled_end(log, topic):
    """The end behind all that was committed: a commit may return before the partition shows it."""
    place = TopicPartition(topic, 0)
    return log.settled_ends([place])[place]


def rows(log, topic):
    first, end = log.beginning_offset(topic, 0), settled_end(log, topic)
    found = [row for batch in log.read_range(topic, 0, first, end) for row in batch.to_pylist()]
    return [{name: row[name] for name in ("timestamp", "key", "value", "headers")} for row in found]


def batches(log, topic):
    """The codec, the number of records and the records' bytes of each batch that the broker has stored."""
    found, at, end = [], log.beginning_offset(topic, 0), settled_end(log, topic)
    while at < end:
        stored = log.stored({TopicPartition(topic, 0): at}, 1 << 20)[TopicPartition(topic, 0)]
        for batch in stored.batches:
            head = BatchHead._make(HEADER.unpack_from(batch.data))
            found.append((head.attributes & CODEC, head.records, batch.data[HEADER.size :]))
        at = stored.next_offset
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_copied_with_their_compression_headers_and_times(servers, codec):
    with open_log(servers) as log:
        log.create_topic(f"plain-{codec}")
        for part in range(3):
            produce(servers, f"plain-{codec}", range(part * 500, part * 500 + 500), codec)
        with Mirror(properties(servers, servers, f"plain-{codec}")) as mirror:
            assert mirror.run_once() == 1500
            assert mirror.run_once() == 0
        assert rows(log, f"a.plain-{codec}") == rows(log, f"plain-{codec}")
        copied = batches(log, f"a.plain-{codec}")
        assert copied == batches(log, f"plain-{codec}")
        assert {each for each, _, _ in copied} == {CODECS[codec]}


def test_aborted_records_are_left_out_and_deleted_ones_passed_over(servers):
    with open_log(servers) as log:
        log.create_topic("mixed")
        produce(servers, "mixed", range(100))
        produce(servers, "mixed", range(100, 200), transaction="t1", abort=True)
        produce(servers, "mixed", range(200, 300), transaction="t1")
        log.delete_records("mixed", 0, 30)
        with Mirror(properties(servers, servers, "mixed")) as mirror:
            assert mirror.run_once() == 170
            produce(servers, "mixed", range(300, 310))
            assert mirror.run_once() == 10
        assert rows(log, "a.mixed") == rows(log, "mixed")


def test_batches_that_the_target_refuses_as_too_large_are_cut(servers):
    with open_log(servers) as log:
        log.create_topic("large")
        log.create_topic("a.large", 1, {"max.message.bytes": "20000"})
        produce(servers, "large", range(2000))
        with Mirror(properties(servers, servers, "large", sync_topic_configs_enabled="false")) as mirror:
            assert mirror.run_once() == 2000
        assert rows(log, "a.large") == rows(log, "large")


BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def connector(servers, name, topic, **more):
    return {
        "name": name, "source.cluster.alias": "w", "target.cluster.alias": "e", "topics": topic,
        "source.cluster.bootstrap.servers": servers, "target.cluster.bootstrap.servers": servers,
        "heartbeats.replication.enabled": "false",
        **{f"{role}.converter": BYTES for role in ("key", "value", "header")}, **more,
    }  # fmt: skip


@pytest.mark.parametrize("crash", [None, Step.WRITTEN, pytest.param(Step.COMMITTED, marks=pytest.mark.whole)])
def test_a_task_copies_batches_as_they_are_stored_and_once_whenever_it_crashes(servers, crash):
    topic = f"task-{'none' if crash is None else crash.name.lower()}"
    with open_log(servers) as log:
        log.create_topic(topic)
        for part in range(3):
            produce(servers, topic, range(part * 500, part * 500 + 500), "lz4")
        produce(servers, topic, range(1500, 1600), transaction=topic, abort=True)
        driver = ConnectTestDriver(MirrorSourceConnector, connector(servers, topic, topic), log=log)
        polled = list(driver.poll(crash=crash))
        while crash is None and len(polled) < 1500:
            polled += eventually(driver.poll)
        assert crash is not None or (len(polled), polled[1].key, polled[-1].source_offset) == (
            1500,
            b"k1",
            {"offset": 1499},
        )
        driver.poll()
        produce(servers, topic, range(1600, 1700))
        all_of_it = [({"cluster": "w", "partition": 0, "topic": topic}, {"offset": 1700})]
        eventually(lambda: not driver.poll() and driver.offsets() == all_of_it)  # a transaction may end later
        driver.stop()
        assert rows(log, f"w.{topic}") == rows(log, topic)
        copied = batches(log, f"w.{topic}")
        assert copied == batches(log, topic)
        codecs = [codec for codec, _, _ in copied]  # a busy producer may make two batches of what came together
        assert set(codecs) == {CODECS["lz4"], 0}
        assert codecs == sorted(codecs, reverse=True)
        syncs = [OffsetSync.read(row["key"], row["value"]) for row in rows(log, "mm2-offset-syncs.e.internal")]
        known = [(each.upstream, each.downstream) for each in syncs if each.tp.topic == topic]
        assert (1700, settled_end(log, f"w.{topic}") - 2) in known
    gc.collect()  # the sockets of the task that has died


@pytest.mark.whole
def test_a_task_with_a_transformation_copies_records(servers):
    place = "org.apache.kafka.connect.transforms.RegexRouter"
    route = {
        "transforms": "r",
        "transforms.r.type": place,
        "transforms.r.regex": "w.(.*)",
        "transforms.r.replacement": "x.$1",
    }
    with open_log(servers) as log:
        log.create_topic("routed")
        produce(servers, "routed", range(50))
        driver = ConnectTestDriver(MirrorSourceConnector, connector(servers, "routed", "routed", **route), log=log)
        driver.poll()
        driver.stop()
        assert rows(log, "x.routed") == rows(log, "routed")


def test_batches_of_a_task_that_the_target_refuses_as_too_large_are_cut(servers):
    with open_log(servers) as log:
        log.create_topic("wide")
        log.create_topic("w.wide", 1, {"max.message.bytes": "20000"})
        produce(servers, "wide", range(2000))
        config = connector(servers, "wide", "wide", **{"sync.topic.configs.enabled": "false"})
        driver = ConnectTestDriver(MirrorSourceConnector, config, log=log)
        driver.poll()
        driver.stop()
        assert rows(log, "w.wide") == rows(log, "wide")


@pytest.mark.parametrize("kafka", ["source", "target"])
def test_an_embedded_log_is_mirrored_to_kafka_and_kafka_to_it(servers, tmp_path, kafka):
    path, topic = str(tmp_path / "laptop.db"), f"laptop-{kafka}"
    with open_log(servers) as broker, open_log(path) as file:
        source, target = (broker, file) if kafka == "source" else (file, broker)
        source.create_topic(topic, 1, {"retention.ms": "86400000"})
        values = [b"1", None, b"3"]
        headers = [[{"key": "h", "value": b"x"}], None, [{"key": "h", "value": None}]]
        now = 1_900_000_000_000 if kafka == "source" else 1_700_000_000_000
        columns = {"timestamp": [now] * 3, "key": [b"k"] * 3, "value": values, "headers": headers}
        if kafka == "source":
            columns["timestamp"] = [1_700_000_000_000] * 3
        source.append(topic, 0, pa.RecordBatch.from_pydict(columns))
        source.commit_offsets(f"app-{kafka}", {TopicPartition(topic, 0): 2})
        given = (servers, path) if kafka == "source" else (path, servers)
        with Mirror(properties(*given, topic, sync_group_offsets_enabled="true")) as mirror:
            assert mirror.run_once() >= 3
        with Mirror(properties(*given, topic, sync_group_offsets_enabled="true")) as again:
            again.run_once()
        assert rows(target, f"a.{topic}") == rows(source, topic)
        assert target.topic(f"a.{topic}").config["retention.ms"] == "86400000"
        # The group goes on with the third record or before it. Its offset is not always 2: a transaction that was
        # repeated leaves a marker in front.
        resumed = target.committed_offsets(f"app-{kafka}")[TopicPartition(f"a.{topic}", 0)]
        assert resumed > 0
        assert target.read(f"a.{topic}", 0, resumed).records["value"].to_pylist()[-1] == b"3"


def acl(topic, user, operation, permission="ALLOW"):
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*",
        AclOperation[operation], AclPermissionType[permission],
    )  # fmt: skip


def test_rights_to_topics_are_copied_but_nobody_else_may_write(servers):
    admin = AdminClient({"bootstrap.servers": servers})
    given = [
        acl("secret", "ann", "READ"), acl("secret", "bob", "ALL"), acl("secret", "cy", "WRITE"),
        acl("secret", "dan", "WRITE", "DENY"), acl("other", "eve", "READ"),
    ]  # fmt: skip
    for future in admin.create_acls(given).values():
        future.result(60)
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )  # the controller has them; the broker shows them a moment later
    eventually(lambda: {*map(str, given)} <= {str(each) for each in admin.describe_acls(every).result(60)})
    with open_log(servers) as log:
        log.create_topic("secret")
        with Mirror(properties(servers, servers, "secret")) as mirror:
            mirror.run_once()
            mirror.run_once()
        wanted = {("ann", "READ", "ALLOW"), ("bob", "READ", "ALLOW"), ("dan", "WRITE", "DENY")}

        def copied():
            found = [each for each in log.topic_acls() if each.topic == "a.secret"]
            return {(each.principal.removeprefix("User:"), each.operation, each.permission) for each in found}

        eventually(lambda: copied() == wanted, facts=copied)
        assert not [each for each in log.topic_acls() if each.topic == "a.other"]
        any_of = AclBindingFilter(
            ResourceType.TOPIC, "a.secret", ResourcePatternType.LITERAL, None, None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        for future in admin.delete_acls([any_of]).values():
            future.result(60)
        eventually(lambda: not copied(), facts=copied)
        with Mirror(properties(servers, servers, "secret", sync_topic_acls_enabled="false")) as mirror:
            mirror.run_once()
        assert not copied()


def test_rights_that_come_later_are_copied_by_a_connector_at_its_interval(servers):
    clusters = {f"{side}.cluster.bootstrap.servers": servers for side in ("source", "target")}
    aliases = {"source.cluster.alias": "a", "target.cluster.alias": "b"}
    settings = {**clusters, **aliases, "topics": "later", "sync.topic.acls.interval.seconds": "0"}
    admin = AdminClient({"bootstrap.servers": servers})
    with open_log(servers) as log:
        log.create_topic("later")
        connector = MirrorSourceConnector()
        connector.start(settings)
        try:
            for number in range(3):
                for future in admin.create_acls([acl("later", f"ann{number}", "READ")]).values():
                    future.result(60)
                wanted = f"User:ann{number}"
                eventually(lambda wanted=wanted: ("a.later", wanted) in rights(log))
        finally:
            connector.stop()


def rights(log):
    return {(each.topic, each.principal) for each in log.topic_acls()}


def test_two_mirrors_of_one_flow_write_each_record_once(servers):
    with open_log(servers) as log, contextlib.ExitStack() as stack:
        log.create_topic("shared")
        first, second = (stack.enter_context(Mirror(properties(servers, servers, "shared"))) for _ in range(2))
        produce(servers, "shared", range(100))
        first.run_once()
        second.run_once()
        produce(servers, "shared", range(100, 200))
        second.run_once()
        assert first.run_once() == 100  # it finds them written
        produce(servers, "shared", range(200, 250))
        second.run_once()
        produce(servers, "shared", range(250, 300))
        with pytest.raises(Exception, match="another mirror copies shared of a->b too"):
            first.run_once()
        assert [json.loads(row["key"][1:]) for row in rows(log, "a.shared")] == list(range(250))
