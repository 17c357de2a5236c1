"""JSON: any value; and columns of JSON text from other programs, in which no row can change another."""

from __future__ import annotations

import json
import secrets
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.serde.buffers import large_binary
from penstock.serde.column import Column
from penstock.serde.rowwise import BaseSerde

__all__ = ["JsonSerde", "decode_json", "dump_json", "encoded", "json_text"]

# A flat object: every text in it is closed, and no bracket stands outside of them but the first and the last.
_FLAT = r'(?s)^\s*\{(?:[^{}\[\]"\\]|"(?:[^"\\]|\\.)*")*\}\s*$'


def _plain(value: object) -> object:
    """Return values that JSON lacks as text."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


dump_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class JsonSerde(BaseSerde):
    """Any JSON value as Python's json module reads it; text without spaces, UTF-8. JSON's null reads as None."""

    @property
    def name(self) -> str:
        return "json"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return dump_json(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            self.refuse(value, f"values that JSON knows ({error})", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if depth_of(data) > MOST_DEPTH:
            self.reject(data, f"JSON of at most {MOST_DEPTH} levels")
        try:
            text = data.decode()
            try:
                value, end = _scan(text, 0)
            except StopIteration:
                end = -1
            return value if end == len(text) else json.loads(text)
        except (ValueError, RecursionError) as error:
            self.reject(data, f"JSON ({error})", error)

    def encode(self, column: Column) -> pa.Array:
        if column.is_columnar and not column.is_padded:
            texts = json_text(column.series())
            if texts is not None:
                return texts
        return super().encode(column)


def json_text(series: pl.Series) -> pa.Array | None:
    """Return structs as JSON text, the same as row by row; None if the two could differ (unusual floats, dates)."""
    if not isinstance(series.dtype, pl.Struct) or not series.dtype.fields:
        return None
    for field in series.dtype.fields:
        if field.dtype == pl.Float64:
            sizes = series.struct.field(field.name).drop_nulls().abs()
            if not ((sizes == 0) | ((sizes >= 1e-4) & sizes.is_finite())).all():
                return None
        elif not _simple(field.dtype):
            return None
    return encoded(series)


def _simple(dtype: Any) -> bool:
    if isinstance(dtype, pl.List):
        return _simple(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return bool(dtype.fields) and all(_simple(field.dtype) for field in dtype.fields)
    return bool(dtype.is_integer()) or dtype in (pl.String, pl.Boolean, pl.Null)


def encoded(series: pl.Series) -> pa.Array:
    """Return structs as JSON text by Polars, nulls as nulls."""
    texts = series.struct.json_encode()
    if series.null_count():
        texts = texts.zip_with(series.is_not_null(), pl.Series([None], dtype=pl.String))
    return large_binary(texts.to_arrow())


def decode_json(texts: pl.Series, dtype: Any) -> pl.Series:
    """Return each text as a value of this type; null where it is null.

    Polars reads a column as one JSON array. So a text that leaves a bracket open takes the next ones in, and one with a
    comma outside of brackets counts as two: both together would change the values of other rows. Flat objects cannot do
    that. Others are wrapped, each together with an unpredictable mark, and each mark must come back.

    Raises:
        polars.exceptions.PolarsError: Some text is not one JSON value of the type.
    """
    if texts.str.contains(_FLAT).all():
        values = texts.str.json_decode(dtype)
        if len(values) == len(texts):
            return values
    mark = secrets.token_hex(8)
    wrapped = texts.to_frame("").select(pl.concat_str(pl.lit(f'{{"{mark}v":'), pl.col(""), pl.lit(f',"{mark}":1}}')))
    values = wrapped.to_series().str.json_decode(pl.Struct({f"{mark}v": dtype, mark: pl.Int8}))
    if len(values) != len(texts) or values.struct.field(mark).null_count() != texts.null_count():
        raise pl.exceptions.ComputeError("a text is not one JSON value")
    return values.struct.field(f"{mark}v").alias("")
