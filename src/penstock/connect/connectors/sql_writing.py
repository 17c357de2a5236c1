"""Writing to SQL databases: types of columns for schemas, and values in the form that each column takes.

PostgreSQL and SQLite get each value as a text or number that the column's type reads exactly; others what their drivers
take.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from penstock.connect.connectors.postgres.type_texts import DAY_US, array_text, civil_of_days, timestamp_text
from penstock.connect.connectors.postgres.types import PgType, Types
from penstock.connect.connectors.sql_columns import (
    DECIMAL_PRECISION,
    HIGH_SCALE,
    INFINITE_DAYS,
    INFINITE_MS,
    local_of,
)
from penstock.connect.connectors.sql_reading import DatabaseReader, TableName
from penstock.connect.data import DataError, Moment, Schema, Struct, Type
from penstock.serde.data.json_values import JsonOptions, to_json
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    decimal_from_bytes,
    decimal_schema,
    scale_of,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "Cell",
    "TargetTable",
    "ValueRules",
    "array_of_texts",
    "array_type",
    "column_default",
    "column_type",
    "described_table",
    "written_value",
    "written_values",
]

Cell = tuple[Schema | None, Any]
DEBEZIUM_US = {
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
    "io.debezium.time.NanoTimestamp": 1,
}
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
EPOCH_LOCAL = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of a zone that the settings name
SQLITE_DIGITS = 15  # that a number of SQLite keeps
_INFINITE_OF_MS = {millis: text for text, millis in INFINITE_MS.items()}
_INFINITE_DATE_OF_MS = {days * (DAY_US // 1000): text for text, days in INFINITE_DAYS.items()}
_JSON = JsonOptions(numeric_decimals=True)
_POSTGRES_TYPES = {
    Type.INT8: "SMALLINT",
    Type.INT16: "SMALLINT",
    Type.INT32: "INT",
    Type.INT64: "BIGINT",
    Type.FLOAT32: "REAL",
    Type.FLOAT64: "DOUBLE PRECISION",
    Type.BOOLEAN: "BOOLEAN",
    Type.STRING: "TEXT",
    Type.BYTES: "BYTEA",
}
_OF_ARRAYS = frozenset({  # an element is read as a text is, and then fitted to the column's length as a text is
    "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bytea", "date", "time",
    "timestamp", "timestamptz", "uuid", "json", "jsonb",
})  # fmt: skip
_SQLITE_TYPES = {
    Type.INT8: "INTEGER",
    Type.INT16: "INTEGER",
    Type.INT32: "INTEGER",
    Type.INT64: "INTEGER",
    Type.FLOAT32: "REAL",
    Type.FLOAT64: "REAL",
    Type.BOOLEAN: "BOOLEAN",
    Type.STRING: "TEXT",
    Type.BYTES: "BLOB",
}
_MARIADB_TYPES = {
    Type.INT8: "TINYINT",
    Type.INT16: "SMALLINT",
    Type.INT32: "INT",
    Type.INT64: "BIGINT",
    Type.FLOAT32: "FLOAT",
    Type.FLOAT64: "DOUBLE",
    Type.BOOLEAN: "TINYINT",
    Type.STRING: "TEXT",
    Type.BYTES: "LONGBLOB",
}
_MARIADB_TEMPORAL = {DATE_NAME: "DATE", TIME_NAME: "TIME(3)", TIMESTAMP_NAME: "DATETIME(3)"}
_MARIADB = ("mysql", "mariadb")
_TEMPORAL = {DATE_NAME: "DATE", TIME_NAME: "TIME", TIMESTAMP_NAME: "TIMESTAMP"}
_PLAIN: tuple[tuple[type, Type], ...] = (
    (bool, Type.BOOLEAN),
    (int, Type.INT64),
    (float, Type.FLOAT64),
    (bytes, Type.BYTES),
)


@dataclass(frozen=True, slots=True)
class ValueRules:
    """How values are written.

    Attributes:
        zone: The time zone of the database's timestamps that have none.
        date_zone: The time zone in which dates are days.
        timestamp_fields: The fields that hold timestamps as numbers or texts.
        nanoseconds: Their unit is the nanosecond, not the microsecond.
    """

    zone: dt.tzinfo = dt.UTC
    date_zone: dt.tzinfo = dt.UTC
    timestamp_fields: frozenset[str] = frozenset()
    nanoseconds: bool = False


@dataclass(slots=True)
class TargetTable:
    """A table as the database has it.

    Attributes:
        name: Its name.
        kind: ``TABLE`` or ``VIEW``.
        columns: The types of its columns: PostgreSQL's, or the names that the database has for them.
        dialect: The database's kind.
    """

    name: TableName
    kind: str
    columns: Mapping[str, PgType | str]
    dialect: str
    _lower: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._lower = {}
        for column in self.columns:
            self._lower[column.lower()] = "" if column.lower() in self._lower else column

    def column(self, field_name: str) -> str | None:
        """Return the column of a field: of its name, or of its name in other letters where only one is like it."""
        return field_name if field_name in self.columns else self._lower.get(field_name.lower()) or None


def described_table(connection: Connection, reader: DatabaseReader, name: TableName) -> TargetTable | None:
    """Return the table as it is now; None: there is none."""
    table = reader.found(connection, name)
    if table is None:
        return None
    dialect = connection.dialect.name
    columns: dict[str, PgType | str]
    if dialect == "postgresql":
        types = Types(lambda text: reader.run(connection, text).first())
        rows = reader.attributes(connection, name)
        columns = {column: types.find(number, modifier) for column, number, modifier, _ in rows}
    else:
        from sqlalchemy import inspect

        if dialect == "sqlite":
            declared = reader.declared(connection, name)
            columns = {column: kind.upper() for column, kind, _ in declared}
        else:
            described = inspect(connection).get_columns(name.name, schema=name.schema)
            columns = {str(each["name"]): str(each["type"]) for each in described}
    return TargetTable(table, table.kind, columns, dialect)


def column_type(dialect: str, name: str, cell: Cell, rules: ValueRules) -> str:
    """Return the type of a column that is made for a field, as statements have it.

    Raises:
        DataError: There is none.
    """
    schema, value = cell
    kind = _type_of(schema, value)
    is_timestamp = name in rules.timestamp_fields and kind in (Type.INT64, Type.STRING)
    if is_timestamp or (isinstance(value, Moment) and schema is None):
        return "DATETIME(6)" if dialect in _MARIADB else "TIMESTAMP"
    if schema is not None and schema.name in _TEMPORAL:
        return (_MARIADB_TEMPORAL if dialect in _MARIADB else _TEMPORAL)[schema.name]
    if (schema is not None and schema.name == DECIMAL_NAME) or (schema is None and isinstance(value, Decimal)):
        return _decimal_type(dialect, schema)
    if schema is not None and schema.name == VARIABLE_SCALE:
        return _decimal_type(dialect, None)
    if dialect == "postgresql":
        if kind is Type.ARRAY and schema is not None and schema.values is not None:
            inner = column_type(dialect, "", (schema.values, None), rules)
            return inner if inner.endswith("[]") else f"{inner}[]"
        return _POSTGRES_TYPES.get(kind, "TEXT")
    if dialect == "sqlite":
        return _SQLITE_TYPES.get(kind, "TEXT")
    return _other_type(dialect, kind)


def _type_of(schema: Schema | None, value: Any) -> Type:
    if schema is not None:
        return schema.type
    return next((connect_type for each, connect_type in _PLAIN if isinstance(value, each)), Type.STRING)


def _decimal_type(dialect: str, schema: Schema | None) -> str:
    digits = int((schema.parameters or {}).get(DECIMAL_PRECISION, 0) or 0) if schema is not None else 0
    scale = 0 if schema is None else scale_of(schema)
    if dialect == "sqlite":
        if not digits:
            return "NUMERIC"
        name = "NUMERIC" if digits <= SQLITE_DIGITS else "DECIMAL_TEXT"  # SQLite's numbers do not have more digits
        return f"{name}({digits},{scale})"
    if dialect == "postgresql":
        return "DECIMAL"
    return f"DECIMAL({65 if dialect in _MARIADB else digits or 38},{scale})"


def _other_type(dialect: str, kind: Type) -> str:
    if dialect in _MARIADB:
        return _MARIADB_TYPES.get(kind, "TEXT")
    return {Type.BYTES: "BLOB"}.get(kind, _POSTGRES_TYPES.get(kind, "TEXT"))


def column_default(dialect: str, name: str, schema: Schema | None, rules: ValueRules) -> str | None:
    """Return the default of a field as a statement has it; None: it has none that a column can have."""
    value = None if schema is None else schema.default
    if schema is None or value is None or isinstance(value, Struct | dict | list):
        return None
    if name in rules.timestamp_fields and schema.type in (Type.INT64, Type.STRING):
        if not re.fullmatch(r"-?[0-9]+", str(value)):
            return None
        value = _micros(value, name, rules)
    if isinstance(value, bool):
        return str(value).upper() if dialect == "postgresql" else str(int(value))
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'" if dialect == "postgresql" else f"x'{value.hex()}'"
    if isinstance(value, Moment | _Micros):
        return str(_clock(value) // 1000) if dialect == "sqlite" else f"'{_moment_text(schema, value, rules)}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"'{value}'" if dialect == "postgresql" else None
    if isinstance(value, str):
        text = value.replace("'", "''")
        return "'{}'".format(text.replace("\\", "\\\\") if dialect in _MARIADB else text)
    return _decimal_text(value) if isinstance(value, Decimal) else repr(value)


def written_value(target: TargetTable, column: str, cell: Cell, rules: ValueRules, *, field_name: str = "") -> Any:
    """Return a value in the form that a column takes.

    Raises:
        DataError: It has none.
    """
    schema, value = cell
    if value is None:
        return None
    if (field_name or column) in rules.timestamp_fields and isinstance(value, int | str):
        schema, value = None, _micros(value, column, rules)
    elif schema is not None and schema.name == VARIABLE_SCALE and isinstance(value, Struct):
        value = decimal_from_bytes(decimal_schema(int(value["scale"])), value["value"])
        schema = None
    try:
        if target.dialect == "postgresql":
            kind = target.columns[column]
            assert isinstance(kind, PgType)  # noqa: S101 - by its dialect
            return _postgres_text(kind, schema, value, rules)
        if target.dialect == "sqlite":
            return _sqlite_value(str(target.columns[column]), schema, value)
        return _plain_value(schema, value, rules)
    except (ValueError, OverflowError, TypeError) as error:
        raise DataError(f"the column {column} of {target.name} does not take this value: {error}") from error


def written_values(
    target: TargetTable, column: str, schema: Schema, values: Sequence[Any], rules: ValueRules, *, field_name: str
) -> list[Any]:
    """Return the values of a field in the form that a column takes, as `written_value` has them.

    Raises:
        DataError: One has none.
    """
    kind = target.columns[column]
    text = None
    if isinstance(kind, PgType) and field_name not in rules.timestamp_fields:
        text = _postgres_writer(kind, schema, rules)
    if text is None:
        return [written_value(target, column, (schema, each), rules, field_name=field_name) for each in values]
    return [None if each is None else text(each) for each in values]


class _Micros(int):
    """Microseconds since 1970, of which Connect has no type."""


def _micros(value: int | str, column: str, rules: ValueRules) -> _Micros:
    try:
        return _Micros(int(value) // (1000 if rules.nanoseconds else 1))
    except ValueError as error:
        raise DataError(
            f"the field {column} is one of timestamp.fields.list and no number",
            hint="Such fields hold micro- or nanoseconds since 1970, as numbers or digits.",
        ) from error


# Times


def _clock(value: Moment | _Micros) -> int:
    return int(value) if isinstance(value, _Micros) else value.ms * 1000


def _date_text(value: Moment, zone: dt.tzinfo) -> str:
    days = local_of(value.ms * 1000, zone) // DAY_US
    year, month, day = civil_of_days(days)
    return f"{year:04}-{month:02}-{day:02}" if year > 0 else f"{1 - year:04}-{month:02}-{day:02} BC"


def _time_text(value: Moment, zone: dt.tzinfo = dt.UTC) -> str:
    shown_ms = value.ms if zone is dt.UTC else local_of(value.ms * 1000, zone) % DAY_US // 1000
    seconds, millis = divmod(shown_ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis:03}000"


def _moment_text(schema: Schema | None, value: Moment | _Micros, rules: ValueRules) -> str:
    name = schema.name if schema is not None else None
    if isinstance(value, Moment) and name == DATE_NAME:
        return _date_text(value, rules.date_zone)
    if isinstance(value, Moment) and name == TIME_NAME:
        return _time_text(value, rules.zone)
    return timestamp_text(local_of(_clock(value), rules.zone))


def _zoned_text(value: Moment | _Micros) -> str:
    text = timestamp_text(_clock(value))
    return f"{text.removesuffix(' BC')}+00 BC" if text.endswith(" BC") else f"{text}+00"


# PostgreSQL


def _postgres_text(kind: PgType, schema: Schema | None, value: Any, rules: ValueRules) -> str:
    """Return the text of a value that the type reads."""
    if type(value) is str:
        return value
    if isinstance(value, list) and kind.element is not None:
        return array_text(_elements(kind.element, schema, value, rules), kind.delimiter)
    if isinstance(value, Moment | _Micros):
        return _postgres_moment(kind, schema, value, rules)
    if isinstance(value, bool):
        return str(int(value)) if kind.name in ("bit", "varbit") else str(value).lower()
    if kind.name in ("bit", "varbit") and isinstance(value, int | bytes):
        number = int.from_bytes(value, "big") if isinstance(value, bytes) else value
        length = kind.modifier if kind.modifier > 0 else len(value) * 8 if isinstance(value, bytes) else 1
        return f"{number & ((1 << length) - 1):0{length}b}"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if kind.name in ("int2", "int4", "int8") and isinstance(value, float | Decimal):
        return _rounded(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, int):
        return _postgres_integer(kind, schema, value, rules)
    if kind.name == "hstore" and isinstance(value, dict):
        return ", ".join(f"{_hstore(key)}=>{'NULL' if each is None else _hstore(each)}" for key, each in value.items())
    if isinstance(value, list | dict | Struct):
        return to_json(schema, value, _JSON)
    return str(value)


def _postgres_writer(kind: PgType, schema: Schema, rules: ValueRules) -> Callable[[Any], str] | None:
    """Return what makes the texts of a field's values, all of which fit its schema; None: each is looked at."""
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        return lambda value: _postgres_moment(kind, schema, value, rules)
    if schema.name is not None or kind.name in ("bit", "varbit"):
        return None
    if schema.type is Type.BOOLEAN:
        return lambda value: "true" if value else "false"
    if schema.type in (Type.INT8, Type.INT16, Type.INT32, Type.INT64):
        return str
    if schema.type is Type.FLOAT64 and kind.name not in ("int2", "int4", "int8"):
        return _float_text
    return None


def _float_text(value: float) -> str:
    return repr(value).replace("inf", "Infinity").replace("nan", "NaN")


def array_type(kind: PgType | str) -> str | None:
    """Return the type of arrays whose elements a column takes as it takes their texts; None: there is none."""
    is_known = isinstance(kind, PgType) and kind.kind == "b" and kind.domain is None and kind.element is None
    return f"pg_catalog.{kind.name}[]" if is_known and kind.name in _OF_ARRAYS else None  # type: ignore[union-attr]


def array_of_texts(values: Iterable[str | None]) -> str:
    r"""Return the text of an array of texts, each in quotes.

    >>> array_of_texts(["a", None, 'b"'])
    '{"a",NULL,"b\\""}'
    """
    return "{" + ",".join(map(_quoted_element, values)) + "}"


def _quoted_element(text: str | None) -> str:
    if text is None:
        return "NULL"
    if '"' in text or "\\" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _rounded(value: float | Decimal) -> str:
    """Return what PostgreSQL assigns to a column of whole numbers: halves go up for decimals, to even for doubles."""
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("it is not a whole number")
    return format(number.to_integral_value(ROUND_HALF_UP if isinstance(value, Decimal) else ROUND_HALF_EVEN), "f")


def _decimal_text(value: Decimal) -> str:
    """Return the digits of a decimal; one of the scale that stands for none comes without the zeros that fill it."""
    text = format(value, "f")
    is_filled = value.as_tuple().exponent == -HIGH_SCALE
    return text.rstrip("0").rstrip(".") if is_filled else text


def _elements(kind: PgType, schema: Schema | None, values: list[Any], rules: ValueRules) -> list[Any]:
    inner = schema.values if schema is not None else None
    return [
        None
        if each is None
        else _elements(kind, inner, each, rules)
        if isinstance(each, list)
        else _postgres_text(kind, inner, each, rules)
        for each in values
    ]


def _hstore(text: Any) -> str:
    return '"{}"'.format(str(text).replace("\\", "\\\\").replace('"', '\\"'))


def _postgres_moment(kind: PgType, schema: Schema | None, value: Moment | _Micros, rules: ValueRules) -> str:
    if isinstance(value, Moment) and value.ms in _INFINITE_OF_MS:
        return _INFINITE_OF_MS[value.ms]
    name = schema.name if schema is not None else None
    if name == DATE_NAME and isinstance(value, Moment) and value.ms in _INFINITE_DATE_OF_MS:
        return _INFINITE_DATE_OF_MS[value.ms]
    is_time = name in (DATE_NAME, TIME_NAME)
    if kind.name == "timestamptz" and not is_time:
        return _zoned_text(value)
    return _moment_text(schema, value, rules)


def _postgres_integer(kind: PgType, schema: Schema | None, value: int, rules: ValueRules) -> str:
    """Return a whole number; Debezium's times as the times that they are, where the column is one."""
    name = (schema.name if schema is not None else None) or ""
    if name in DEBEZIUM_US and kind.name in ("timestamp", "timestamptz", "date"):
        micros = value // 1000 if name.endswith("NanoTimestamp") else value * DEBEZIUM_US[name]
        if name.endswith(".Timestamp") and value in _INFINITE_OF_MS:
            return _INFINITE_OF_MS[value]
        return _postgres_moment(kind, None, _Micros(micros), rules)
    if name == "io.debezium.time.Date" and kind.name in ("date", "timestamp", "timestamptz"):
        return _date_text(Moment(value * (DAY_US // 1000)), dt.UTC)
    if name in ("io.debezium.time.MicroTime", "io.debezium.time.Time") and kind.name == "time":
        return (
            _time_text(Moment(value // 1000 if name.endswith("MicroTime") else value))[:-3] + f"{_rest(name, value):03}"
        )
    return str(value)


def _rest(name: str, value: int) -> int:
    """Return the microseconds behind the milliseconds."""
    return value % 1000 if name.endswith("MicroTime") else 0


# SQLite


def _sqlite_value(kind: str, schema: Schema | None, value: Any) -> Any:
    """Return a value that SQLite keeps as it is; times are milliseconds since 1970, as its JDBC driver has them."""
    if isinstance(value, Moment | _Micros):
        return _clock(value) // 1000
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return _sqlite_decimal(kind, value)
    if isinstance(value, list | dict | Struct):
        return to_json(schema, value, _JSON)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("it has more than 64 bits")
    return value


def _sqlite_decimal(kind: str, value: Decimal) -> Any:
    """Return a decimal: as text where the column keeps texts, else as a number that has all of its digits."""
    if not value.is_finite():
        raise ValueError("SQLite has no decimals that are infinite or no number")
    keeps_text = re.search("CHAR|CLOB|TEXT", kind) or not kind or "BLOB" in kind
    if keeps_text and "INT" not in kind:
        return _decimal_text(value)
    whole = int(value)
    if whole == value and -(1 << 63) <= whole < 1 << 63:
        return whole
    number = float(value)
    if Decimal(repr(number)) != value:
        raise ValueError(f"SQLite's numbers keep {SQLITE_DIGITS} digits; declare the column as TEXT to keep them all")
    return number


# Others


def _plain_value(schema: Schema | None, value: Any, rules: ValueRules) -> Any:
    if isinstance(value, Moment | _Micros):
        name = schema.name if schema is not None else None
        if isinstance(value, Moment) and name == TIME_NAME:
            return (EPOCH_LOCAL + dt.timedelta(microseconds=local_of(value.ms * 1000, rules.zone))).time()
        micros = local_of(_clock(value), rules.date_zone if name == DATE_NAME else rules.zone)
        moment = EPOCH_LOCAL + dt.timedelta(microseconds=micros)
        return moment.date() if name == DATE_NAME else moment
    if isinstance(value, list | dict | Struct):
        return to_json(schema, value, _JSON)
    return value
