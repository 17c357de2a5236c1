"""Avro: random schemas and values by the row and by the column, evolution, and bytes that are not Avro."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from uuid import UUID

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError, SchemaRegistryError, SerializationError
from penstock.serde import Column, Serdes
from penstock.serde.formats.avro import parse_avro_for_columns
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.avro import Unsupported, compiled
from penstock.testing import EmbeddedRegistry

HIT = {
    "type": "record",
    "name": "Hit",
    "namespace": "web",
    "fields": [{"name": "ip", "type": "string"}, {"name": "status", "type": "int"}],
}

_TIMES = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - made aware below
_LEAVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=30),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
}
_LOGICAL = {
    ("int", "date"): st.dates(date(1800, 1, 1)),
    ("int", "time-millis"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ("long", "time-micros"): st.times(),
    ("long", "timestamp-millis"): _TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)),
    ("long", "timestamp-micros"): _TIMES.map(lambda t: t.replace(tzinfo=UTC)),
    ("long", "local-timestamp-micros"): _TIMES,
    ("string", "uuid"): st.uuids(),
}


@st.composite
def schemas(draw, depth=2, path="R"):
    """A schema and the strategy of its values."""
    kinds = ["leaf", "logical", "enum", "fixed", "decimal", "optional"]
    kind = draw(st.sampled_from(kinds + ["record", "record", "array", "map"] * (depth > 0)))
    if kind == "leaf":
        name = draw(st.sampled_from(sorted(_LEAVES)))
        return name, _LEAVES[name]
    if kind == "logical":
        base, logical = draw(st.sampled_from(sorted(_LOGICAL)))
        return {"type": base, "logicalType": logical}, _LOGICAL[base, logical]
    if kind == "enum":
        return {"type": "enum", "name": f"E{path}", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{path}", "size": 5}, st.binary(min_size=5, max_size=5)
    if kind == "decimal":
        digits = draw(st.sampled_from([9, 18, 30]))
        schema = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 3}
        limit = 10**digits - 1
        return schema, st.integers(-limit, limit).map(lambda n: Decimal(n).scaleb(-3, _wide()))
    if kind == "optional":
        inner, values = draw(schemas(depth=depth, path=path).filter(lambda s: s[0] != "null" and not _is_union(s[0])))
        branches = ["null", inner] if draw(st.booleans()) else [inner, "null"]
        return branches, st.none() | values
    if kind == "array":
        inner, values = draw(schemas(depth=depth - 1, path=path))
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if kind == "map":
        inner, values = draw(schemas(depth=depth - 1, path=path))
        return {"type": "map", "values": inner}, st.dictionaries(_LEAVES["string"], values, max_size=3)
    return draw(records(depth=depth, path=path))


@st.composite
def records(draw, depth=2, path="R"):
    fields = [draw(schemas(depth=depth - 1, path=f"{path}_{i}")) for i in range(draw(st.integers(1, 4)))]
    schema = {
        "type": "record",
        "name": path,
        "fields": [{"name": f"f{i}", "type": inner} for i, (inner, _) in enumerate(fields)],
    }
    return schema, st.fixed_dictionaries({f"f{i}": values for i, (_, values) in enumerate(fields)})


def _is_union(schema):
    return isinstance(schema, list)


def _wide():
    import decimal

    return decimal.Context(prec=60)


def _columnar(value):
    """What a column gives: UUIDs are text."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: _columnar(one) for key, one in value.items()}
    return [_columnar(one) for one in value] if isinstance(value, list) else value


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_random_values_by_row_and_by_column(data):
    schema, values = data.draw(records(depth=2))
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    serde = Serdes.avro(schema, framing="none")
    encoded = serde.encode(Column.of_items(rows))
    assert encoded.to_pylist() == serde.serialize_rows(rows)
    for row, one in zip(rows, encoded.to_pylist(), strict=True):
        if row is not None:
            out = BytesIO()
            fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), row)
            assert one == out.getvalue()
    column = serde.decode(encoded)
    assert column.items() == rows
    assert column.null_mask().tolist() == [row is None for row in rows]
    if column.is_columnar:
        assert column.series().to_list() == _columnar(rows)
        assert serde.encode(Column.of_series(column.series())).to_pylist() == encoded.to_pylist()
    order = np.arange(len(rows))[::-1]
    assert column.take(order).items() == rows[::-1]


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_columns_without_the_reader_of_single_rows(data):
    """The vectorised reader, where it takes a schema, gives what fastavro gives."""
    schema, values = data.draw(records(depth=2))
    rows = data.draw(st.lists(values, min_size=1, max_size=8))
    serde = Serdes.avro(schema, framing="none")
    encoded = pa.array([b"skip", *serde.serialize_rows(rows)], pa.large_binary()).slice(1)
    parsed = parse_avro_for_columns(SchemaText(json.dumps(schema)))
    try:
        found = compiled(parsed, None)(encoded, 0)
    except Unsupported:
        return
    assert found.to_list() == _columnar(rows)


def test_values_of_all_kinds():
    schema = {
        "type": "record",
        "name": "All",
        "fields": [
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
            {"name": "level", "type": ["null", {"type": "enum", "name": "L", "symbols": ["LOW", "HIGH"]}]},
            {"name": "seen", "type": {"type": "int", "logicalType": "time-millis"}},
        ],
    }
    row = {
        "id": UUID(int=7),
        "price": Decimal("-12.34"),
        "at": datetime(2026, 11, 21, 3, tzinfo=UTC),
        "tags": {"a": ["x", "y" * 30], "b": []},
        "level": "HIGH",
        "seen": time(3, 0, 5, 7000),
    }
    serde = Serdes.avro(schema, framing="none")
    column = serde.decode(serde.encode(Column.of_items([row, None, row])))
    assert column.items() == [row, None, row]
    frame = column.series().alias("v").to_frame().unnest("v")
    assert frame["price"].to_list() == [Decimal("-12.34"), None, Decimal("-12.34")]
    assert frame["at"].dtype == pl.Datetime("ms", "UTC")
    assert frame["id"].to_list()[0] == str(UUID(int=7))


def test_schemas_without_a_column_type_have_values():
    several = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "long", "string"]}]}
    serde = Serdes.avro(several, framing="none")
    column = serde.decode(serde.encode(Column.of_items([{"x": 1}, {"x": "a"}, {"x": None}])))
    assert column.items() == [{"x": 1}, {"x": "a"}, {"x": None}]
    assert not column.is_columnar
    chain = {
        "type": "record",
        "name": "C",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "C"]}],
    }
    serde = Serdes.avro(chain, framing="none")
    rows = [{"n": 1, "next": {"n": 2, "next": None}}]
    assert serde.decode(serde.encode(Column.of_items(rows))).items() == rows


def test_framing_by_prefix_and_by_guid():
    with EmbeddedRegistry() as registry:
        prefix = Serdes.avro(HIT, registry=registry.url).for_topic("hits", "value")
        header = Serdes.avro(HIT, framing="header", registry=registry.url).for_topic("hits", "value")
        value = {"ip": "10.0.0.1", "status": 404}
        plain = Serdes.avro(HIT, framing="none").serialize(value)
        assert prefix.serialize(value) == b"\0\0\0\0\1" + plain
        guid = registry.registry.schema(1).guid
        assert header.serialize(value) == b"\1" + UUID(guid).bytes + plain
        assert registry.subjects() == ["hits-value"]
        rows = [prefix.serialize(value), None, header.serialize(value)]
        column = prefix.decode(pa.array(rows, pa.large_binary()))
        assert column.items() == [value, None, value]
        assert column.series().to_list() == [value, None, value]


def test_subjects_are_named_by_the_strategy():
    with EmbeddedRegistry() as registry:
        for strategy, wanted in (
            ("topic", "hits-value"),
            ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "web.Hit"),
            ("TopicRecordNameStrategy", "hits-web.Hit"),
            (lambda topic, part, record: f"{part}.{topic}.{record}", "value.hits.web.Hit"),
        ):
            conf = {"schema.registry.url": registry.url, "value.subject.name.strategy": strategy}
            Serdes.avro(HIT, registry=conf).for_topic("hits", "value").serialize({"ip": "", "status": 1})
            assert wanted in registry.subjects()
        with pytest.raises(ConfigError, match="does not know its topic"):
            Serdes.avro(HIT, registry=registry.url).serialize({"ip": "", "status": 1})
        with pytest.raises(ConfigError, match="not a strategy"):
            Serdes.avro(HIT, registry={"value.subject.name.strategy": "subject"})
        with pytest.raises(ConfigError, match=r"no setting 'auto\.register'"):
            Serdes.avro(HIT, registry={"auto.register": True})


def test_values_are_resolved_to_the_reader():
    """Fields that are new, gone, or wider; in one batch with the newer ones."""
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "gone", "type": "string"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": "int", "default": 7},
        ],
    }
    with EmbeddedRegistry() as registry:
        first = Serdes.avro(old, registry=registry.url).for_topic("t", "value")
        second = Serdes.avro(new, registry=registry.url).for_topic("t", "value")
        rows = [first.serialize({"a": 1, "gone": "x"}), second.serialize({"a": 2, "b": "y", "c": 3}), None]
        rows.append(first.serialize({"a": -5, "gone": "z" * 20}))
        wanted = [{"a": 1, "b": None, "c": 7}, {"a": 2, "b": "y", "c": 3}, None, {"a": -5, "b": None, "c": 7}]
        column = second.decode(pa.array(rows, pa.large_binary()))
        assert column.items() == wanted
        assert column.series().to_list() == wanted
        assert column.series().struct.field("a").dtype == pl.Int64
        # Without a schema of its own a serde gives what was written; as columns, all fields of all schemas.
        generic = Serdes.avro(registry=registry.url)
        column = generic.decode(pa.array(rows, pa.large_binary()))
        assert column.items()[0] == {"a": 1, "gone": "x"}
        assert column.series().struct.field("gone").to_list() == ["x", None, None, "z" * 20]


def test_a_schema_that_does_not_resolve_is_bad_data():
    with EmbeddedRegistry() as registry:
        registry.registry.set_config("", {"compatibility": "NONE"})
        data = Serdes.avro("string", registry=registry.url).for_topic("t", "value").serialize("x")
        reader = Serdes.avro(HIT, registry=registry.url).for_topic("t", "value")
        with pytest.raises(SerializationError, match=r"avro<web.Hit>"):
            reader.deserialize(data)
        with pytest.raises(SerializationError, match="row 1"):
            reader.decode(pa.array([None, data], pa.large_binary()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"ip": "10.0.0.1"}', "looks like plain JSON"),
        (b"hello", "looks like plain text"),
        (b"\0\0\0", "cut short"),
        (b"", "no bytes"),
        (b"\x07\x80\x80\x80\x80\x80", "begins with byte 7"),
        (b"\0\0\0\0\x63abc", "has no schema 99"),
        (b"\0\0\0\0\1\x08abc", r"web\.Hit"),
        (b"\0\0\0\0\1\x02a\x02b", "ends at byte 8"),
    ],
)
def test_bad_bytes_say_what_they_are(data, message):
    with EmbeddedRegistry() as registry:
        serde = Serdes.avro(HIT, registry=registry.url).for_topic("hits", "value")
        good = serde.serialize({"ip": "a", "status": 1})
        with pytest.raises(SerializationError, match=message):
            serde.deserialize(data)
        with pytest.raises(SerializationError, match=f"row 1: .*{message}") as caught:
            serde.decode(pa.array([good, data, good], pa.large_binary()))
        assert caught.value.row == 1


def test_a_registry_that_does_not_answer_is_no_bad_data():
    serde = Serdes.avro(HIT, registry={"url": "http://localhost:9", "max.retries": 0}).for_topic("hits", "value")
    with pytest.raises(SchemaRegistryError, match="cannot be reached"):
        serde.deserialize(b"\0\0\0\0\1abc")
    with pytest.raises(SchemaRegistryError, match="cannot be reached"):
        serde.serialize({"ip": "a", "status": 1})
    with pytest.raises(ConfigError, match="no registry"):
        Serdes.avro(HIT).for_topic("hits", "value").serialize({"ip": "a", "status": 1})


def test_registering_and_looking_up():
    with EmbeddedRegistry() as registry:
        strict = {"url": registry.url, "auto.register.schemas": "false"}
        with pytest.raises(SchemaRegistryError, match=r"refuses to find .*40401"):
            Serdes.avro(HIT, registry=strict).for_topic("hits", "value").serialize({"ip": "a", "status": 1})
        registry.register("hits-value", HIT)
        assert Serdes.avro(HIT, registry=strict).for_topic("hits", "value").serialize({"ip": "a", "status": 1})
        worse = {**HIT, "fields": [*HIT["fields"], {"name": "user", "type": "string"}]}
        with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE"):
            Serdes.avro(worse, registry=registry.url).for_topic("hits", "value").serialize({})
        latest = Serdes.avro(registry={"url": registry.url, "use.latest.version": True}).for_topic("hits", "value")
        assert latest.deserialize(latest.serialize({"ip": "a", "status": 2})) == {"ip": "a", "status": 2}


def test_bytes_that_need_no_decoding_are_handed_on():
    with EmbeddedRegistry() as registry:
        source = Serdes.avro(HIT, registry=registry.url).for_topic("hits", "value")
        data = source.encode(Column.of_items([{"ip": "a", "status": 1}, {"ip": "b", "status": 2}]))
        column = source.decode(data).filter(np.array([False, True]))
        sink = Serdes.avro(HIT, registry=registry.url).for_topic("bad", "value")
        assert sink.encode(column) is column.raw
        assert "bad-value" in registry.subjects()
        other = Serdes.avro(HIT, framing="none")
        assert other.encode(column).to_pylist() == [b"\x02b\x04"]


def test_what_cannot_be_written_says_so():
    serde = Serdes.avro(HIT, framing="none")
    with pytest.raises(SerializationError, match=r"web\.Hit#"):
        serde.serialize({"ip": 5, "status": 1})
    with pytest.raises(SerializationError, match="row 1"):
        serde.encode(Column.of_items([{"ip": "a", "status": 1}, {"ip": "a", "status": "no"}]))
    with pytest.raises(ConfigError, match="not an Avro schema"):
        Serdes.avro({"type": "recrd"})
    with pytest.raises(ConfigError, match="needs a schema"):
        Serdes.avro(framing="none")
    with pytest.raises(ConfigError, match="not a framing"):
        Serdes.avro(HIT, framing="suffix")


def test_serdes_pickle_compare_and_show_no_secrets():
    settings = {"url": "mock://x", "basic.auth.user.info": "ann:hunter2"}
    serde = Serdes.avro(HIT, registry=settings).for_topic("hits", "value")
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert hash(again) == hash(serde)
    assert serde != serde.for_topic("hits", "key")
    assert "hunter2" not in repr(serde) + repr(serde.settings)
    assert serde.name == "avro<web.Hit>"


def test_bytes_are_written_without_their_length():
    """As Kafka's Avro serializers do, against Avro itself."""
    with EmbeddedRegistry() as registry:
        serde = Serdes.avro("bytes", registry=registry.url).for_topic("t", "key")
        assert serde.serialize(b"ab") == b"\0\0\0\0\1ab"
        assert serde.decode(serde.encode(Column.of_items([b"ab", None, b""]))).items() == [b"ab", None, b""]
        assert registry.subjects() == ["t-key"]


def test_schemas_that_refer_to_others():
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    money = {"type": "record", "name": "Money", "namespace": "x", "fields": [{"name": "cents", "type": "long"}]}
    order = {"type": "record", "name": "Order", "namespace": "x", "fields": [{"name": "total", "type": "x.Money"}]}
    with EmbeddedRegistry() as registry:
        registry.register("x.Money", money)
        schema = Schema(json.dumps(order), "AVRO", [SchemaReference("x.Money", "x.Money", 1)])
        write = AvroSerializer(registry.client(), schema)
        data = write({"total": {"cents": 5}}, SerializationContext("orders", MessageField.VALUE))
        column = Serdes.avro(registry=registry.url).decode(pa.array([data, data], pa.large_binary()))
        assert column.items() == [{"total": {"cents": 5}}] * 2
        assert column.series().to_list() == [{"total": {"cents": 5}}] * 2
