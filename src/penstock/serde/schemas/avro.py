"""Avro values, with a schema registry and without, and their bounds.

fastavro recurses in C, and items of no bytes cost it memory. Most schemas bound both: they do not contain themselves,
and their repeated items take at least a byte each. Values of the others are checked first, without recursion.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.base.argument_checks import check_given
from penstock.base.json_depth import MOST_DEPTH
from penstock.errors import ConfigError, SerializationError
from penstock.serde.column import from_ends
from penstock.serde.formats.avro import ParsedSchema, parse_avro, parse_avro_for_columns
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.avro_columns import Unsupported, column_type, compiled
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["AvroSerde", "check_value", "is_bounded", "is_plain"]


def is_plain(schema: Any) -> bool:
    """Return whether a schema is that of bytes, with or without a logical type."""
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def plain_bytes(value: Any, schema: Any) -> bytes:
    """Return the bytes of a value: itself, or the unscaled number of a decimal.

    Raises:
        TypeError: It is neither bytes nor a decimal, where the schema has decimals.
        ValueError: The decimal has more digits behind the point, or in all, than the schema.

    >>> plain_bytes(Decimal("12.30"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}).hex()
    '04ce'
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Decimal) or not _is_decimal(schema):
        raise TypeError(f"{type(value).__name__} instead of bytes")
    sign, digits, exponent = value.as_tuple()
    scale, precision = schema.get("scale", 0), schema["precision"]
    zeros = scale + exponent if isinstance(exponent, int) else -1
    wrong = f"{value} is not a decimal of {precision} digits, {scale} of them after the point"
    if not 0 <= zeros <= precision + scale:
        raise ValueError(wrong)
    number = int("".join(map(str, digits))) * 10**zeros * (-1 if sign else 1)
    if abs(number) >= 10**precision:
        raise ValueError(wrong)
    encoded: bytes = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    return encoded


def plain_value(data: bytes, schema: Any) -> Any:
    """Return the value of bytes: themselves, or a decimal.

    >>> plain_value(bytes.fromhex("04ce"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    Decimal('12.30')
    """
    if not _is_decimal(schema):
        return data
    number = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -schema.get("scale", 0)))


def _is_decimal(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("logicalType") == "decimal"


_MOST_EMPTY_ITEMS = 10_000  # of one array
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MOST_VARINT = 10


def is_bounded(parsed: ParsedSchema) -> bool:
    """Return whether the bytes of a value bound its depth and its size."""
    return _bounded(parsed.schema, parsed, ())


def _bounded(schema: Any, parsed: ParsedSchema, above: tuple[str, ...]) -> bool:
    kind, resolved = parsed.type_of(schema)
    if kind == "union":
        return all(_bounded(branch, parsed, above) for branch in resolved)
    if kind == "record":
        if resolved["name"] in above:
            return False
        return all(_bounded(field["type"], parsed, (*above, resolved["name"])) for field in resolved["fields"])
    if kind == "array":
        return _takes_bytes(resolved["items"], parsed) and _bounded(resolved["items"], parsed, above)
    if kind == "map":
        return _bounded(resolved["values"], parsed, above)
    return True


def _takes_bytes(schema: Any, parsed: ParsedSchema) -> bool:
    """Return whether each value takes at least a byte; called only for schemas that do not contain themselves."""
    kind, resolved = parsed.type_of(schema)
    if kind == "record":
        return any(parsed.type_of(field["type"])[0] not in ("record", "null", "fixed") for field in resolved["fields"])
    return kind != "null" and not (kind == "fixed" and resolved["size"] == 0)


def check_value(data: bytes, start: int, parsed: ParsedSchema) -> None:
    """Go through a value without building it.

    Raises:
        ValueError: It is nested too deep, repeats too many items of no bytes, or is cut short.
    """
    walk = _Walk(data, start, parsed)
    waiting: list[Iterator[Any]] = [iter((parsed.schema,))]
    while waiting:
        schema = next(waiting[-1], walk)
        if schema is walk:  # nothing is left on this level
            waiting.pop()
            continue
        inner = walk.step(schema)
        if inner is not None:
            waiting.append(inner)
            if len(waiting) > MOST_DEPTH:
                raise ValueError(f"a value nested deeper than {MOST_DEPTH}")


class _Walk:
    """A place in the bytes of a value."""

    def __init__(self, data: bytes, at: int, parsed: ParsedSchema) -> None:
        self._data = data
        self._at = at
        self._parsed = parsed

    def step(self, schema: Any) -> Iterator[Any] | None:
        """Pass a value, or return the schemas of the values in it."""
        kind, resolved = self._parsed.type_of(schema)
        if kind == "record":
            return (field["type"] for field in resolved["fields"])
        if kind == "union":
            number = self._long()
            if not 0 <= number < len(resolved):
                raise ValueError("a union branch that its schema lacks")
            return iter((resolved[number],))
        if kind == "array":
            return self._items((resolved["items"],))
        if kind == "map":
            return self._items(("string", resolved["values"]))
        if kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("string", "bytes"):
            self._skip(self._long())
        else:
            self._skip(resolved["size"] if kind == "fixed" else _WIDTHS[kind])
        return None

    def _items(self, schemas: tuple[Any, ...]) -> Iterator[Any]:
        empty = 0
        while count := self._long():
            if count < 0:  # the block's size follows
                count = -count
                self._long()
            for _ in range(count):
                before = self._at
                yield from schemas
                empty += self._at == before
                if empty > _MOST_EMPTY_ITEMS:
                    raise ValueError(f"more than {_MOST_EMPTY_ITEMS:,} items of no bytes")

    def _long(self) -> int:
        number = 0
        for shift in range(0, 7 * _MOST_VARINT, 7):
            byte = self._data[self._at : self._at + 1]
            if not byte:
                break
            self._at += 1
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise ValueError("a number that does not end")

    def _skip(self, length: int) -> None:
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError("a value that is cut short")
        self._at += length


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
