"""Avro values, with a schema registry and without."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.base.argument_checks import check_given
from penstock.errors import ConfigError, SerializationError
from penstock.serde.column import from_ends
from penstock.serde.formats.avro import ParsedSchema, parse_avro, parse_avro_for_columns
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.avro_columns import Unsupported, column_type, compiled
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient
from penstock.serde.schemas.value_bytes import check_value, is_bounded, is_plain, plain_bytes, plain_value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["AvroSerde"]

_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError, RecursionError, struct.error)


class AvroSerde(SchemaSerde):
    """Avro's binary form; records are dicts.

    A value is read with the schema it was written with, and resolved to the serde's own if it has one. Without one
    it only reads.

    Args:
        schema: JSON text, a dict or list, or the path of an ``.avsc`` file; None reads values of any schema.
        framing: See `SchemaSerde`.
        registry: See `SchemaSerde`.
    """

    def __init__(
        self,
        schema: str | Mapping[str, Any] | list[Any] | Path | None = None,
        framing: str | None = None,
        registry: str | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(framing, registry)
        self._text = None if schema is None else SchemaText(_schema_text(schema))
        if self._text is None and framing == "none":
            raise ConfigError("Avro without a registry needs a schema", hint="Give Serdes.avro the schema.")
        if self._text is not None:
            try:
                parse_avro(self._text)
            except ValueError as error:
                raise ConfigError(f"this is not an Avro schema: {error}") from error
            except ImportError as error:
                raise ConfigError(
                    f"Avro needs fastavro: {error}", hint='Run: pip install "penstock[schemas]"'
                ) from error

    @property
    def name(self) -> str:
        if self._text is None:
            return "avro"
        shown = self.record_name or parse_avro(self._text).type_of(parse_avro(self._text).schema)[0]
        if self.framing != "none":
            return f"avro<{shown}>"
        return f"avro<{shown}#{hashlib.blake2b(self._text.text.encode(), digest_size=4).hexdigest()}>"

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of the fields, if the schema is given and that of a record."""
        schema = None if self._text is None else parse_avro(self._text).schema
        if not isinstance(schema, dict) or schema.get("type") != "record":
            return None
        return tuple(field["name"] for field in schema["fields"])

    @property
    def schema_key(self) -> Any:
        return self._text

    @property
    def record_name(self) -> str | None:
        if self._text is None:
            return None
        schema = parse_avro(self._text).schema
        return schema.get("name") if isinstance(schema, dict) else None

    def to_register(self, client: RegistryClient) -> Schema | None:  # noqa: ARG002 - needs no references
        from confluent_kafka.schema_registry import Schema

        return None if self._text is None else Schema(self._text.text, "AVRO")

    def write(self, value: Any, registered: Registered | None) -> bytes:
        plan = self._plan(registered)
        if plan.is_bytes:
            return self._plain(value, plan.writer.schema)
        out = BytesIO()
        try:
            plan.write(out, plan.writer.schema, value)
        except _ERRORS as error:
            self.refuse(value, f"values of its schema ({type(error).__name__}: {error})", error)
        return out.getvalue()

    def encode_items(self, items: list[Any], registered: Registered | None, frame: bytes) -> pa.Array | None:
        plan = self._plan(registered)
        if plan.is_bytes:
            return None
        out, write, schema = BytesIO(), plan.write, plan.writer.schema
        ends = [0]
        try:
            for item in items:
                if item is not None:
                    out.write(frame)
                    write(out, schema, item)
                ends.append(out.tell())
        except _ERRORS:
            return None  # reading row by row finds the bad one
        return from_ends(out.getbuffer(), ends, items)

    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:
        plan = self._plan(registered)
        if not plan.is_bytes:
            return self._read_row(data, start, plan)
        return plain_value(data[start:], plan.writer.schema)

    def _plain(self, value: Any, schema: Any) -> bytes:
        try:
            return plain_bytes(value, schema)
        except _ERRORS as error:
            self.refuse(value, f"bytes or decimals of its schema ({error})", error)

    def _read_row(self, data: bytes, start: int, plan: _SchemaPlan) -> Any:
        stream = BytesIO(data)
        stream.seek(start)
        try:
            if not plan.is_bounded:
                check_value(data, start, plan.writer)
            value = plan.read(stream, plan.writer.schema, plan.reader_schema)
        except _ERRORS as error:
            self.reject(data, f"Avro ({type(error).__name__}: {error})", error)
        except Exception as error:
            if type(error).__name__ != "SchemaResolutionError":
                raise
            self.reject(data, f"Avro that its schema can be made of ({error})", error)
        if stream.tell() != len(data):
            self.reject(data, f"one Avro value, which ends at byte {stream.tell()}")
        return value

    def read_column(self, data: pa.Array, skip: int, registered: Registered | None) -> pl.Series | None:
        plan = self._plan(registered, columns=True)
        if plan.is_bytes or plan.kind is None:
            return None
        try:
            return compiled(plan.writer, plan.reader)(data, skip)
        except Unsupported:
            pass
        rows = [self._read_row(row, skip, plan) for row in data.to_pylist()]
        try:
            return pl.Series("", pl.from_arrow(pa.array(rows, plan.kind)))
        except (pa.ArrowException, OverflowError, pl.exceptions.PolarsError) as error:
            raise SerializationError(f"these values have no column type: {error}", serde=self.name) from error

    def _plan(self, registered: Registered | None, *, columns: bool = False) -> _SchemaPlan:
        """Return the readers and writers of a schema (None: the serde's own, without a registry)."""
        key = (id(registered), columns)
        plan: _SchemaPlan | None = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._planned(registered, parse_avro_for_columns if columns else parse_avro)
        return plan

    def _planned(self, registered: Registered | None, parsed: Callable[[SchemaText], ParsedSchema]) -> _SchemaPlan:
        from fastavro import schemaless_reader, schemaless_writer

        text = self._text if registered is None else registered.schema
        if text is None:
            raise ConfigError("Avro without a registry needs a schema", hint="Give Serdes.avro the schema.")
        if text.kind != "AVRO":
            raise SerializationError(
                f"the {self.name} serde reads Avro, and schema {_shown(registered)} is {text.kind}",
                hint="Give the topic the serde it was written with.",
                serde=self.name,
            )
        writer = parsed(text)
        reader = None if registered is None or self._text in (None, text) else parsed(self._text)
        is_bytes = registered is not None and is_plain(writer.schema)
        kind = column_type(reader or writer)
        return _SchemaPlan(
            writer, reader, is_bytes, is_bounded(writer), kind, schemaless_reader, schemaless_writer, registered
        )


@dataclass(frozen=True, slots=True)
class _SchemaPlan:
    """Schemas and their readers and writers; ``registered`` is kept, as the plan is found by its identity."""

    writer: ParsedSchema
    reader: ParsedSchema | None
    is_bytes: bool
    is_bounded: bool
    kind: pa.DataType | None
    read: Callable[..., Any]
    write: Callable[..., None]
    registered: Registered | None

    @property
    def reader_schema(self) -> Any:
        return None if self.reader is None else self.reader.schema


def _shown(registered: Registered | None) -> str:
    return "" if registered is None else str(registered.guid or registered.schema_id)


def _schema_text(schema: str | Mapping[str, Any] | list[Any] | Path) -> str:
    if isinstance(schema, Path):
        try:
            return schema.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the Avro schema {schema} cannot be read: {error}") from error
    check_given(schema, (str, Mapping, list), "schema", "a text, a dict, a list or a path", error=ConfigError)
    if not isinstance(schema, str):
        return json.dumps(schema)
    try:
        json.loads(schema)
    except ValueError:
        return json.dumps(schema)  # a primitive by its name, such as string
    return schema
