"""SQL types as frozen values, their widening, casts, arithmetic and comparison; the texts that Java prints of values.

Values are plain Python: INTEGER and BIGINT are ``int``, DOUBLE is ``float``, DECIMAL is ``decimal.Decimal`` (its
exponent is the scale), DATE and TIME are ``datetime.date`` and ``datetime.time``, TIMESTAMP is an ``int`` of
milliseconds since 1970 in UTC, ARRAY is a ``list``, MAP and STRUCT are ``dict``. A timestamp has no class of its own:
record times are such integers already, and the type of the column says what the integer means wherever it matters.
"""

from penstock.sql.types.sql_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    Primitive,
    SqlType,
    SqlTypeError,
    SqlValueError,
    StructField,
    StructType,
)

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "BYTES",
    "DATE",
    "DOUBLE",
    "INTEGER",
    "INTERVAL_UNIT",
    "NULL",
    "STRING",
    "TIME",
    "TIMESTAMP",
    "ArrayType",
    "DecimalType",
    "MapType",
    "Primitive",
    "SqlType",
    "SqlTypeError",
    "SqlValueError",
    "StructField",
    "StructType",
]
