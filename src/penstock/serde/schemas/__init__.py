"""Serdes with schemas: Avro, Protobuf and JSON Schema, with a schema registry and without."""

from __future__ import annotations

from penstock.serde.schemas.avro import AvroSerde
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.json_schema import JsonSchemaSerde
from penstock.serde.schemas.protobuf import ProtobufSerde

__all__ = ["AvroSerde", "JsonSchemaSerde", "ProtobufSerde", "SchemaSerde"]
