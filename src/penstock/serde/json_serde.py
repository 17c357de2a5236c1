"""JSON: any value, or objects of a schema that become a struct column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.errors import ConfigError, SerializationError
from penstock.serde.buffers import bytes_column, large_binary, series_of
from penstock.serde.column import Column
from penstock.serde.rowwise import BaseSerde

__all__ = ["JsonSerde", "StructSerde", "json_text", "struct_schema"]

_PYTHON_TYPES: dict[Any, Any] = {
    str: pl.String,
    int: pl.Int64,
    float: pl.Float64,
    bool: pl.Boolean,
    "string": pl.String,
    "long": pl.Int64,
    "integer": pl.Int32,
    "short": pl.Int16,
    "double": pl.Float64,
    "float": pl.Float32,
    "boolean": pl.Boolean,
}


def _plain(value: object) -> object:
    """What JSON lacks, as text."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


_dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode
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
            return _dump(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            self.refuse(value, f"values that JSON knows ({error})", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
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
        if column.is_columnar:
            texts = json_text(column.series())
            if texts is not None:
                return texts
        return super().encode(column)


def json_text(series: pl.Series) -> pa.Array | None:
    """Structs as JSON text, the same as row by row; None if the two could differ (unusual floats, dates)."""
    if not isinstance(series.dtype, pl.Struct) or not series.dtype.fields:
        return None
    for field in series.dtype.fields:
        if field.dtype == pl.Float64:
            sizes = series.struct.field(field.name).drop_nulls().abs()
            if not ((sizes == 0) | ((sizes >= 1e-4) & sizes.is_finite())).all():
                return None
        elif not _simple(field.dtype):
            return None
    return _encoded(series)


def _simple(dtype: Any) -> bool:
    if isinstance(dtype, pl.List):
        return _simple(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return bool(dtype.fields) and all(_simple(field.dtype) for field in dtype.fields)
    return bool(dtype.is_integer()) or dtype in (pl.String, pl.Boolean, pl.Null)


def _encoded(series: pl.Series) -> pa.Array:
    texts = series.struct.json_encode()
    if series.null_count():
        texts = texts.zip_with(series.is_not_null(), pl.Series([None], dtype=pl.String))
    return large_binary(texts.to_arrow())


def struct_schema(schema: Any) -> pl.Struct:
    """The struct type that a schema stands for.

    Args:
        schema: Names and types (Python, Polars or names such as "long"), a Polars schema or struct, or an Arrow schema.
    """
    if isinstance(schema, pl.Struct):
        return schema
    if isinstance(schema, pa.Schema):
        empty = pl.from_arrow(schema.empty_table())
        return pl.Struct(dict(empty.schema))  # type: ignore[union-attr]
    if not isinstance(schema, Mapping) or not schema:
        raise ConfigError(
            f"{schema!r} is no schema",
            hint='Give {"user": str, "amount": float}, a Polars schema or an Arrow schema.',
        )
    return pl.Struct({name: _field_type(name, kind) for name, kind in schema.items()})


def _field_type(name: str, kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return struct_schema(kind)
    if isinstance(kind, list) and len(kind) == 1:
        return pl.List(_field_type(name, kind[0]))
    if isinstance(kind, pl.DataType) or (isinstance(kind, type) and issubclass(kind, pl.DataType)):
        return kind
    found = _PYTHON_TYPES.get(kind.lower() if isinstance(kind, str) else kind)
    if found is None:
        raise ConfigError(
            f"field {name!r} has the unknown type {kind!r}", hint="Use str, int, float, bool or a Polars type."
        )
    return found


class StructSerde(BaseSerde):
    """JSON objects with fixed fields, a struct column: missing fields are null, unknown ones are left out."""

    def __init__(self, schema: Any) -> None:
        self.dtype = struct_schema(schema)

    @property
    def name(self) -> str:
        return "json<" + ",".join(f"{field.name}:{field.dtype}" for field in self.dtype.fields) + ">"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.refuse(value, "dicts")
        return self._encode_one(dict(value))

    def _encode_one(self, value: dict[str, Any]) -> bytes:
        try:
            series = pl.Series("", [value], self.dtype, strict=True)
            text: bytes = _encoded(series)[0].as_py()
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            self.refuse(value, f"dicts of the schema {self.dtype}", error)
        return text

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            series = self._decode(bytes_column([data]))
        except (pl.exceptions.PolarsError, pa.ArrowInvalid) as error:
            self.reject(data, f"JSON objects of the schema {self.dtype}", error)
        if len(series) != 1:
            self.reject(data, "one JSON object")
        return series[0]

    def _decode(self, data: pa.Array) -> pl.Series:
        return series_of(large_binary(data).cast(pa.large_string())).str.json_decode(self.dtype)

    def encode(self, column: Column) -> pa.Array:
        try:
            if column.is_columnar:
                series = column.series()
                if series.dtype != self.dtype:
                    series = self._conform(series)
            else:
                if not set(map(type, column.items())) <= {dict, type(None)}:
                    return super().encode(column)
                series = pl.Series("", column.items(), self.dtype, strict=True)
            return _encoded(series)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            return super().encode(column)

    def _conform(self, series: pl.Series) -> pl.Series:
        """The series with exactly the schema's fields."""
        if series.dtype == pl.Null:
            return series.cast(self.dtype)
        if not isinstance(series.dtype, pl.Struct):
            raise SerializationError(f"the {self.name} serde writes structs, not {series.dtype}", serde=self.name)
        have = {field.name for field in series.dtype.fields}
        fields = [
            pl.col("").struct.field(field.name).cast(field.dtype)
            if field.name in have
            else pl.lit(None, field.dtype).alias(field.name)
            for field in self.dtype.fields
        ]
        struct = pl.when(pl.col("").is_not_null()).then(pl.struct(fields)).alias("")
        return series.alias("").to_frame().select(struct).to_series()

    def decode(self, data: pa.Array) -> Column:
        try:
            if not len(data):
                return Column.of_series(pl.Series("", [], self.dtype))
            series = self._decode(data)
            if len(series) == len(data):
                return Column.of_series(series)
        except (pl.exceptions.PolarsError, pa.ArrowInvalid):
            pass  # the rows below tell which one is wrong
        return super().decode(data)
