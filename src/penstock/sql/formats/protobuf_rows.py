"""PROTOBUF: rows as messages, with their schema in a registry; PROTOBUF_NOSR: without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.errors import SerializationError
from penstock.serde.formats.proto_classes import message_class, message_class_at
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient
from penstock.serde.schemas.protobuf_path import index_bytes, indexes_of, read_indexes, skip_indexes
from penstock.sql.formats.foreign import foreign_reader
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_values import pick
from penstock.sql.formats.protobuf_boxes import boxing, unboxing
from penstock.sql.formats.protobuf_schema import proto_schema
from penstock.sql.formats.protobuf_values import fill_message, message_values
from penstock.sql.types import SqlType

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["ProtobufRows"]


class _Messages(SchemaSerde):
    """Dicts as messages: written with its own schema or the registry's, read with that they were written with."""

    def __init__(
        self, schema: SchemaText, message: str | None, framing: str | None, registry: Any, columns: Columns
    ) -> None:
        super().__init__(framing, registry)
        self._schema, self._message = schema, message
        self._wanted = frozenset(name.upper() for name, _ in columns)

    @property
    def name(self) -> str:
        return f"protobuf<{self._message or 'message'}>"

    @property
    def schema_key(self) -> Any:
        return self._schema, self._message

    @property
    def record_name(self) -> str | None:
        return str(message_class(self._schema, self._message)[0].DESCRIPTOR.full_name)

    def to_register(self, client: RegistryClient) -> Schema | None:  # noqa: ARG002
        from confluent_kafka.schema_registry import Schema

        return Schema(self._schema.text, "PROTOBUF")

    def write(self, value: Any, registered: Registered | None) -> bytes:
        made, _ = message_class(self._schema if registered is None else registered.schema, self._message)
        message = made()
        fill_message(message, value)
        data: bytes = message.SerializeToString(deterministic=True)
        return data if registered is None else index_bytes(indexes_of(made.DESCRIPTOR)) + data

    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:
        from google.protobuf.message import DecodeError

        try:
            made, _ = message_class(self._schema, self._message)
            if registered is not None:
                end = skip_indexes(data, start)
                if end < 0:
                    self.reject(data, "the path of a message in its file")
                made = message_class_at(registered.schema, tuple(read_indexes(data[start:end])))
                start = end
            return message_values(made.FromString(data[start:]), self._wanted)
        except (DecodeError, RuntimeError, ValueError, LookupError) as error:
            if isinstance(error, SerializationError):
                raise
            self.reject(data, f"messages of its schema ({error})", error)

    def read_column(self, data: pa.Array, skip: int, registered: Registered | None) -> pl.Series | None:  # noqa: ARG002
        return None


class ProtobufRows(RowSerde):
    """Rows as messages of one field for each column."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        name = properties.schema_full_name
        text = properties.schema or proto_schema(columns, name, properties.nullable)
        framing = None if info.infers else "none"
        self.messages = _Messages(SchemaText(text, "PROTOBUF"), name, framing, writing_settings(properties), columns)
        self._prepare()

    def _prepare(self) -> None:
        self._names = tuple(name for name, _ in self.columns)
        self._box = [boxing(kind) for _, kind in self.columns]
        self._read = [_reader(kind) for _, kind in self.columns]

    @property
    def schema_serde(self) -> SchemaSerde:
        return self.messages

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            boxed = [item if box is None else box(item) for item, box in zip(value, self._box, strict=True)]
            return self.messages.serialize(dict(zip(self._names, boxed, strict=True)))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            self.refuse(value, f"rows of its schema ({error})", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        values = pick(self.messages.deserialize(data), self._names)
        try:
            return tuple([read(value) for read, value in zip(self._read, values, strict=True)])
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            self.reject(data, f"Protobuf of its columns ({error})", error)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_read", "_box")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()


def _reader(kind: SqlType) -> Callable[[Any], Any]:
    read, unbox = foreign_reader(kind), unboxing(kind)
    return read if unbox is None else lambda value: read(unbox(value))
