"""Serdes with schemas: Avro, Protobuf and JSON Schema, with a schema registry and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.serde.schemas.avro import AvroSerde as AvroSerde
    from penstock.serde.schemas.base import SchemaSerde as SchemaSerde
    from penstock.serde.schemas.json_schema import JsonSchemaSerde as JsonSchemaSerde
    from penstock.serde.schemas.protobuf import ProtobufSerde as ProtobufSerde

__all__ = ["AvroSerde", "JsonSchemaSerde", "ProtobufSerde", "SchemaSerde"]

# Loaded when first used: what knows schemas is used without Polars too.
__getattr__ = lazy_names(
    __name__,
    {
        "AvroSerde": "avro",
        "JsonSchemaSerde": "json_schema",
        "ProtobufSerde": "protobuf",
        "SchemaSerde": "base",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
