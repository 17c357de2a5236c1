"""JSON: any value, columns of JSON text from other programs, and objects of a schema as struct columns."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.base.late_polars import pl
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import ConfigError, SerializationError
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, bytes_column, large_binary, series_of

__all__ = ["JsonSerde", "StructSerde", "decode_json", "dump_json", "encoded", "json_text"]

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


_TYPES: dict[Any, str] = {  # the names of Polars' types
    str: "String",
    int: "Int64",
    float: "Float64",
    bool: "Boolean",
    "string": "String",
    "long": "Int64",
    "integer": "Int32",
    "short": "Int16",
    "double": "Float64",
    "float": "Float32",
    "boolean": "Boolean",
}


def struct_schema(schema: Any) -> pl.Struct:
    """Return the struct type of a schema.

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
            f"{schema!r} is not a schema",
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
    type_name = _TYPES.get(kind.lower() if isinstance(kind, str) else kind)
    if type_name is None:
        raise ConfigError(
            f"field {name!r} has the unknown type {kind!r}", hint="Use str, int, float, bool or a Polars type."
        )
    return getattr(pl, type_name)


class StructSerde(BaseSerde):
    """JSON objects with fixed fields, a struct column: missing fields are null, unknown ones are left out.

    A value that its field cannot hold without a loss is refused, never rounded or made null: a number with a fraction
    or out of range in an integer, a boolean in a number, a text that is not a date. Numbers as text are numbers, and
    numbers and booleans in a text field are text.
    """

    few_by_row = False  # each value makes a series

    def __init__(self, schema: Any) -> None:
        self.dtype = struct_schema(schema)
        self._wire = _wire_type(self.dtype)
        self._checked = _has(self.dtype, _may_vanish)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.dtype.fields)

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
            _check_whole([value], self.dtype)
            series = pl.Series("", [value], self.dtype, strict=True)
            text: bytes = encoded(series)[0].as_py()
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            self.refuse(value, f"dicts of the schema {self.dtype}", error)
        return text

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            series = self._decode(bytes_column([data]))
        except (pl.exceptions.PolarsError, pa.ArrowInvalid, ValueError) as error:
            self.reject(data, f"JSON objects of the schema {self.dtype}{self._misfit(data)}", error)
        if len(series) != 1:
            self.reject(data, "one JSON object")
        return series[0]

    def _decode(self, data: pa.Array) -> pl.Series:
        return _read(data, self.dtype, self._wire, check=self._checked)

    def _misfit(self, data: bytes) -> str:
        """Return the field that does not fit, for a message; empty if no single field is at fault."""
        wrong = []
        for field in self.dtype.fields:
            try:
                alone = pl.Struct([field])
                _read(bytes_column([data]), alone, _wire_type(alone), check=_has(alone, _may_vanish))
            except (pl.exceptions.PolarsError, pa.ArrowInvalid, ValueError):
                wrong.append(repr(field.name))
        return f" (see {', '.join(wrong)})" if 0 < len(wrong) < len(self.dtype.fields) else ""

    def encode(self, column: Column) -> pa.Array:
        try:
            if column.is_columnar:
                series = column.series()
                if series.dtype != self.dtype:
                    series = self._conform(series)
            else:
                if not set(map(type, column.items())) <= {dict, type(None)}:
                    return super().encode(column)
                _check_whole(column.items(), self.dtype)
                series = pl.Series("", column.items(), self.dtype, strict=True)
            return encoded(series)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            return super().encode(column)

    def _conform(self, series: pl.Series) -> pl.Series:
        """Return the series with exactly the schema's fields."""
        if series.dtype == pl.Null:
            return series.cast(self.dtype)
        if not isinstance(series.dtype, pl.Struct):
            raise SerializationError(f"the {self.name} serde writes structs, not {series.dtype}", serde=self.name)
        have = {field.name: field.dtype for field in series.dtype.fields}
        fields = [
            _exact(pl.col("").struct.field(field.name), have[field.name], field.dtype)
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
        except (pl.exceptions.PolarsError, pa.ArrowInvalid, ValueError):
            pass  # the loop over the rows below finds the bad one
        return super().decode(data)


def _read(data: pa.Array, dtype: pl.Struct, wire: pl.Struct, *, check: bool) -> pl.Series:
    """Read JSON texts as structs; raise Polars' error, or ValueError, where one does not fit."""
    texts = series_of(large_binary(data).cast(pa.large_string()))
    series = decode_json(texts, wire).cast(dtype, strict=True)
    if check:
        _check_nothing_vanished(series, texts.str.json_decode(_as_text(dtype)))
    return series


def _wire_type(dtype: Any) -> Any:
    """Return the type that JSON is read as first: Polars' reader cuts numbers to fit, a cast from text refuses them."""
    return _mapped(dtype, lambda leaf: pl.String if leaf.is_integer() or leaf.is_float() else leaf)


def _as_text(dtype: Any) -> Any:
    return _mapped(dtype, lambda _: pl.String)


def _mapped(dtype: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return the type with other leaves."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _mapped(field.dtype, leaf) for field in dtype.fields})
    if isinstance(dtype, pl.List):
        return pl.List(_mapped(dtype.inner, leaf))
    return leaf(dtype)


def _has(dtype: Any, predicate: Callable[[Any], bool]) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has(field.dtype, predicate) for field in dtype.fields)
    return _has(dtype.inner, predicate) if isinstance(dtype, pl.List) else predicate(dtype)


def _may_vanish(leaf: Any) -> bool:
    """Return whether Polars makes values that do not fit null, or infinite."""
    return bool(leaf.is_temporal()) or leaf == pl.Float32


def _check_nothing_vanished(series: pl.Series, texts: pl.Series) -> None:
    """Raise ValueError where there was a text and is not a value."""
    if isinstance(series.dtype, pl.Struct):
        for field in series.dtype.fields:
            _check_nothing_vanished(series.struct.field(field.name), texts.struct.field(field.name))
    elif isinstance(series.dtype, pl.List):
        _check_nothing_vanished(series.explode(), texts.explode())
    elif series.dtype == pl.Float32 and series.is_infinite().any():
        raise ValueError("a number is too large for a float of 4 bytes")
    elif series.null_count() != texts.null_count():
        raise ValueError(f"a value is not {with_article(str(series.dtype))}")


def _check_whole(values: Iterable[Any], dtype: Any) -> None:
    """Raise ValueError for a float with a fraction where an integer belongs: Polars would cut it off."""
    if isinstance(dtype, pl.Struct):
        dicts = [value for value in values if isinstance(value, Mapping)]
        for field in dtype.fields:
            if _has(field.dtype, _is_integer):
                _check_whole((value.get(field.name) for value in dicts), field.dtype)
    elif isinstance(dtype, pl.List):
        _check_whole((item for value in values if isinstance(value, list | tuple) for item in value), dtype.inner)
    elif _is_integer(dtype):
        for value in values:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"{value} is not an integer")


def _is_integer(leaf: Any) -> bool:
    return bool(leaf.is_integer())


def _exact(column: pl.Expr, have: Any, target: Any) -> pl.Expr:
    """Return the column as another type; refuse a float that is not an integer where one is wanted.

    Raises:
        ValueError: The rows have to be looked at one by one.
    """
    if have != target and target.is_nested() and _has(target, _is_integer):
        raise ValueError("nested numbers are looked at one by one")
    if have.is_float() and target.is_integer():
        return column.cast(pl.String).str.strip_suffix(".0").cast(target)
    return column.cast(target)
