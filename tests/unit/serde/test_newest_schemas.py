"""Serdes that write with the newest schema of the subject look it up again after `latest.cache.ttl.sec`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import Produced, StreamsBuilder, TopologyTestDriver
from penstock.serde import Column, Serdes
from penstock.serde.bound_serdes import split
from penstock.serde.schemas.client import confluent_client
from penstock.testing import EmbeddedRegistry

ROW = {"ip": "a"}


def avro(*fields: str) -> dict[str, Any]:
    more = [{"name": name, "type": "string", "default": ""} for name in fields]
    return {"type": "record", "name": "Hit", "fields": [{"name": "ip", "type": "string"}, *more]}


def of_json(*fields: str) -> dict[str, Any]:
    return {"title": "Hit", "type": "object", "properties": {name: {"type": "string"} for name in ("ip", *fields)}}


KINDS = {"AVRO": (avro, Serdes.avro), "JSON": (of_json, Serdes.json_schema)}


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as made:
        confluent_client({"url": made.url}).set_compatibility(None, "NONE")
        yield made


def register(registry: EmbeddedRegistry, kind: str, *fields: str) -> int:
    from confluent_kafka.schema_registry import Schema

    text = json.dumps(KINDS[kind][0](*fields))
    return confluent_client({"url": registry.url}).register_schema("hits-value", Schema(text, kind))


def schema_ids(serde: Any) -> list[int]:
    """The ids that values are written with: one alone, and the rows of a column."""
    rows = serde.encode(Column.of_items([ROW] * 3)).to_pylist()
    return [int.from_bytes(data[1:5], "big") for data in (serde.serialize(ROW), *rows)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ttl", "follows"), [(None, False), (-1, False), (0, True), (86_400, False)])
def test_the_newest_schema_is_used_for_its_time(
    registry: EmbeddedRegistry, kind: str, ttl: int | None, follows: bool
) -> None:
    config = {"schema.registry.url": registry.url, "use.latest.version": True}
    config |= {} if ttl is None else {"latest.cache.ttl.sec": ttl}
    serde = KINDS[kind][1]().for_topic("hits", "value").configured(config)
    known = [register(registry, kind)]
    assert schema_ids(serde) == known * 4
    for field in ("user", "agent"):
        known.append(register(registry, kind, field))
        assert schema_ids(serde) == [known[-1] if follows else known[0]] * 4


def test_a_schema_that_is_named_or_the_serdes_own_does_not_change(registry: EmbeddedRegistry) -> None:
    config = {"schema.registry.url": registry.url, "latest.cache.ttl.sec": 0}
    first = register(registry, "AVRO")
    own = Serdes.avro(avro()).for_topic("hits", "value").configured(config)
    fixed = {**config, "use.latest.version": True, "use.schema.id": first}
    named = Serdes.avro(registry={"use.schema.id": first}).for_topic("hits", "value").configured(fixed)
    assert schema_ids(own) == schema_ids(named) == [first] * 4
    register(registry, "AVRO", "user")
    assert schema_ids(own) == schema_ids(named) == [first] * 4


def test_an_application_follows_the_newest_schema(registry: EmbeddedRegistry) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda ip: {"ip": ip}).to("hits", Produced(value_serde=Serdes.avro()))
    config = {
        "default.key.serde": "string",
        "default.value.serde": "string",
        "schema.registry.url": registry.url,
        "use.latest.version": "true",
        "latest.cache.ttl.sec": "0",
    }
    with TopologyTestDriver(builder.build(), config) as driver:
        for fields in [(), ("user",), ("agent",)]:
            wanted = register(registry, "AVRO", *fields)
            driver.input_topic("in").pipe("a")
            record = driver.read_raw("hits")
            assert record is not None
            assert int.from_bytes(record.value[1:5], "big") == wanted


def test_each_row_keeps_its_own_frame_in_its_header() -> None:
    frames = [b"\1" + bytes([number]) * 16 for number in range(3)]
    rows = pa.array([frames[0] + b"a", None, frames[1] + b"b", frames[2] + b"c"], pa.large_binary())
    data, headers = split(rows, frames[0], None, "value")
    assert data.to_pylist() == [b"a", None, b"b", b"c"]
    assert [[value for _, value in one] for one in headers] == [[frames[0]], [], [frames[1]], [frames[2]]]
