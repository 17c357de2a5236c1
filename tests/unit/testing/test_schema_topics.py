"""Topologies over topics with schemas, in the test driver."""

from __future__ import annotations

import polars as pl
import pytest

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows, TopologyTestDriver
from penstock.errors import PenstockError, SchemaRegistryError
from penstock.testing import EmbeddedRegistry

HIT = {
    "type": "record",
    "name": "Hit",
    "namespace": "web",
    "fields": [{"name": "ip", "type": "string"}, {"name": "status", "type": "int"}],
}
PLAIN = {"statestore.cache.max.bytes": 0}


def _pipe(driver, count=40):
    hits = driver.input_topic("hits")
    for i in range(count):
        hits.pipe(key=f"k{i % 3}", value={"ip": f"10.0.0.{i % 3}", "status": 200 + i % 5 * 60}, timestamp=i)
    driver.flush()


@pytest.mark.parametrize("batch_size", [1, 100])
@pytest.mark.parametrize("framing", ["prefix", "header"])
def test_keys_values_windows_and_repartition_topics(framing, batch_size):
    text, hit = Serdes.avro("string", framing=framing), Serdes.avro(HIT, framing=framing)
    builder = StreamsBuilder()
    hits = builder.stream("hits", Consumed(key_serde=text, value_serde=hit))
    hits.filter(pl.col("status") >= 400).to("bad")
    (
        hits.group_by(lambda key, value: value["ip"], Grouped(key_serde=text, value_serde=hit))
        .windowed_by(TimeWindows.of("1 minute"))
        .reduce(lambda old, new: new, Materialized("last", value_serde=hit))
        .to_stream()
        .to("last")
    )
    with EmbeddedRegistry() as registry:
        config = {**PLAIN, "schema.registry.url": registry.url, "application.id": "app"}
        with TopologyTestDriver(builder.build(), config, batch_size=batch_size) as driver:
            _pipe(driver)
            bad = driver.output_topic("bad").read_records_to_list()
            assert [record.value["status"] for record in bad] == [440] * 8
            assert {record.headers for record in bad} == {()}
            raw = driver.output_topic("last", "bytes", "bytes").read_record()
            last = driver.output_topic("last").read_records_to_list()
            assert len(last) == 39
            assert last[-1].key.key == "10.0.0.0"
            assert last[-1].value == {"ip": "10.0.0.0", "status": 440}
        names = [name for name, _ in raw.headers]
        assert names == (["__key_schema_id", "__value_schema_id"] if framing == "header" else [])
        assert raw.value.startswith(b"\0\0\0\0") == (framing == "prefix")
        assert set(registry.subjects()) >= {
            "hits-key",
            "hits-value",
            "bad-value",
            "last-key",
            "app-last-changelog-value",
            "app-last-repartition-value",
        }


def test_headers_of_schemas_do_not_travel_to_outputs_of_other_serdes():
    builder = StreamsBuilder()
    hits = builder.stream("hits", Consumed(key_serde="string", value_serde=Serdes.avro(HIT, framing="header")))
    hits.map_values(lambda hit: hit["status"]).to("codes", Produced(key_serde="string", value_serde="long"))
    with (
        EmbeddedRegistry() as registry,
        TopologyTestDriver(builder.build(), {"schema.registry.url": registry.url}) as driver,
    ):
        driver.input_topic("hits").pipe(key="a", value={"ip": "x", "status": 404}, headers={"trace": "1"})
        assert driver.output_topic("codes").read_record().headers == (("trace", b"1"),)


def test_bad_records_go_to_the_handler_and_good_ones_stay():
    builder = StreamsBuilder()
    hits = builder.stream("hits", Consumed(key_serde="string", value_serde=Serdes.avro(HIT)))
    hits.filter(pl.col("status") >= 400).to("bad")
    with EmbeddedRegistry() as registry:
        config = {
            "schema.registry.url": registry.url,
            "deserialization.exception.handler": "continue",
            "errors.dead.letter.queue.topic.name": "dead",
        }
        with TopologyTestDriver(builder.build(), config, batch_size=50) as driver:
            hits = driver.input_topic("hits")
            for i in range(20):
                hits.pipe(key="a", value={"ip": "x", "status": 400 + i}, timestamp=i)
            driver.pipe_raw("hits", b"a", b'{"ip": "x"}', 30)
            driver.flush()
            assert len(driver.output_topic("bad").read_values_to_list()) == 20
            letter = driver.output_topic("dead", "string", "bytes").read_record()
            assert letter.value == b'{"ip": "x"}'
            assert any(b"looks like plain JSON" in value for _, value in letter.headers if value)
        strict = {"schema.registry.url": registry.url}
        with (
            pytest.raises(PenstockError, match="magic byte"),
            TopologyTestDriver(builder.build(), strict) as driver,
        ):
            driver.pipe_raw("hits", b"a", b"hello", 30)


def test_a_registry_that_is_away_stops_the_task():
    builder = StreamsBuilder()
    builder.stream("hits", Consumed(key_serde="string", value_serde=Serdes.avro(HIT))).to("copy")
    config = {
        "schema.registry.url": "http://localhost:9",
        "schema.registry.max.retries": 0,
        "deserialization.exception.handler": "continue",
    }
    with (
        pytest.raises(SchemaRegistryError, match="cannot be reached"),
        TopologyTestDriver(builder.build(), config) as driver,
    ):
        driver.pipe_raw("hits", b"a", b"\0\0\0\0\1abc", 30)


def test_default_serdes_by_kafkas_class_names():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with EmbeddedRegistry() as registry:
        registry.register("out-value", HIT)
        registry.register("in-value", HIT)
        config = {
            "default.key.serde": "string",
            "default.value.serde": "io.confluent.kafka.streams.serdes.avro.GenericAvroSerde",
            "schema.registry.url": registry.url,
            "use.latest.version": True,
        }
        with TopologyTestDriver(builder.build(), config) as driver:
            driver.input_topic("in").pipe(key="a", value={"ip": "x", "status": 1})
            assert driver.output_topic("out").read_value() == {"ip": "x", "status": 1}
