"""Settings of connectors and converters that no other test sets: each does what its documentation says."""

import json
import time

import pytest

from http_servers import BulkServer, JsonServer, serving
from penstock.connect.connectors.datagen import DatagenSource
from penstock.connect.connectors.http_source import http_poll
from penstock.connect.connectors.objects import ObjectSinkConnector
from penstock.connect.connectors.search_sink import SearchSinkConnector
from penstock.connect.data import INT8, INT32, Struct, struct
from penstock.connect.registry_converters import AvroConverter, JsonSchemaConverter
from penstock.connect.testing import ConnectTestDriver
from penstock.connect.worker.task_restarts import RestartPolicy
from penstock.log import Producer
from penstock.log.open import open_log
from penstock.testing import EmbeddedRegistry


@pytest.fixture(scope="module")
def registry():
    with EmbeddedRegistry("connect-settings") as made:
        yield made


def polled(server, rounds, count=0, **settings):
    driver = ConnectTestDriver(http_poll, {"url": server.url, "topic": "items", "interval.ms": 1, **settings})
    if not any(topic.name == "items" for topic in driver.log.topics()):
        driver.log.create_topic("items")
    for _ in range(rounds):
        driver.poll()
    for _ in range(200):  # a call of a busy machine may end before the last page
        if len(driver.read("items")) >= count:
            break
        driver.poll()
    return [record.value for record in driver.read("items")]


def test_an_http_source_asks_by_the_names_that_its_settings_give():
    def cursors(query, _):
        at = int(query.get("after", 0))
        return 200, {"rows": [at], "meta": {"following": at + 1 if at < 3 else None}}

    settings = {"pagination": "cursor", "cursor.path": "meta.following", "cursor.param": "after", "interval.ms": 60_000}
    with serving(JsonServer(cursors)) as server:
        assert polled(server, 1, 4, **settings, **{"records.path": "rows"}) == [0, 1, 2, 3]

    def pages(query, _):
        return 200, [int(query["p"])] if int(query["p"]) < 3 else []

    with serving(JsonServer(pages)) as server:
        found = polled(
            server, 1, 3, **{"pagination": "page", "page.param": "p", "page.first": 0, "interval.ms": 60_000}
        )
        assert found == [0, 1, 2]

    with serving(JsonServer(lambda *_: (200, [{"id": 1, "n": 7}]))) as server:
        assert len(polled(server, 4, **{"since.path": "n", "since.param": "newer"})) == 1
        assert server.asked[-1] == {"newer": "7"}


def test_an_http_source_waits_no_longer_than_its_timeout():
    def slow(*_):
        time.sleep(1)
        return 200, [1]

    with serving(JsonServer(slow)) as server:
        assert polled(server, 1, **{"timeout.ms": 50, "interval.ms": 60_000}) == []


def test_an_object_is_closed_by_the_time_of_its_records(tmp_path):
    config = {"topics": "hits", "store.url": f"file://{tmp_path}", "format": "json", "rotate.interval.ms": 1000}
    log = open_log("memory://")
    log.create_topic("hits", 1)
    with Producer(log) as producer:
        for at in (0, 999, 1000, 2500, 5000):
            producer.send("hits", b"{}", timestamp=at + 1)
    ConnectTestDriver(ObjectSinkConnector, config, log=log).put()
    assert len([path for path in tmp_path.rglob("hits+*") if path.is_file()]) == 3


def test_a_search_sink_gives_its_password_and_divides_its_requests():
    with serving(BulkServer()) as cluster:
        config = {"topics": "hits", "connection.url": cluster.url, "connection.username": "me"}
        config |= {"connection.password": "secret", "bulk.size.bytes": "200"}
        driver = ConnectTestDriver(SearchSinkConnector, config)
        for number in range(6):
            driver.produce("hits", {"n": number}, key=str(number))
        driver.put()
        assert {authorization for _, authorization, _ in cluster.requests} == {"Basic bWU6c2VjcmV0"}
        assert len(cluster.requests) > 2
        assert all(size <= 200 for _, _, size in cluster.requests)


def test_a_search_sink_waits_no_longer_than_its_timeout():
    with serving(BulkServer()) as cluster:
        cluster.delay_s = 1
        config = {"topics": "hits", "connection.url": cluster.url, "read.timeout.ms": "50"}
        driver = ConnectTestDriver(SearchSinkConnector, config)
        driver.produce("hits", {"n": 1}, key="a")
        assert driver.put() == []


def test_a_search_sink_waits_no_longer_for_a_connection_than_its_timeout():
    config = {"topics": "hits", "connection.url": "http://127.0.0.1:9", "connection.timeout.ms": "50"}
    driver = ConnectTestDriver(SearchSinkConnector, config)
    assert driver.sinks[0].task._client.timeout.connect == 0.05


def test_a_search_sink_waits_no_longer_for_headers_that_trickle_in():
    def trickle(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(100_000):
            connection.sendall(b"x")
            time.sleep(0.01)

    with serving(BulkServer()) as cluster:
        cluster.whole = trickle
        config = {"topics": "hits", "connection.url": cluster.url, "read.timeout.ms": "500"}
        driver = ConnectTestDriver(SearchSinkConnector, config)
        driver.produce("hits", {"n": 1}, key="a")
        assert driver.put() == []


def test_generated_records_go_to_the_topic_and_begin_at_the_time_of_the_settings():
    config = {"quickstart": "clicks", "iterations": 3, "rate": 1e5, "kafka.topic": "own", "start.ms": 5000}
    driver = ConnectTestDriver(DatagenSource, config)
    sent = 0
    while sent < 3:
        sent += len(driver.poll())
    found = driver.read("own")
    assert len(found) == 3
    assert 5000 <= found[0].timestamp < 65_000


def written(registry, made, topic, schema, value):
    data = made.from_connect(topic, schema, value)
    return json.loads(registry.registry.schema(int.from_bytes(data[1:5], "big")).text)


def test_an_avro_schema_has_connects_properties_only_if_they_are_wanted(registry):
    schema = struct({"a": INT8}, name="A")
    for wanted, kind in (("true", {"type": "int", "connect.type": "int8"}), ("false", {"type": "int"})):
        made = AvroConverter()
        made.configure({"schema.registry.url": registry.url, "connect.meta.data": wanted}, "value")
        text = written(registry, made, f"meta-{wanted}", schema, Struct(schema, {"a": 1}))
        found = text["fields"][0]["type"]
        assert found == kind or (wanted == "false" and found == {"type": "int", "connect.type": "int8"})
        assert ("connect.name" in text) == (wanted == "true")


def test_a_json_schema_is_open_or_closed_as_it_is_set(registry):
    schema = struct({"a": INT32}, name="A")
    for wanted in ("true", "false"):
        made = JsonSchemaConverter()
        made.configure({"schema.registry.url": registry.url, "object.additional.properties": wanted}, "value")
        text = written(registry, made, f"open-{wanted}", schema, Struct(schema, {"a": 1}))
        assert text.get("additionalProperties", True) is (wanted == "true")


def test_the_wait_before_a_restart_has_a_limit():
    policy = RestartPolicy.of({"restart.policy": "on-failure", "restart.delay.ms": "10", "restart.delay.max.ms": "25"})
    assert [policy.backoff.pause_s(attempt) for attempt in (1, 2, 3, 9)] == [0.01, 0.02, 0.025, 0.025]


@pytest.mark.parametrize("kind", ["topic", "dead letters", "storage"])
def test_a_number_of_copies_that_is_set_goes_to_the_topics_that_are_created(kind):
    from penstock.connect.delivery.topic_creation import TopicCreation
    from penstock.connect.worker_settings import WorkerConfig

    if kind == "topic":
        given = {"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "3"}
        creation = TopicCreation(open_log("memory://"), given, enabled=True)
        assert creation._settings("t") == (2, {"replication.factor": "3"})
        creation.ensure("t")  # an embedded log has one copy
    elif kind == "storage":
        converter = "org.apache.kafka.connect.json.JsonConverter"
        given = {"group.id": "g", "config.storage.topic": "c", "offset.storage.topic": "o", "status.storage.topic": "s"}
        given |= {"key.converter": converter, "value.converter": converter}
        config = WorkerConfig.of({**given, "offset.storage.replication.factor": "2", "offset.storage.segment.bytes": "9"},
                                 "distributed")  # fmt: skip
        assert config.topic_settings("offset") == {"replication.factor": "2", "segment.bytes": "9"}
        assert config.topic_settings("config") == {}
    else:
        from penstock.connect.mirror.flows import connector_flow

        clusters = {f"{side}.cluster.bootstrap.servers": "x:1" for side in ("source", "target")}
        flow = connector_flow({**clusters, "replication.factor": "3"})
        assert (flow.copies("replication.factor"), flow.copies("heartbeats.topic.replication.factor")) == (
            {"replication.factor": "3"},
            {},
        )


def test_a_worker_listens_and_is_known_by_the_addresses_of_its_settings():
    from penstock.connect.worker_settings import WorkerConfig

    converter = "org.apache.kafka.connect.json.JsonConverter"
    given = {"offset.storage.file.filename": "o", "key.converter": converter, "value.converter": converter}
    config = WorkerConfig.of({**given, "rest.host.name": "127.0.0.1", "rest.port": "8090"}, "standalone")
    assert (config.address, config.worker_id(8090)) == (("127.0.0.1", 8090), "127.0.0.1:8090")
    known = {"rest.advertised.host.name": "connect.example", "rest.advertised.port": "443"}
    assert WorkerConfig.of({**given, **known}, "standalone").worker_id(8083) == "connect.example:443"


def test_a_mirror_leaves_groups_out_and_takes_kafkas_filters_only():
    from penstock.connect.data import SettingError
    from penstock.connect.mirror.flows import connector_flow

    clusters = {f"{side}.cluster.bootstrap.servers": "x:1" for side in ("source", "target")}
    groups = connector_flow({**clusters, "groups": ".*", "groups.exclude": "secret.*"}).groups
    assert [groups.takes(name) for name in ("open", "secret-1")] == [True, False]
    for name in ("group.filter.class", "config.property.filter.class"):
        with pytest.raises(SettingError, match="there is only org"):
            connector_flow({**clusters, name: "com.example.Own"})


@pytest.mark.parametrize(("wanted", "shown"), [("true", True), ("false", False)])
def test_the_log_has_failed_records_only_if_they_are_wanted(tmp_path, caplog, wanted, shown):
    from penstock.connect.connectors.file_stream import FileStreamSinkConnector

    config = {"topics": "in", "file": str(tmp_path / "out"), "errors.tolerance": "all", "errors.log.enable": "true"}
    config |= {"errors.log.include.messages": wanted, "transforms": "c", "transforms.c.spec": "int32"}
    config["transforms.c.type"] = "org.apache.kafka.connect.transforms.Cast$Value"
    driver = ConnectTestDriver(FileStreamSinkConnector, config)
    driver.produce("in", "no number")
    driver.put()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "Error encountered" in text
    assert ("topic='in'" in text) is shown
