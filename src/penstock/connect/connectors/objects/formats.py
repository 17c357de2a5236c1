"""The contents of objects: records as Parquet, JSON lines or CSV."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.java_text.dates import days_from_civil
from penstock.connect.connectors.http_requests import json_bytes
from penstock.connect.data import DataError, Moment, Schema, SinkRecord, Struct, Type
from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME, scale_of

__all__ = ["FORMATS", "arrow_type", "encode", "json_line", "suffix_of", "table_of", "to_arrow"]

FORMATS = ("parquet", "json", "csv")
PLAIN = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
LOGICAL = {DATE_NAME: pa.date32(), TIME_NAME: pa.time32("ms"), TIMESTAMP_NAME: pa.timestamp("ms", "UTC")}
DIGITS = 38
MOST_YEARS = 32_767
FIRST_DAY, LAST_DAY = days_from_civil(-MOST_YEARS, 1, 1), days_from_civil(MOST_YEARS, 12, 31)
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY_MS = 86_400_000


def suffix_of(kind: str, compression: str) -> str:
    """Return how names of objects end.

    >>> suffix_of("json", "gzip"), suffix_of("parquet", "zstd")
    ('.json.gz', '.parquet')
    """
    return f".{kind}.gz" if compression == "gzip" and kind != "parquet" else f".{kind}"


def encode(kind: str, records: Sequence[SinkRecord], compression: str) -> bytes:
    """Return the bytes of an object, the same for the same records.

    Args:
        kind: One of `FORMATS`.
        records: Records of one schema.
        compression: ``none`` or ``gzip``; for Parquet also ``zstd`` and ``snappy``.

    Raises:
        DataError: The records do not make a table.
    """
    if kind == "json":
        return _packed(b"".join(json_line(record) for record in records), compression)
    table = to_arrow(records)
    out = io.BytesIO()
    if kind == "csv":
        from pyarrow import csv

        try:
            table = _csv_table(table)
            csv.write_csv(table, out)
        except pa.ArrowException as error:
            raise DataError(
                f"the records do not fit into CSV: {error}",
                hint="CSV has plain fields only: flatten the records (the transformation Flatten), or use json.",
            ) from error
        data = out.getvalue()
        if table.num_columns == 1 and table.column(0).null_count:
            header = io.BytesIO()
            csv.write_csv(table.slice(0, 0), header)
            data = _without_blank_lines(data, header.tell())
        return _packed(data, compression)
    from pyarrow import parquet

    try:
        parquet.write_table(table, out, compression=compression)
    except pa.ArrowException as error:
        raise DataError(
            f"the records do not fit into Parquet: {error}", hint="Leave the field out, or use json."
        ) from error
    return out.getvalue()


def _csv_table(table: pa.Table) -> pa.Table:
    """Return a table with bytes as the text that JSON has for them.

    Raises:
        DataError: A date or a time is of a year that Arrow writes as another one.
    """
    for at, column in enumerate(table.schema):
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            span = pc.min_max(table.column(at).cast(pa.int32() if column.type == pa.date32() else pa.int64()))
            unit = 1 if column.type == pa.date32() else UNITS[column.type.unit] * 86_400
            if not all(each.as_py() is None or FIRST_DAY <= each.as_py() // unit <= LAST_DAY for each in span.values()):
                raise DataError(
                    f"the records do not fit into CSV: {column.name} has a year beyond {MOST_YEARS}",
                    hint="Leave the field out, or use json or parquet.",
                )
        if pa.types.is_binary(column.type):
            texts = [None if each is None else base64.b64encode(each).decode() for each in table.column(at).to_pylist()]
            table = table.set_column(at, column.name, pa.array(texts, pa.string()))
    if table.num_columns == 1 and pa.types.is_string(table.schema.field(0).type):
        table = table.set_column(0, table.column_names[0], table.column(0).fill_null(""))
    return table


def _without_blank_lines(data: bytes, begin: int) -> bytes:
    """Return the rows of one column that holds no texts, with ``""`` for null: readers skip a blank line."""
    return data[:begin] + b"\n".join(line or b'""' for line in data[begin:-1].split(b"\n")) + b"\n"


def json_line(record: SinkRecord) -> bytes:
    """Return the value of a record as a line of JSON."""
    return json_bytes(record.value) + b"\n"


def to_arrow(records: Sequence[SinkRecord]) -> pa.Table:
    """Return the values of records as a table: a column for each field, or one column ``value``.

    Raises:
        DataError: The values have neither a schema nor one type.

    Example:
        >>> from penstock.connect.data import INT32, struct
        >>> schema = struct({"a": INT32})
        >>> to_arrow([SinkRecord(topic="t", value=Struct(schema, {"a": 1}), value_schema=schema)]).schema.field(0).type
        DataType(int32)
    """
    table = table_of([record.value for record in records], records[0].value_schema)
    if not table.num_columns:
        raise DataError(
            "the records have no fields, and a table without columns has no rows",
            hint="Use format=json, or filter such records out.",
        )
    return table


def table_of(values: Sequence[Any], schema: Schema | None) -> pa.Table:
    """Return values of one schema as a table: a column for each field, or one column ``value``.

    Raises:
        DataError: The values have neither a schema nor one type.
    """
    try:
        return _table(values, schema)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise DataError(
            f"the records do not make a table: {error}",
            hint="Use a converter with schemas, or format=json, which takes any values.",
        ) from error


def _table(values: Sequence[Any], schema: Schema | None) -> pa.Table:
    if schema is not None:
        if schema.type is Type.STRUCT:
            kinds = pa.schema([_arrow_field(part.name, part.schema) for part in schema.fields])
            rows = [_row(value) for value in values]
        else:
            kinds = pa.schema([_arrow_field("value", schema)])
            rows = [{"value": _arrow_value(value, schema)} for value in values]
        return pa.Table.from_pylist(rows, schema=kinds)
    if all(isinstance(value, dict) for value in values):
        names = list(dict.fromkeys(str(name) for value in values for name in value))
        columns = {name: pa.array([_arrow_value(value.get(name)) for value in values]) for name in names}
        return pa.table(columns)
    return pa.table({"value": pa.array([_arrow_value(value) for value in values])})


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the Arrow type of a schema."""
    if schema.name == DECIMAL_NAME:
        return pa.decimal128(DIGITS, scale_of(schema))
    if schema.name in LOGICAL:
        return LOGICAL[schema.name or ""]
    if schema.type is Type.STRUCT:
        return pa.struct([_arrow_field(part.name, part.schema) for part in schema.fields])
    if schema.type is Type.ARRAY and schema.values is not None:
        return pa.list_(_arrow_field("element", schema.values))
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        return pa.map_(arrow_type(schema.keys), _arrow_field("value", schema.values))
    if schema.type not in PLAIN:
        raise DataError(f"{schema} has no type in Arrow: the schema of its elements is not known")
    return PLAIN[schema.type]


def _arrow_field(name: str, schema: Schema) -> pa.Field:
    return pa.field(name, arrow_type(schema), nullable=schema.optional or schema.default is not None)


def _row(value: Struct) -> dict[str, Any]:
    return {part.name: _arrow_value(value[part.name], part.schema) for part in value.schema.fields}


def _arrow_value(value: Any, schema: Schema | None = None) -> Any:
    if isinstance(value, Struct):
        return _row(value)
    if isinstance(value, Moment):
        if schema is not None and schema.name in LOGICAL:  # any year, not only those of Python
            return value.ms // DAY_MS if schema.name == DATE_NAME else value.ms
        return value.datetime()
    inner = schema.values if schema is not None else None
    if isinstance(value, list):
        return [_arrow_value(each, inner) for each in value]
    if isinstance(value, dict):
        if schema is not None and schema.type is Type.MAP:
            return [(_arrow_value(key, schema.keys), _arrow_value(each, inner)) for key, each in value.items()]
        return {str(key): _arrow_value(each) for key, each in value.items()}
    return value if not isinstance(value, Decimal) or value.is_finite() else None


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": lambda data: gzip.compress(data, mtime=0),  # the same bytes whenever they are written
}


def _packed(data: bytes, compression: str) -> bytes:
    return _PACK[compression](data)
