"""Avro by the column: all rows at once, field after field, each row with a position of its own.

Avro has no lengths before its fields, so a row is read from its start; but all rows have the same fields, so each step
of the schema is one step of numpy over all rows. Texts are not copied: a view points to them where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.serde.buffers import large_binary, parts
from penstock.serde.formats.avro import ParsedSchema
from penstock.serde.schemas.avro_cursor import (
    LOGICAL,
    PADDING,
    PRIMITIVES,
    AvroCursor,
    Reader,
    Unsupported,
    bad,
    decimal,
    fixed,
    series,
    text,
)
from penstock.serde.schemas.avro_types import optional

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Unsupported", "compiled"]

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
