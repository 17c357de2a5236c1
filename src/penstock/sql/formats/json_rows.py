"""JSON: an object of all columns, or the single column as it is."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.serde.column import Column, RowColumn
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.json_columns import json_capture, json_texts, object_layout, single_layout
from penstock.sql.formats.json_text import json_writer, object_writer
from penstock.sql.formats.json_values import json_reader, parse_json, pick
from penstock.sql.formats.layouts import FEW, RowLayout, joined, read_rows
from penstock.sql.types import SqlValueError

__all__ = ["JsonRows"]


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
