"""JSON: an object of all columns, or the single column as it is, by the row and by the column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.serde.column import Column, RowColumn
from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.json_values import json_reader, json_writer, object_writer, parse_json, pick
from penstock.sql.formats.layouts import FEW, NUMBER, WHOLE, ColumnCapture, RowLayout, joined, read_rows, text_column
from penstock.sql.types import BOOLEAN, STRING, ArrayType, MapType, SqlType, SqlValueError, StructType

__all__ = ["JsonRows", "array_layout", "json_capture", "json_texts"]

SPACE = r"[ \t\n\r]*"
TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
SCALAR = rf"(?:{TEXT}|{NUMBER}|true|false|null)"
SPECIAL = r'["\\\x00-\x1f]'
PLAIN_NAME = re.compile(r"[\w .$@:/-]*", re.ASCII)
Read = Callable[[Any], Any]


def json_capture(kind: SqlType, read: Read, parse: Callable[[str], Any]) -> ColumnCapture | None:
    """Return the field of a type in JSON; None for nested types.

    Args:
        kind: The type.
        read: Reads values of parsed JSON.
        parse: Parses JSON.
    """
    if kind == STRING:
        return ColumnCapture(r'(?:"([^"\\\x00-\x1f]*)"|null)', kind)
    if kind in WHOLE:
        return ColumnCapture(f"(?:({WHOLE[kind]})|null)", kind)
    if kind == BOOLEAN:
        return ColumnCapture("(?:(true|false)|null)", kind)
    if isinstance(kind, ArrayType | MapType | StructType):
        return None
    return ColumnCapture(f"(?:({TEXT}|{NUMBER}|true|false)|null)", kind, lambda text: read(parse(text)))


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs)


def object_layout(
    text: str, captures: Sequence[ColumnCapture | None], pick: Callable[[dict[str, Any]], Sequence[str | None]]
) -> RowLayout | None:
    """Return the layout of an object: these fields in this order.

    None if it has nested or doubled fields, or odd names.

    Args:
        text: The object.
        captures: Those of the columns.
        pick: Given the fields by their names, those of the columns, None for one that is not there.
    """
    try:
        pairs = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs):
        return None
    names = [name for name, _ in pairs]
    picked_names = pick({name: name for name in names})
    places = {name: index for index, name in enumerate(picked_names) if name is not None}
    if len(set(names)) < len(names) or len(places) < len(picked_names) - picked_names.count(None):
        return None
    fields: list[str] = []
    order = [0] * len(captures)
    for name, value in pairs:
        if isinstance(value, list) or not PLAIN_NAME.fullmatch(name):
            return None
        index = places.get(name)
        capture = None if index is None else captures[index]
        if index is not None:
            if capture is None:
                return None
            order[index] = 1 + sum(map(bool, order))
        pattern = SCALAR if capture is None else capture.pattern
        fields.append(rf'{SPACE}"{re.escape(name)}"{SPACE}:{SPACE}{pattern}{SPACE}')
    held = [capture if number else None for capture, number in zip(captures, order, strict=True)]
    return RowLayout(rf"{SPACE}\{{{','.join(fields) or SPACE}\}}{SPACE}", held, order)


def single_layout(capture: ColumnCapture | None) -> RowLayout | None:
    """Return the layout of one value; null is not a row."""
    return None if capture is None else RowLayout(f"{SPACE}{capture.pattern}{SPACE}", [capture], [1], nulls=True)


def array_layout(captures: Sequence[ColumnCapture | None]) -> RowLayout | None:
    """Return the layout of an array with one element for each column, without blanks."""
    held = [capture for capture in captures if capture is not None]
    if len(held) < len(captures):
        return None
    return RowLayout(rf"\[{','.join([each.pattern for each in held])}\]", held, range(1, 1 + len(held)))


def json_texts(column: Column, kind: SqlType, write: Callable[[Any], str]) -> pl.Series:
    """Return the values of a column as JSON text; ``write`` writes single ones, null too."""
    texts = text_column(column, kind)
    if texts is not None and kind != STRING:
        return texts.fill_null("null")
    if texts is not None and not texts.str.contains(SPECIAL).any():
        return pl.select(pl.lit('"') + texts + pl.lit('"')).to_series().fill_null("null")
    return pl.Series("", [write(value) for value in column.items()], dtype=pl.String, strict=True)


def _only(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda row: write(row[0])


class JsonRows(RowSerde):
    """Rows as JSON; fields are found by their exact name, else by their name in upper case."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        self._prepare()

    def _prepare(self) -> None:
        self._names = tuple(name for name, _ in self.columns)
        self._readers = [json_reader(kind) for _, kind in self.columns]
        pairs = zip(self.columns, self._readers, strict=True)
        self._captures = [json_capture(kind, read, parse_json) for (_, kind), read in pairs]
        self._writers = [json_writer(kind) for _, kind in self.columns]
        if self.unwrapped:
            single = json_writer(self.columns[0][1])
            self._write = _only(single)
        else:
            self._write = object_writer(list(self.columns))

    def serialize(self, value: Any) -> bytes | None:
        if value is None or (self.unwrapped and value[0] is None):
            return None
        try:
            return self._write(value).encode()
        except (TypeError, ValueError, AttributeError) as error:
            self.refuse(value, "rows of its columns", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if depth_of(data) > MOST_DEPTH:
            self.reject(data, f"JSON of at most {MOST_DEPTH} levels")
        try:
            document = parse_json(data.decode().removeprefix("\ufeff"))  # some programs begin a text with this mark
            if document is None:
                return None
            if self.unwrapped:
                return (self._readers[0](document),)
            if type(document) is not dict:
                raise SqlValueError(f"{type(document).__name__} instead of an object")
            values = pick(document, self._names)
            return tuple([read(value) for read, value in zip(self._readers, values, strict=True)])
        except (ValueError, ArithmeticError, RecursionError) as error:
            self.reject(data, f"JSON of its columns ({error})", error)

    def decode(self, data: pa.Array) -> Column:
        column = read_rows(data, len(self.columns), self._layout, self.deserialize)
        return super().decode(data) if column is None else column

    def _layout(self, text: str) -> RowLayout | None:
        if self.unwrapped:
            return single_layout(self._captures[0])
        return object_layout(text, self._captures, lambda values: pick(values, self._names))

    def encode(self, column: Column) -> pa.Array:
        if not isinstance(column, RowColumn) or len(column) <= FEW:
            return super().encode(column)
        try:
            pairs = zip(column.columns, self.columns, self._writers, strict=True)
            texts = [json_texts(each, kind, write) for each, (_, kind), write in pairs]
            if self.unwrapped:
                return joined(texts, len(column), column.null_mask() | column.columns[0].null_mask())
            parts: list[Any] = []
            for name, text in zip(self._names, texts, strict=True):
                parts += ["," if parts else "{", f"{encode_basestring(name)}:", text]
            return joined([*parts, "}"] if parts else ["{}"], len(column), column.absent)
        except Exception:  # noqa: BLE001 - whatever is wrong with a row, writing it alone says so
            return super().encode(column)

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "columns": self.columns, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()
