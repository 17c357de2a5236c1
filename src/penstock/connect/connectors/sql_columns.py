"""Columns of SQL databases as fields of Connect: schemas, and what makes a value of what a driver returns.

Types are those of Confluent's JDBC source. Numbers and times are never floats in between.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal

from penstock.connect.connectors.postgres.type_texts import (
    DAY_US,
    iso_text,
    parse_array,
    parse_date,
    parse_time,
    parse_timestamp,
)
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    array,
    decimal_schema,
)
from penstock.serde.data.logical import scaled_decimal, unscaled

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

__all__ = [
    "DECIMAL_PRECISION",
    "HIGH_SCALE",
    "INFINITE_DAYS",
    "INFINITE_MS",
    "MINUS_INFINITY_MS",
    "ColumnRules",
    "SqlColumn",
    "column_of_affinities",
    "date_column",
    "decimal_column",
    "exact_decimal",
    "instant_of",
    "local_of",
    "postgres_column",
    "python_micros",
    "sqlalchemy_column",
    "sqlite_column",
    "sqlite_micros",
    "time_column",
    "timestamp_column",
    "whole_number",
]

DECIMAL_PRECISION = "connect.decimal.precision"
HIGH_SCALE = 127  # of decimals whose column says nothing about digits, as Confluent's connector has it
INTEGER_DIGITS = 18
JULIAN_EPOCH = Decimal("2440587.5")
PLUS_INFINITY_MS, MINUS_INFINITY_MS = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
INFINITE_MS = {"infinity": PLUS_INFINITY_MS, "-infinity": MINUS_INFINITY_MS}
INFINITE_DAYS = {"infinity": (1 << 31) - 1, "-infinity": -(1 << 31)}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
CYCLE_US = 146_097 * DAY_US
FIRST_US, LAST_US = -719_000 * DAY_US, 2_932_000 * DAY_US  # within Python's years, whatever the time zone
LONGEST = (1 << 63) - 1
_EXACT = Context(prec=200_000, Emax=999_999, Emin=-999_999, traps=[InvalidOperation])
Numerics = Literal["none", "precision_only", "best_fit", "best_fit_eager_double"]


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """How numbers and times are written.

    Attributes:
        numerics: The ``numeric.mapping``.
        granularity: The ``timestamp.granularity``.
        zone: The time zone of timestamps that have none (``db.timezone``).
    """

    numerics: str = "none"
    granularity: str = "connect_logical"
    zone: dt.tzinfo = dt.UTC


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column.

    Attributes:
        name: Its name.
        schema: The schema of its values.
        kind: Its type, as the database calls it.
        read: Makes a value of Connect of one that is not null.
        micros: Makes the microseconds since 1970 of a value of a timestamp's column; None: it is not a timestamp.
        zoned: Whether its timestamps have a time zone in the database.
    """

    name: str
    schema: Schema
    kind: str
    read: Callable[[Any], Any]
    micros: Callable[[Any], int] | None = None
    zoned: bool = False

    def value(self, cell: Any, table: str) -> Any:
        """Return the value of Connect.

        Raises:
            DataError: The column's type does not have it.
        """
        if cell is None:
            return None
        try:
            return self.read(cell)
        except (ValueError, TypeError, InvalidOperation, OverflowError, DataError) as error:
            raise DataError(
                f"a value in the column {self.name} of {table} does not fit its type {self.kind}: {_reason(error)}",
                hint="Correct the row, or leave the column out with a query.",
            ) from error


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, DataError) else str(error)


# Times


def instant_of(local_us: int, zone: dt.tzinfo) -> int:
    """Return the moment, in microseconds since 1970 in UTC, that a clock of a time zone shows.

    Of the two moments of an hour that comes twice, it is the later one, in standard time, as in Java.

    >>> from zoneinfo import ZoneInfo
    >>> instant_of(0, ZoneInfo("Asia/Tokyo")), local_of(-32_400_000_000, ZoneInfo("Asia/Tokyo"))
    (-32400000000, 0)
    """
    if zone is dt.UTC:
        return local_us
    shown, _ = _datetime(local_us)
    offsets = (shown.replace(tzinfo=zone, fold=fold).utcoffset() or dt.timedelta() for fold in (0, 1))
    return local_us - min(offsets) // dt.timedelta(microseconds=1)


def local_of(instant_us: int, zone: dt.tzinfo) -> int:
    """Return what a clock of a time zone shows at a moment, in microseconds since 1970."""
    if zone is dt.UTC:
        return instant_us
    moment, shifted = _datetime(instant_us)
    shown = moment.replace(tzinfo=dt.UTC).astimezone(zone).replace(tzinfo=dt.UTC)
    return (shown - EPOCH) // dt.timedelta(microseconds=1) - shifted


def _datetime(micros: int) -> tuple[dt.datetime, int]:
    """Return a time as Python's, and by how much it was moved to be in Python's years.

    The calendar repeats in 400 years.
    """
    times = 0
    if not FIRST_US <= micros <= LAST_US:
        times = (FIRST_US - micros) // CYCLE_US + 1 if micros < FIRST_US else -((micros - LAST_US) // CYCLE_US + 1)
    shifted = times * CYCLE_US
    return EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=micros + shifted), shifted


def _timestamp(micros: int, rules: ColumnRules) -> Any:
    match rules.granularity:
        case "micros_long":
            return _long(micros)
        case "micros_string":
            return str(micros)
        case "nanos_long":
            return _long(micros * 1000)
        case "nanos_string":
            return str(micros * 1000)
        case "micros_iso_datetime_string":
            return iso_text(local_of(micros, rules.zone))
        case "nanos_iso_datetime_string":
            return f"{iso_text(local_of(micros, rules.zone))}000"
    return Moment(micros // 1000)


def _long(number: int) -> int:
    if abs(number) > LONGEST:
        raise ValueError("it has more than 64 bits; choose a coarser timestamp.granularity")
    return number


def _timestamp_schema(rules: ColumnRules) -> Schema:
    if rules.granularity.endswith("_long"):
        return INT64
    return STRING if rules.granularity.endswith("_string") else TIMESTAMP


def timestamp_column(
    column: tuple[str, str], rules: ColumnRules, local: Callable[[Any], int], *, zoned: bool = False
) -> SqlColumn:
    """Return a column of timestamps; ``local`` has a value's microseconds, in UTC or in the database's time zone."""
    name, kind = column
    zone = dt.UTC if zoned else rules.zone

    def micros(value: Any) -> int:
        return instant_of(local(value), zone)

    return SqlColumn(
        name, _timestamp_schema(rules), kind, lambda value: _timestamp(micros(value), rules), micros, zoned
    )


def date_column(column: tuple[str, str], days: Callable[[Any], int]) -> SqlColumn:
    """Return a column of dates; ``days`` has the days since 1970 of a value."""
    return SqlColumn(column[0], DATE, column[1], lambda value: _midnight(days(value)))


def time_column(column: tuple[str, str], rules: ColumnRules, millis: Callable[[Any], int]) -> SqlColumn:
    """Return a column of times of the day in the database's time zone; ``millis`` has the milliseconds of a value."""
    return SqlColumn(column[0], TIME, column[1], lambda value: _zoned_time(millis(value), rules.zone))


def _zoned_time(local_ms: int, zone: dt.tzinfo) -> Moment:
    return Moment(instant_of(local_ms * 1000, zone) // 1000)


def _midnight(days: int) -> Moment:
    return Moment(days * (DAY_US // 1000))


def _of_day(time_us: int, offset_us: int = 0) -> Moment:
    """Return a time of the day in UTC, with 24:00 as the end of the day."""
    shifted = time_us if not offset_us else (time_us - offset_us) % DAY_US
    return Moment(shifted // 1000)


# Numbers


def exact_decimal(value: Decimal, scale: int | None) -> Decimal:
    """Return a decimal with so many digits behind the point: those that a declared scale does not keep are rounded.

    Args:
        value: The number.
        scale: The scale that the column declares; None: none, then no digit may be lost.

    Raises:
        ValueError: It is infinite or no number, or has more digits than the largest scale.

    >>> str(exact_decimal(Decimal("12345678901234567890123456789012345678.5"), 2))
    '12345678901234567890123456789012345678.50'
    """
    if not value.is_finite():
        raise ValueError(f"decimals of Connect have no {value}")
    digits = HIGH_SCALE if scale is None else scale
    number, has = unscaled(value)
    if has <= digits:
        return scaled_decimal(number * 10 ** (digits - has), digits)
    rounded = value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP, context=_EXACT)
    if scale is None and rounded != value:
        raise ValueError(f"it has more than {HIGH_SCALE} digits after the point")
    return rounded


def whole_number(bits: int) -> Callable[[Any], int]:
    """Return the conversion to a whole number of so many bits, which refuses all else."""
    most = 1 << (bits - 1)

    def read(value: Any) -> int:
        number = Decimal(value) if isinstance(value, str | float) else value
        whole = int(number)
        if whole != number or not -most <= whole < most:
            raise ValueError(f"it is not a {bits}-bit integer")
        return whole

    return read


def _numeric(column: tuple[str, str], precision: int | None, scale: int | None, rules: ColumnRules) -> SqlColumn:
    """Return a column of decimals: by the mapping, whole numbers, doubles, or Connect's Decimal."""
    name, kind = column
    mapping, is_declared = rules.numerics, precision is not None
    digits, places = precision or 0, scale or 0
    if is_declared and mapping != "none":
        fits = digits <= INTEGER_DIGITS
        if fits and (places == 0 if mapping == "precision_only" else places < 1):
            schema, bits = _integer_schema(digits - min(places, 0))
            return SqlColumn(name, schema, kind, whole_number(bits))
        if places > 0 and (mapping == "best_fit_eager_double" or (mapping == "best_fit" and fits)):
            return SqlColumn(name, FLOAT64, kind, float)
    if not is_declared and mapping == "best_fit_eager_double":
        return SqlColumn(name, FLOAT64, kind, float)
    return decimal_column(column, digits, scale if is_declared else None)


def decimal_column(column: tuple[str, str], digits: int, scale: int | None) -> SqlColumn:
    """Return a column of Connect's Decimal; one without a scale has the scale that stands for none."""
    name, kind = column
    schema = decimal_schema(HIGH_SCALE if scale is None else scale)
    parameters = {**(schema.parameters or {}), DECIMAL_PRECISION: str(digits)}
    return SqlColumn(
        name, replace(schema, parameters=parameters), kind, lambda value: exact_decimal(_decimal(value), scale)
    )


def _decimal(value: Any) -> Decimal:
    """Return a float as the decimal that it is written as: what was stored as 0.1 is 0.1."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _integer_schema(digits: int) -> tuple[Schema, int]:
    if digits > 9:
        return INT64, 64
    if digits > 4:
        return INT32, 32
    return (INT16, 16) if digits > 2 else (INT8, 8)


# PostgreSQL, whose values come as the texts that the server writes


def postgres_column(name: str, kind: PgType, rules: ColumnRules, *, nullable: bool) -> SqlColumn:
    """Return a column of PostgreSQL."""
    column = _postgres(name, kind, rules)
    return replace(column, schema=column.schema.as_optional(nullable))


def _postgres(name: str, kind: PgType, rules: ColumnRules) -> SqlColumn:
    column = (name, kind.domain or kind.name)
    if kind.element is not None:
        inner = _postgres(name, kind.element, rules)

        def read(text: str) -> list[Any]:
            return [_element(each, inner) for each in parse_array(text, kind.delimiter)]

        return SqlColumn(name, array(inner.schema.as_optional()), column[1], read)
    match kind.name:
        case "numeric":
            if kind.modifier < 0:
                return _numeric(column, None, None, rules)
            scale = (kind.modifier - 4) & 0x7FF
            return _numeric(column, (kind.modifier - 4) >> 16 & 0xFFFF, (scale ^ 0x400) - 0x400, rules)
        case "timestamp":
            return _infinite(timestamp_column(column, rules, parse_timestamp), rules)
        case "timestamptz":
            return _infinite(timestamp_column(column, rules, parse_timestamp, zoned=True), rules)
        case "date":
            return SqlColumn(name, DATE, column[1], lambda text: _midnight(_infinite_days(text)))
        case "time":
            return time_column(column, rules, lambda text: parse_time(text)[0] // 1000)
        case "timetz":
            return SqlColumn(name, TIME, column[1], lambda text: _of_day(*parse_time(text)))
        case "bit":
            return _bits(column, kind.modifier)
        case "money":
            return SqlColumn(name, FLOAT64, column[1], lambda text: float(re.sub(r"[^0-9.-]", "", text)))
    schema, read_text = POSTGRES.get(kind.name, (STRING, str))
    return SqlColumn(name, schema, column[1], read_text)


def _element(element: Any, inner: SqlColumn) -> Any:
    if isinstance(element, list):
        raise ValueError("arrays of more than one dimension have no type in Connect")  # noqa: TRY004 - of the value
    return None if element is None else inner.read(element)


def _infinite(column: SqlColumn, rules: ColumnRules) -> SqlColumn:
    """A column of timestamps that may also be infinite, which is the last millisecond that the JDBC driver has."""
    micros = column.micros
    assert micros is not None  # noqa: S101 - by its callers

    def of(text: str) -> int:
        return INFINITE_MS[text] * 1000 if text in INFINITE_MS else micros(text)

    def read(text: str) -> Any:
        if text in INFINITE_MS and rules.granularity == "connect_logical":
            return Moment(INFINITE_MS[text])
        return _timestamp(of(text), rules)

    return replace(column, read=read, micros=of)


def _infinite_days(text: str) -> int:
    return INFINITE_DAYS[text] if text in INFINITE_DAYS else parse_date(text)


def _bits(column: tuple[str, str], length: int) -> SqlColumn:
    name, kind = column
    if length <= 1:
        return SqlColumn(name, BOOLEAN, kind, lambda text: text == "1")
    if length <= 8:
        return SqlColumn(name, INT8, kind, lambda text: (int(text, 2) ^ 0x80) - 0x80)
    return SqlColumn(name, BYTES, kind, lambda text: int(text, 2).to_bytes((len(text) + 7) // 8, "big"))


POSTGRES: dict[str, tuple[Schema, Callable[[str], Any]]] = {
    "bool": (BOOLEAN, lambda text: text == "t"),
    "int2": (INT16, int),
    "int4": (INT32, int),
    "int8": (INT64, int),
    "oid": (INT64, int),
    "float4": (FLOAT32, float),
    "float8": (FLOAT64, float),
    "bytea": (BYTES, lambda text: bytes.fromhex(text.removeprefix("\\x"))),
}


# SQLite, whose columns hold values of any type

_SQLITE_NUMERIC = re.compile(r".*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*")


def sqlite_column(name: str, declared: str, rules: ColumnRules, *, nullable: bool) -> SqlColumn | None:
    """Return a column of SQLite by its declared type; None: it has none that says what it holds."""
    kind = declared.upper()
    column = _sqlite(name, declared, kind.partition("(")[0].strip(), rules)
    return None if column is None else replace(column, schema=column.schema.as_optional(nullable))


def _sqlite(name: str, declared: str, kind: str, rules: ColumnRules) -> SqlColumn | None:
    if "BOOL" in kind:
        return SqlColumn(name, BOOLEAN, declared, _sqlite_boolean)
    if kind == "TINYINT":
        return SqlColumn(name, INT16, declared, whole_number(16))
    if kind in ("SMALLINT", "INT2"):
        return SqlColumn(name, INT32, declared, whole_number(32))
    if "INT" in kind:
        return SqlColumn(name, INT64, declared, whole_number(64))
    if kind == "DECIMAL_TEXT":  # of the sink, for numbers of more digits than SQLite's have
        digits = _SQLITE_NUMERIC.fullmatch(declared)
        return _numeric((name, declared), int(digits[1]) if digits else None, int(digits[2]) if digits else 0, rules)
    if any(part in kind for part in ("CHAR", "CLOB", "TEXT", "JSON", "UUID", "STRING", "ENUM")) or kind == "TIME":
        return SqlColumn(name, STRING, declared, _sqlite_text)
    if kind.startswith(("TIMESTAMP", "DATETIME")):
        return timestamp_column((name, declared), rules, lambda value: sqlite_micros(value, rules.zone), zoned=True)
    if kind == "DATE":
        return date_column((name, declared), lambda value: sqlite_micros(value) // DAY_US)
    if any(part in kind for part in ("REAL", "FLOA", "DOUB")):
        return SqlColumn(name, FLOAT64, declared, float)
    if "BLOB" in kind or "BINARY" in kind:
        return SqlColumn(
            name, BYTES, declared, lambda value: value if isinstance(value, bytes) else str(value).encode()
        )
    if any(part in kind for part in ("NUMERIC", "DECIMAL", "NUMBER", "MONEY")):
        digits = _SQLITE_NUMERIC.fullmatch(declared)
        if digits is None:
            return _numeric((name, declared), None, None, rules)
        return _numeric((name, declared), int(digits[1]), int(digits[2] or 0), rules)
    return None


def column_of_affinities(name: str, affinities: frozenset[str]) -> SqlColumn:
    """Return a column of SQLite that has no type, by the types of the values that it holds.

    >>> column_of_affinities("a", frozenset({"integer", "real"})).schema.type
    <Type.FLOAT64: 'double'>
    """
    value_types = affinities - {"null"}
    choices: tuple[tuple[set[str], Schema, Callable[[Any], Any]], ...] = (
        ({"integer"}, INT64, whole_number(64)),
        ({"integer", "real"}, FLOAT64, float),
        ({"blob"}, BYTES, bytes),
    )
    schema, read = next(
        ((s, r) for kinds, s, r in choices if value_types and value_types <= kinds), (STRING, _sqlite_text)
    )
    return SqlColumn(name, schema.as_optional(), "+".join(sorted(value_types)) or "none", read)


def sqlite_micros(value: Any, zone: dt.tzinfo = dt.UTC) -> int:
    """Return the microseconds since 1970 of a time in SQLite: a text, milliseconds since 1970, or a Julian day.

    Texts are in the time zone.

    >>> sqlite_micros("2024-01-01T00:00:00.5Z") == sqlite_micros(1704067200500), sqlite_micros(2440587.5)
    (True, 0)
    """
    if isinstance(value, int):
        return value * 1000
    if isinstance(value, float):
        return int((Decimal(repr(value)) - JULIAN_EPOCH) * DAY_US)
    return instant_of(parse_timestamp(str(value).strip()), zone)


def _sqlite_boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false", "t", "f", "0", "1"):
            raise ValueError("it is neither true nor false")
        return value.lower() in ("true", "t", "1")
    return bool(value)


def _sqlite_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# Others, by what SQLAlchemy reflects


def sqlalchemy_column(name: str, kind: TypeEngine[Any], rules: ColumnRules, *, nullable: bool) -> SqlColumn:
    """Return a column of another database, by its type in SQLAlchemy; types that Connect does not have are text."""
    column = _sqlalchemy(name, kind, rules)
    return replace(column, schema=column.schema.as_optional(nullable))


def _sqlalchemy(name: str, kind: TypeEngine[Any], rules: ColumnRules) -> SqlColumn:
    import sqlalchemy.types as sql

    column = (name, str(kind) or type(kind).__name__)
    if isinstance(kind, sql.DateTime):
        zoned = bool(getattr(kind, "timezone", False))
        return timestamp_column(column, rules, python_micros, zoned=zoned)
    if isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float):
        return _numeric(column, kind.precision, kind.scale, rules)
    readers: tuple[tuple[type, Schema, Callable[[Any], Any]], ...] = (
        (sql.Boolean, BOOLEAN, bool),
        (sql.SmallInteger, INT16, whole_number(16)),
        (sql.BigInteger, INT64, whole_number(64)),
        (sql.Integer, INT32, whole_number(32)),
        (sql.Float, FLOAT64, float),
        (sql.Date, DATE, Moment.of),
        (sql.Time, TIME, Moment.of),
        (sql.LargeBinary, BYTES, bytes),
    )
    schema, read = next(((s, r) for each, s, r in readers if isinstance(kind, each)), (STRING, str))
    return SqlColumn(name, schema, column[1], read)


def python_micros(value: Any) -> int:
    """Return the microseconds since 1970 of a time of Python's, which without a zone is one of UTC, or of a text."""
    if isinstance(value, str):
        return parse_timestamp(value)
    aware: dt.datetime = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // dt.timedelta(microseconds=1)
