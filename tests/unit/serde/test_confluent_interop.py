"""What confluent-kafka's serializers write is read, and what is written they read; the bytes are the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_messages import order_messages

from penstock.serde import Serdes
from penstock.serde.bound_serdes import header_frame, joined, split
from penstock.serde.column import bytes_column
from penstock.testing import EmbeddedRegistry

Order, Line, _ = order_messages()
RECORD = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
PAYMENT = {"id": 5, "amount": Decimal("12.34"), "at": datetime(2026, 11, 21, tzinfo=UTC), "note": "x"}
JSON_SCHEMA = {"title": "Order", "type": "object", "properties": {"user": {"type": "string"}}}
AVRO = json.dumps(RECORD)


def serializers(kind, client, conf):
    """A value, theirs that writes and that reads, and how ours is made."""
    if kind == "avro":
        write, read = AvroSerializer(client, AVRO, conf=conf), AvroDeserializer(client)
        return PAYMENT, write, read, Serdes.avro, AVRO
    if kind == "json":
        text = json.dumps(JSON_SCHEMA)
        write, read = JSONSerializer(text, client, conf=conf), JSONDeserializer(text, schema_registry_client=client)
        return {"user": "u"}, write, read, Serdes.json_schema, JSON_SCHEMA
    pytest.importorskip("google.type", reason="confluent-kafka[protobuf] is not installed")
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    message = Order(id=1, user="u") if kind == "protobuf" else Line(sku="s")
    write, read = ProtobufSerializer(type(message), client, conf=conf), ProtobufDeserializer(type(message))
    return message, write, read, Serdes.protobuf, type(message)


@pytest.mark.parametrize("part", [MessageField.KEY, MessageField.VALUE])
@pytest.mark.parametrize("kind", ["avro", "protobuf", "nested", "json"])
def test_framed_by_prefix(kind, part):
    with EmbeddedRegistry() as registry:
        value, write, read, make, schema = serializers(kind, registry.client(), None)
        serde = make(schema, registry=registry.url).for_topic("t", part)
        context = SerializationContext("t", part, [])
        theirs = write(value, context)
        ours = serde.serialize(value)
        assert serde.deserialize(theirs) == value
        assert read(ours, context) == value
        assert registry.subjects() == [f"t-{part}"]
        assert len(registry.registry.versions(f"t-{part}")) == 1
        if kind == "json":  # theirs has spaces, Java's has none
            assert ours == theirs.replace(b": ", b":")
        else:
            assert ours == theirs


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("kind", ["avro", "protobuf", "nested", "json"])
def test_framed_by_header(kind, part):
    with EmbeddedRegistry() as registry:
        conf = {"schema.id.serializer": header_schema_id_serializer}
        value, write, read, make, schema = serializers(kind, registry.client(), conf)
        serde = make(schema, framing="header", registry=registry.url).for_topic("t", part)
        context = SerializationContext("t", part, [])
        theirs = write(value, context)
        data, (rest,) = joined(bytes_column([theirs]), [tuple(context.headers)], part)
        assert serde.deserialize(data[0].as_py()) == value
        assert rest == ()
        bare, (headers,) = split(bytes_column([serde.serialize(value)]), header_frame(serde), [(("h", b"1"),)], part)
        assert headers == (("h", b"1"), (f"__{part}_schema_id", context.headers[0][1]))
        assert read(bare[0].as_py(), SerializationContext("t", part, list(headers))) == value
