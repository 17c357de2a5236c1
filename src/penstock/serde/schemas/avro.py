"""Avro values, with a schema registry and without.

Avro by the column: all rows at once, field after field, each row with a position of its own.

Avro has no lengths before its fields, so a row is read from its start; but all rows have the same fields, so each step
of the schema is one step of numpy over all rows. Texts are not copied: a view points to them where they are.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.base.argument_checks import check_given
from penstock.errors import ConfigError, SerializationError
from penstock.serde.column import from_ends, from_fixed_width, large_binary, parts
from penstock.serde.formats.avro import ParsedSchema, parse_avro, parse_avro_for_columns
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient
from penstock.serde.schemas.value_bytes import check_value, is_bounded, is_plain, plain_bytes, plain_value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from numpy.typing import NDArray

__all__ = ["AvroSerde", "Unsupported", "column_type", "compiled"]

# Many values at once

PADDING = 16  # bytes after the last row, so that words may be read at its end
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_S = int((dt.datetime(1, 1, 2, tzinfo=dt.UTC) - _EPOCH).total_seconds())  # the range of Python's datetime
_LAST_S = int((dt.datetime(9999, 12, 30, tzinfo=dt.UTC) - _EPOCH).total_seconds())
_DAY_S = 86_400


class Unsupported(Exception):  # noqa: N818 - no error: another way is taken
    """The error for schemas, or rows, that are left to the reader of single rows."""


class AvroCursor:
    """The position up to which each row has been read."""

    __slots__ = ("body", "ends", "positions")

    def __init__(self, body: NDArray[np.uint8], positions: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.body = body
        self.positions = positions
        self.ends = ends

    def at(self, rows: NDArray[np.int64]) -> AvroCursor:
        return AvroCursor(self.body, self.positions[rows], self.ends[rows])

    def advance(self, lengths: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Skip so many bytes in every row, and return their starts."""
        starts = self.positions
        self.positions = starts + lengths
        if (self.positions > self.ends).any():
            raise bad("a value that is cut short")
        return starts

    def words(self, starts: NDArray[np.int64], kind: str) -> NDArray[Any]:
        """Return the number that begins at each start."""
        size = np.dtype(kind).itemsize
        windows: NDArray[Any] = np.ndarray((len(self.body) - size + 1,), kind, self.body, strides=(1,))
        return windows[starts]

    def longs(self) -> NDArray[np.int64]:
        """Read a varint of every row."""
        first = self.body[self.advance(1)]
        numbers = (first & 0x7F).astype(np.uint64)
        more = np.flatnonzero(first & 0x80)
        shift = 7
        while len(more):
            if shift > 63:
                raise bad("a number of more than 64 bits")
            starts = self.positions[more]
            if (starts >= self.ends[more]).any():
                raise bad("a number that is cut short")
            byte = self.body[starts]
            numbers[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.positions[more] = starts + 1
            more = more[byte >= 0x80]
            shift += 7
        return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)

    def ints(self) -> NDArray[np.int32]:
        numbers = self.longs()
        narrow = numbers.astype(np.int32)
        if (narrow != numbers).any():
            raise bad("an int of more than 32 bits")
        return narrow

    def lengths(self) -> NDArray[np.int64]:
        numbers = self.longs()
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) > len(self.body)):
            raise bad("a length that cannot be")
        return numbers


def bad(what: str) -> SerializationError:
    """Return the error of some row; the rows are read again one by one to find it."""
    return SerializationError(f"a row holds {what}")


Reader = Callable[[AvroCursor], pl.Series]


def fixed(cursor: AvroCursor, size: int) -> pl.Series:
    """Read bytes of one width."""
    starts = cursor.advance(size)
    return series(from_fixed_width(cursor.body[starts[:, None] + np.arange(size)]))


def decimal(cursor: AvroCursor, lengths: NDArray[np.int64], schema: Any) -> pl.Series:
    """Read big-endian bytes as a decimal of 128 bits; those of more than eight bytes are left to the other reader."""
    starts = cursor.advance(lengths)
    if schema["precision"] > 38 or (len(lengths) and (int(lengths.max()) > 8 or int(lengths.min()) < 1)):
        raise Unsupported
    # The eight bytes that end where the number ends; a shift takes away what stands before it, and keeps the sign.
    at = np.maximum(starts[:, None] + lengths[:, None] - 8 + np.arange(8), 0)
    whole = np.ascontiguousarray(cursor.body[at]).view(">i8").ravel().astype(np.int64)
    shift = (8 - lengths) * 8
    numbers = np.empty((len(lengths), 2), np.int64)
    numbers[:, 0] = (whole << shift) >> shift
    numbers[:, 1] = numbers[:, 0] >> 63
    limit = 10 ** schema["precision"]
    if limit < 1 << 63 and (np.abs(numbers[:, 0]) >= limit).any():
        raise bad("a decimal of more digits than its schema allows")
    kind = pa.decimal128(schema["precision"], schema.get("scale", 0))
    return series(pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(numbers)]))


def _bytes(cursor: AvroCursor) -> pl.Series:
    return series(_views(cursor, pa.binary_view()))


def text(cursor: AvroCursor) -> pl.Series:
    texts = _views(cursor, pa.string_view())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise bad("text that is not UTF-8") from error
    return series(texts)


def _views(cursor: AvroCursor, kind: pa.DataType) -> pa.Array:
    """Return length and place of each text; up to twelve bytes stand in the view itself."""
    lengths = cursor.lengths()
    starts = cursor.advance(lengths)
    views = np.empty((len(lengths), 4), np.uint32)
    views[:, 0] = lengths
    short = lengths <= 12
    for word in range(3):
        held = np.clip(lengths - 4 * word, 0, 4).astype(np.uint64)
        mask = ((np.uint64(1) << (held * np.uint64(8))) - np.uint64(1)).astype(np.uint32)
        at = np.minimum(starts + 4 * word, len(cursor.body) - 4)
        views[:, 1 + word] = cursor.words(at, "<u4") & mask
    if not short.all():
        views[~short, 2] = 0
        views[~short, 3] = starts[~short]
    return pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(views), pa.py_buffer(cursor.body)])


def _boolean(cursor: AvroCursor) -> pl.Series:
    flags = cursor.body[cursor.advance(1)]
    if (flags > 1).any():
        raise bad("a boolean that is neither 0 nor 1")
    return pl.Series("", flags.astype(np.bool_))


def _float(kind: str) -> Reader:
    size = np.dtype(kind).itemsize
    return lambda cursor: pl.Series("", cursor.words(cursor.advance(size), kind).astype(kind[1:]))


def _time(unit_per_s: int, dtype: Any) -> Reader:
    """Return a reader of points of time that Python's datetime can hold."""

    def read(cursor: AvroCursor) -> pl.Series:
        return pl.Series("", _between(cursor.longs(), _FIRST_S * unit_per_s, _LAST_S * unit_per_s)).cast(dtype)

    return read


def _time_of_day(unit_per_s: int) -> Reader:
    def read(cursor: AvroCursor) -> pl.Series:
        numbers = _between(cursor.longs(), 0, _DAY_S * unit_per_s - 1)
        return pl.Series("", numbers * (1_000_000_000 // unit_per_s)).cast(pl.Time)

    return read


def _date(cursor: AvroCursor) -> pl.Series:
    return pl.Series("", _between(cursor.ints(), _FIRST_S // _DAY_S, _LAST_S // _DAY_S)).cast(pl.Date)


def _between(numbers: NDArray[Any], low: int, high: int) -> NDArray[Any]:
    if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) > high):
        raise Unsupported
    return numbers


def _null(cursor: AvroCursor) -> pl.Series:
    return pl.Series("", [None] * len(cursor.positions), pl.Null)


def series(array: pa.Array) -> pl.Series:
    """Return the same values as Polars has them."""
    return pl.Series("", pl.from_arrow(array))


PRIMITIVES: dict[str, Reader] = {
    "null": _null,
    "boolean": _boolean,
    "int": lambda cursor: pl.Series("", cursor.ints()),
    "long": lambda cursor: pl.Series("", cursor.longs()),
    "float": _float("<f4"),
    "double": _float("<f8"),
    "bytes": _bytes,
    "string": text,
}
LOGICAL: dict[tuple[str, str | None], Reader] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time_of_day(1_000),
    ("long", "time-micros"): _time_of_day(1_000_000),
    ("long", "timestamp-millis"): _time(1_000, pl.Datetime("ms", "UTC")),
    ("long", "timestamp-micros"): _time(1_000_000, pl.Datetime("us", "UTC")),
    ("long", "local-timestamp-millis"): _time(1_000, pl.Datetime("ms")),
    ("long", "local-timestamp-micros"): _time(1_000_000, pl.Datetime("us")),
}


# Types of columns

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.large_binary(),
    "string": pa.large_string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MAX_DIGITS = 38


def optional(branches: list[Any], parsed: ParsedSchema) -> tuple[int, Any] | None:
    """Return number and type of the branch that is not null, in a union of null and one type; None for other unions."""
    others = [(number, one) for number, one in enumerate(branches) if parsed.type_of(one)[0] != "null"]
    return others[0] if len(others) == 1 and len(branches) <= 2 else None


def column_type(parsed: ParsedSchema) -> pa.DataType | None:
    """Return the Arrow type of a schema's values; None for unions of several types and recursive records."""
    return _type(parsed.schema, parsed, ())


def _type(schema: Any, parsed: ParsedSchema, above: tuple[str, ...]) -> pa.DataType | None:
    kind, resolved = parsed.type_of(schema)
    if kind == "union":
        branch = optional(resolved, parsed)
        return None if branch is None else _type(branch[1], parsed, above)
    if kind == "record":
        if resolved["name"] in above or not resolved["fields"]:
            return None
        inner = [
            (field["name"], _type(field["type"], parsed, (*above, resolved["name"]))) for field in resolved["fields"]
        ]
        return None if any(one is None for _, one in inner) else pa.struct(inner)
    if kind in {"array", "map"}:
        item = _type(resolved["items" if kind == "array" else "values"], parsed, above)
        if item is None:
            return None
        return pa.large_list(item) if kind == "array" else pa.map_(pa.large_string(), item)
    logical = resolved.get("logicalType")
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        precision = resolved["precision"]
        return pa.decimal128(precision, resolved.get("scale", 0)) if precision <= _MAX_DIGITS else None
    if kind == "enum":
        return pa.large_string()
    if kind == "fixed":
        return pa.large_binary()
    return _LOGICAL.get((kind, logical), _PRIMITIVES.get(kind))


# Compiled schemas

_MOST_ITEMS = 256  # of one array: each is a step over the rows that have so many
_PROMOTIONS = {"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}}
_NUMBERS = {"int": pl.Int32, "long": pl.Int64, "float": pl.Float32, "double": pl.Float64}


def compiled(writer: ParsedSchema, reader: ParsedSchema | None) -> Callable[[pa.Array, int], pl.Series]:
    """Return a reader of a column of values, none of them null, each after ``skip`` bytes of frame.

    Args:
        writer: The schema that they were written with.
        reader: The schema of the results; None is the writer's.

    Raises:
        Unsupported: Some part of the schema needs the reader of single rows.
    """
    key = id(reader)
    plans = _PLANS.setdefault(writer, {})
    if key not in plans:
        try:
            plans[key] = (reader, _compile(writer.schema, writer, None if reader is None else reader.schema, reader))
        except Unsupported:
            plans[key] = (reader, None)
    plan = plans[key][1]
    if plan is None:
        raise Unsupported

    def read(data: pa.Array, skip: int) -> pl.Series:
        data = large_binary(data)
        body, offsets = parts(data)
        if len(body) >= 1 << 31:
            raise Unsupported
        padded = np.concatenate([body, np.zeros(PADDING, np.uint8)])
        cursor = AvroCursor(padded, offsets[:-1] + skip, offsets[1:])
        values = plan(cursor)
        if (cursor.positions != cursor.ends).any():
            raise bad("bytes after its value")
        return values

    return read


_PLANS: dict[ParsedSchema, dict[int, tuple[ParsedSchema | None, Reader | None]]] = {}


def _compile(schema: Any, writer: ParsedSchema, reader_schema: Any, reader: ParsedSchema | None) -> Reader:
    kind, resolved = writer.type_of(schema)
    target_kind, target = (kind, None) if reader is None else reader.type_of(reader_schema)
    if kind == "union":
        return _union(resolved, writer, target_kind, target, reader)
    if target_kind == "union" and reader is not None and target is not None:
        branch = optional(target, reader)
        if branch is None:
            raise Unsupported
        return _compile(schema, writer, branch[1], reader)
    if target is not None and resolved.get("logicalType") != target.get("logicalType"):
        raise Unsupported
    if kind != target_kind:
        if target_kind not in _PROMOTIONS.get(kind, ()):
            raise Unsupported
        plain, dtype = PRIMITIVES[kind], _NUMBERS[target_kind]
        return lambda cursor: plain(cursor).cast(dtype)
    if kind == "record":
        return _record(resolved, writer, target, reader)
    if kind == "array":
        item = _compile(resolved["items"], writer, None if target is None else target["items"], reader)
        return lambda cursor: _array(cursor, item)
    if kind == "map":
        value = _compile(resolved["values"], writer, None if target is None else target["values"], reader)
        return lambda cursor: _map(cursor, value)
    if kind == "enum":
        return _enum(resolved, target)
    return _leaf(kind, resolved, target)


def _union(branches: Any, writer: ParsedSchema, target_kind: str, target: Any, reader: ParsedSchema | None) -> Reader:
    branch = optional(branches, writer)
    if branch is None:
        raise Unsupported
    number, schema = branch
    reader_schema = None
    if reader is not None:
        reader_branch = optional(target, reader) if target_kind == "union" else None
        if reader_branch is None or len(target) < len(branches):
            raise Unsupported
        reader_schema = reader_branch[1]
    inner = _compile(schema, writer, reader_schema, reader)
    count = len(branches)

    def read(cursor: AvroCursor) -> pl.Series:
        chosen = cursor.longs()
        if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= count):
            raise bad("a union branch that its schema lacks")
        rows = np.flatnonzero(chosen == number)
        if len(rows) == len(chosen):
            return inner(cursor)
        some = cursor.at(rows)
        values = inner(some)
        cursor.positions[rows] = some.positions
        places = np.zeros(len(chosen), np.int64)
        places[rows] = np.arange(len(rows))
        if not len(rows):
            return pl.Series("", [None] * len(chosen), values.dtype)
        there = pl.Series("", chosen == number)
        return values.gather(pl.Series("", places).zip_with(there, pl.Series([None], dtype=pl.Int64)))

    return read


def _record(schema: Any, writer: ParsedSchema, target: Any, reader: ParsedSchema | None) -> Reader:
    reader_fields = None if target is None else {field["name"]: field for field in target["fields"]}
    if reader_fields is not None and any(field.get("aliases") for field in reader_fields.values()):
        raise Unsupported
    if not schema["fields"] or (reader_fields is not None and not reader_fields):
        raise Unsupported
    steps: list[tuple[str, Reader]] = []
    for field in schema["fields"]:
        name = field["name"]
        if reader_fields is None or name not in reader_fields:
            steps.append((name, _compile(field["type"], writer, None, None)))
        else:
            steps.append((name, _compile(field["type"], writer, reader_fields[name]["type"], reader)))
    order = [name for name, _ in steps] if reader_fields is None else list(reader_fields)
    written = {name for name, _ in steps}
    defaults = {
        name: _default(reader_fields[name], reader)
        for name in order
        if reader_fields is not None and name not in written
    }

    def read(cursor: AvroCursor) -> pl.Series:
        length = len(cursor.positions)
        columns = {name: step(cursor) for name, step in steps}
        for name, (value, dtype) in defaults.items():
            columns[name] = pl.Series(name, [value], dtype).new_from_index(0, length)
        return pl.DataFrame([columns[name].alias(name) for name in order]).to_struct("")

    return read


def _default(field: Any, reader: ParsedSchema | None) -> tuple[Any, Any]:
    """Return a default and its column type, for the simple ones."""
    if "default" not in field or reader is None:
        raise Unsupported
    kind, resolved = reader.type_of(field["type"])
    value = field["default"]
    if kind == "union":
        branch = optional(resolved, reader)
        if branch is None:
            raise Unsupported
        kind, resolved = reader.type_of(branch[1])
    dtype = {**_NUMBERS, "string": pl.String, "enum": pl.String, "boolean": pl.Boolean}.get(kind)
    if dtype is None or resolved.get("logicalType"):
        raise Unsupported
    return value, dtype


def _array(cursor: AvroCursor, item: Reader) -> pl.Series:
    values, offsets = _items(cursor, [item])
    if values is None:
        empty = item(cursor.at(np.empty(0, np.int64)))
        return pl.Series("", [[]] * len(cursor.positions), pl.List(empty.dtype))
    return series(pa.LargeListArray.from_arrays(pa.array(offsets), values[0].to_arrow()))


def _map(cursor: AvroCursor, value: Reader) -> pl.Series:
    values, offsets = _items(cursor, [text, value])
    if values is None:
        nothing = cursor.at(np.empty(0, np.int64))
        values = [text(nothing), value(nothing)]
    keys, elements = values[0].to_arrow(), values[1].to_arrow()
    return series(pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, elements))


def _items(cursor: AvroCursor, readers: list[Reader]) -> tuple[list[pl.Series] | None, NDArray[np.int64]]:
    """Return the items of all rows, row by row, and the start of each row; all first items are read at once."""
    count = len(cursor.positions)
    chunks: list[list[pl.Series]] = []
    owners: list[NDArray[np.int64]] = []
    rows = np.arange(count)
    while len(rows):
        some = cursor.at(rows)
        left = some.longs()
        sized = np.flatnonzero(left < 0)  # a negative count has the block's size after it
        if len(sized):
            blocks = some.at(sized)
            blocks.longs()
            some.positions[sized] = blocks.positions
        cursor.positions[rows] = some.positions
        if (left == np.iinfo(np.int64).min).any():
            raise bad("a number of items that cannot be")
        left = np.abs(left)
        if len(left) and (int(left.max()) > _MOST_ITEMS or len(chunks) > _MOST_ITEMS):
            raise Unsupported
        rows, left = rows[left > 0], left[left > 0]
        current = rows
        while len(current):
            some = cursor.at(current)
            chunks.append([read(some) for read in readers])
            owners.append(current)
            cursor.positions[current] = some.positions
            left = left - 1
            current, left = current[left > 0], left[left > 0]
    offsets = np.zeros(count + 1, np.int64)
    if not chunks:
        return None, offsets
    owner = np.concatenate(owners)
    np.cumsum(np.bincount(owner, minlength=count), out=offsets[1:])
    order = np.argsort(owner, kind="stable")
    return [pl.concat(list(pieces)).gather(order) for pieces in zip(*chunks, strict=True)], offsets


def _enum(schema: Any, target: Any) -> Reader:
    symbols = schema["symbols"]
    if target is not None and target["symbols"] != symbols:
        raise Unsupported
    names = pl.Series("", symbols, pl.String)

    def read(cursor: AvroCursor) -> pl.Series:
        numbers = cursor.longs()
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= len(symbols)):
            raise bad("an enum symbol that its schema lacks")
        return names.gather(numbers)

    return read


def _leaf(kind: str, schema: Any, target: Any) -> Reader:
    logical = schema.get("logicalType")
    if kind == "fixed":
        size = schema["size"]
        if target is not None and target["size"] != size:
            raise Unsupported
        if logical == "decimal":
            return lambda cursor: decimal(cursor, np.full(len(cursor.positions), size, np.int64), schema)
        return lambda cursor: fixed(cursor, size)
    if logical == "decimal" and kind == "bytes":
        same = target is None or all(target.get(name, 0) == schema.get(name, 0) for name in ("precision", "scale"))
        if not same:
            raise Unsupported
        return lambda cursor: decimal(cursor, cursor.lengths(), schema)
    return LOGICAL.get((kind, logical)) or PRIMITIVES[kind]


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
