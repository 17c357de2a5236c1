"""DELIMITED: comma-separated values, quoted as commons-csv does where it must be."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.serde.column import Column, RowColumn
from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.json_values import exact
from penstock.sql.formats.layouts import FEW, WHOLE, ColumnCapture, RowLayout, joined, literal, read_rows, text_column
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    DecimalType,
    SqlType,
    SqlValueError,
)
from penstock.sql.types.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    decimal_text,
    double_text,
    parse_decimal,
    parse_double,
    parse_whole,
)
from penstock.sql.types.texts import date_of, days_of, millis_of_day, time_of

__all__ = ["DelimitedRows", "join_fields", "split_fields"]

PLAIN_START = re.compile(r"[0-9A-Za-z]")


def split_fields(text: str, delimiter: str) -> list[str]:
    """Return the fields of the first line.

    >>> split_fields('a,"b ""c"", d",,e', ",")
    ['a', 'b "c", d', '', 'e']

    Raises:
        SqlValueError: A quote is not closed, or something stands behind it.
    """
    text = text.lstrip("\r\n")
    if '"' not in text:
        return re.split(r"[\r\n]", text, maxsplit=1)[0].split(delimiter)
    fields: list[str] = []
    at = 0
    while True:
        field, at = _quoted(text, at) if text.startswith('"', at) else _bare(text, at, delimiter)
        fields.append(field)
        if at >= len(text) or text[at] in "\r\n":
            return fields
        if text[at] != delimiter:
            raise SqlValueError(f"a delimiter is missing after a quoted field, before {text[at]!r}")
        at += 1


def _bare(text: str, at: int, delimiter: str) -> tuple[str, int]:
    end = at
    while end < len(text) and text[end] not in (delimiter, "\r", "\n"):
        end += 1
    return text[at:end], end


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts = []
    start = at + 1
    while True:
        end = text.find('"', start)
        if end < 0:
            raise SqlValueError("a quote is not closed")
        parts.append(text[start:end])
        if not text.startswith('"', end + 1):
            return '"'.join(parts), end + 1
        start = end + 2


def join_fields(fields: list[str | None], delimiter: str) -> str:
    """Return one line of fields.

    The first is quoted unless it begins with a letter or digit, others where they must be.

    >>> join_fields(["-1", None, "a b", "a,b", "#", "x "], ",")
    '"-1",,a b,"a,b","#","x "'
    """
    return delimiter.join(
        ["" if field is None else _written(field, delimiter, first=at == 0) for at, field in enumerate(fields)]
    )


def _written(field: str, delimiter: str, *, first: bool) -> str:
    if not field:
        return '""' if first else ""
    begins = not PLAIN_START.match(field) if first else field[0] <= "#"
    if begins or field[-1] <= " " or any(letter in field for letter in (delimiter, '"', "\r", "\n")):
        return '"' + field.replace('"', '""') + '"'
    return field


class DelimitedRows(RowSerde):
    """Rows as text with a delimiter; an empty field is null."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        self._writers = [writer_of(kind) for _, kind in columns]
        self._readers = [reader_of(kind) for _, kind in columns]
        self._layout = _layout(columns, properties.delimiter)
        self._plain = _plain_fields(properties.delimiter)

    @property
    def name(self) -> str:
        return f"{super().name}[{self.properties.delimiter!r}]"

    def serialize(self, value: Any) -> bytes | None:
        if value is None or (self.properties.part == "key" and self.unwrapped and value[0] is None):
            return None
        try:
            texts = [None if item is None else write(item) for write, item in zip(self._writers, value, strict=True)]
            return join_fields(texts, self.properties.delimiter).encode()
        except (TypeError, ValueError, AttributeError) as error:
            self.refuse(value, "rows of its columns", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            fields = split_fields(data.decode(), self.properties.delimiter)
            if len(fields) != len(self.columns):
                raise SqlValueError(f"Unexpected field count: {len(fields)} fields for {len(self.columns)} columns")
            return tuple([read(field) if field else None for read, field in zip(self._readers, fields, strict=True)])
        except (ValueError, ArithmeticError) as error:
            self.reject(data, f"lines of its columns ({error})", error)

    def decode(self, data: pa.Array) -> Column:
        column = read_rows(data, len(self.columns), lambda _: self._layout, self.deserialize)
        return super().decode(data) if column is None else column

    def encode(self, column: Column) -> pa.Array:
        if not isinstance(column, RowColumn) or len(column) <= FEW or not self.columns:
            return super().encode(column)
        try:
            parts: list[str | pl.Series] = []
            for each, (_, kind), write in zip(column.columns, self.columns, self._writers, strict=True):
                texts = text_column(each, kind)
                if texts is None:
                    items = [None if item is None else write(item) for item in each.items()]
                    texts = pl.Series("", items, dtype=pl.String, strict=True)
                if not texts.str.contains(self._plain[bool(parts)]).all():
                    return super().encode(column)  # some field needs quotes
                parts += [self.properties.delimiter, texts.fill_null("")] if parts else [texts.fill_null("")]
            absent = column.absent
            if self.properties.part == "key" and self.unwrapped:
                absent = column.null_mask() | column.columns[0].null_mask()
            return joined(parts, len(column), absent)
        except Exception:  # noqa: BLE001 - whatever is wrong with a row, writing it alone says so
            return super().encode(column)

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "columns": self.columns, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["format"], state["columns"], state["properties"])  # type: ignore[misc]


def _layout(columns: Columns, delimiter: str) -> RowLayout:
    """Lines without quotes."""
    field = rf'[^{literal(delimiter)}"\r\n]+'
    captures = []
    for _, kind in columns:
        if kind == STRING:
            captures.append(ColumnCapture(f"({field})?", kind))
        elif kind in WHOLE:
            captures.append(ColumnCapture(f"({WHOLE[kind]})?", kind))
        elif kind == BOOLEAN:
            captures.append(ColumnCapture("(true|false)?", kind))
        else:
            captures.append(ColumnCapture(f"({field})?", kind, reader_of(kind)))
    return RowLayout(
        literal(delimiter).join([each.pattern for each in captures]), captures, range(1, len(captures) + 1)
    )


def _plain_fields(delimiter: str) -> tuple[str, str]:
    """Return the expressions of a first field and of others that are written without quotes."""
    inner = rf'[^{literal(delimiter)}"\r\n]*[^{literal(delimiter)}"\x00-\x20]'
    first = f"[0-9A-Za-z--{literal(delimiter)}]"
    other = rf"[^{literal(delimiter)}\x00-#]"
    return rf"\A{first}(?:{inner})?\z", rf"\A(?:{other}(?:{inner})?)?\z"


def writer_of(kind: SqlType) -> Callable[[Any], str]:
    """Return the function that writes values of a type as a field."""
    return decimal_text if isinstance(kind, DecimalType) else WRITERS[kind]


def reader_of(kind: SqlType) -> Callable[[str], Any]:
    """Return the function that reads values of a type from a field that is not empty."""
    if isinstance(kind, DecimalType):
        return lambda text: exact(parse_decimal(text), kind)
    return READERS[kind]


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"


WRITERS: dict[SqlType, Callable[[Any], str]] = {
    BOOLEAN: lambda value: "true" if value else "false",
    INTEGER: str,
    BIGINT: str,
    DOUBLE: double_text,
    STRING: str,
    BYTES: lambda value: b64encode(value).decode(),
    DATE: lambda value: str(days_of(value)),
    TIME: lambda value: str(millis_of_day(value)),
    TIMESTAMP: str,
}
READERS: dict[SqlType, Callable[[str], Any]] = {
    BOOLEAN: _boolean,
    INTEGER: lambda text: parse_whole(text, INT_MIN, INT_MAX),
    BIGINT: lambda text: parse_whole(text, LONG_MIN, LONG_MAX),
    DOUBLE: parse_double,
    STRING: str,
    BYTES: lambda text: b64decode(text, validate=True),
    DATE: lambda text: date_of(parse_whole(text, INT_MIN, INT_MAX)),
    TIME: lambda text: time_of(parse_whole(text, INT_MIN, INT_MAX)),
    TIMESTAMP: lambda text: parse_whole(text, LONG_MIN, LONG_MAX),
}
