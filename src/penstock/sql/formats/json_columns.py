"""JSON by the column: values with a layout, and columns as JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from penstock.serde.column import Column
from penstock.sql.formats.layouts import NUMBER, WHOLE, ColumnCapture, RowLayout, text_column
from penstock.sql.types import BOOLEAN, STRING, ArrayType, MapType, SqlType, StructType

__all__ = ["array_layout", "json_capture", "json_texts", "object_layout", "single_layout"]

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
