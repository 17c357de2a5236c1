"""Columns of PostgreSQL's types as Debezium has them: schemas, and values of their texts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.connect.connectors.postgres.pgoutput import UNCHANGED, Cell
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    Struct,
    Type,
    array,
    decimal_schema,
    struct,
)
from penstock.connect.data.logical import decimal_to_bytes

__all__ = ["UNAVAILABLE", "ColumnForm", "Handling", "column_form"]

UNAVAILABLE = "__debezium_unavailable_value"
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as the column says
FIRST_DAY = dt.date(1970, 1, 1)
VARIABLE = struct({"scale": INT32, "value": BYTES}, name="io.debezium.data.VariableScaleDecimal", version=1)
INFINITE = {"infinity": 1, "-infinity": -1}
LONGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Handling:
    """How numbers and times are written.

    Attributes:
        decimals: ``precise``, ``string`` or ``double`` (``decimal.handling.mode``).
        times: ``adaptive`` (Debezium's types, to the microsecond) or ``connect`` (``time.precision.mode``).
    """

    decimals: str = "precise"
    times: str = "adaptive"


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A column's schema, and what makes a value of its text."""

    schema: Schema
    read: Callable[[str], Any]

    def value(self, cell: Cell) -> Any:
        """The value of a cell.

        Raises:
            DataError: The text is none of the column's type.
        """
        if cell is None:
            return None
        if cell is UNCHANGED:
            return _unavailable(self.schema)
        try:
            return self.read(str(cell))
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise DataError(f"{str(cell)[:100]!r} is no value of the type {self.schema}: {error}") from error


def column_form(kind: int, modifier: int, handling: Handling, *, nullable: bool) -> ColumnForm:
    """The form of a column's type, by its number; types that are not known are text.

    >>> column_form(23, -1, Handling(), nullable=False).value("7")
    7
    """
    if kind in ARRAYS:
        inner = _plain(ARRAYS[kind], modifier, handling)
        form = ColumnForm(array(inner.schema.as_optional()), lambda text: _array(text, inner.read))
    else:
        form = _plain(kind, modifier, handling)
    return replace(form, schema=form.schema.as_optional(nullable))


def _plain(kind: int, modifier: int, handling: Handling) -> ColumnForm:
    if kind == 1700:
        return _numeric(modifier, handling)
    if kind in TEMPORAL:
        own, connects = TEMPORAL[kind]
        return own if handling.times == "adaptive" or connects is None else connects
    return FORMS.get(kind, ColumnForm(STRING, str))


def _numeric(modifier: int, handling: Handling) -> ColumnForm:
    if handling.decimals == "string":
        return ColumnForm(STRING, str)
    if handling.decimals == "double":
        return ColumnForm(FLOAT64, float)
    if modifier < 0:
        return ColumnForm(VARIABLE, _variable)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale = scale - 0x800 if scale > 0x3FF else scale
    schema = decimal_schema(scale)
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return ColumnForm(
        replace(schema, parameters=parameters), lambda text: _finite(text).quantize(Decimal(1).scaleb(-scale))
    )


def _finite(text: str) -> Decimal:
    found = Decimal(text)
    if not found.is_finite():
        raise ValueError("decimals are finite; decimal.handling.mode=string or double takes NaN and infinity")
    return found


def _variable(text: str) -> Struct:
    found = _finite(text)
    exponent = found.as_tuple().exponent
    scale = -int(exponent)
    return Struct(VARIABLE, {"scale": scale, "value": decimal_to_bytes(decimal_schema(scale), found)})


def _moment_us(text: str, epoch: dt.datetime) -> int:
    if text in INFINITE:
        return INFINITE[text] * LONGEST
    return (_datetime(text) - epoch) // dt.timedelta(microseconds=1)


def _datetime(text: str) -> dt.datetime:
    """PostgreSQL's ISO form: a fraction of any length, an offset of hours or more.

    >>> _datetime("2024-01-01 10:00:00.5+02").isoformat()
    '2024-01-01T10:00:00.500000+02:00'
    """
    if text.endswith(" BC"):
        raise ValueError("years before Christ")
    return dt.datetime.fromisoformat(text)


def _zoned(text: str) -> str:
    if text in INFINITE:
        return text
    moment = _datetime(text).astimezone(dt.UTC)
    fraction = f"{moment.microsecond:06}"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction}Z"


def _time_us(text: str) -> int:
    if text.startswith("24:"):
        return 86_400_000_000
    moment = dt.time.fromisoformat(text)
    return ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond


def _zoned_time(text: str) -> str:
    zoned = dt.datetime.combine(dt.date(2000, 1, 1), dt.time.fromisoformat(text))
    moment = zoned.astimezone(dt.UTC).time()
    return f"{moment.isoformat()}Z"


def _days(text: str) -> int:
    if text in INFINITE:
        return INFINITE[text] * ((1 << 31) - 1)
    return (dt.date.fromisoformat(text) - FIRST_DAY).days


def _array(text: str, read: Callable[[str], Any]) -> list[Any]:
    r"""The elements of ``{1,NULL,"a,b"}``.

    >>> _array('{1,NULL,"a\\"b"}', str)
    ['1', None, 'a"b']
    """
    if not text.startswith("{") or "{" in text[1:2]:
        raise ValueError("arrays of one dimension only")
    found: list[Any] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == '"':
            part, at = "", at + 1
            while text[at] != '"':
                at += text[at] == "\\"
                part += text[at]
                at += 1
            at += 1
            found.append(read(part))
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            part, at = text[at:stop], stop
            found.append(None if part == "NULL" else read(part))
        at += 1
    return found


def _unavailable(schema: Schema) -> Any:
    """Debezium's mark of a value that the server does not send."""
    if schema.type is Type.STRING:
        return UNAVAILABLE
    if schema.type is Type.BYTES and schema.name is None:
        return UNAVAILABLE.encode()
    if schema.type is Type.ARRAY and schema.values is not None and schema.values.type is Type.STRING:
        return [UNAVAILABLE]
    return None


def _named(schema: Schema, name: str) -> Schema:
    return replace(schema, name=name, version=1)


_TIME = "io.debezium.time"
FORMS: dict[int, ColumnForm] = {
    16: ColumnForm(BOOLEAN, lambda text: text == "t"),
    17: ColumnForm(BYTES, lambda text: bytes.fromhex(text.removeprefix("\\x"))),
    20: ColumnForm(INT64, int),
    21: ColumnForm(INT16, int),
    23: ColumnForm(INT32, int),
    26: ColumnForm(INT64, int),
    114: ColumnForm(_named(STRING, "io.debezium.data.Json"), str),
    142: ColumnForm(_named(STRING, "io.debezium.data.Xml"), str),
    700: ColumnForm(FLOAT32, float),
    701: ColumnForm(FLOAT64, float),
    2950: ColumnForm(_named(STRING, "io.debezium.data.Uuid"), str),
    3802: ColumnForm(_named(STRING, "io.debezium.data.Json"), str),
}
TEMPORAL: dict[int, tuple[ColumnForm, ColumnForm | None]] = {
    1082: (
        ColumnForm(_named(INT32, f"{_TIME}.Date"), _days),
        ColumnForm(DATE, lambda text: Moment.of(dt.date.fromisoformat(text))),
    ),
    1083: (
        ColumnForm(_named(INT64, f"{_TIME}.MicroTime"), _time_us),
        ColumnForm(TIME, lambda text: Moment(_time_us(text) // 1000)),
    ),
    1114: (
        ColumnForm(_named(INT64, f"{_TIME}.MicroTimestamp"), lambda text: _moment_us(text, EPOCH)),
        ColumnForm(TIMESTAMP, lambda text: Moment(_moment_us(text, EPOCH) // 1000)),
    ),
    1184: (ColumnForm(_named(STRING, f"{_TIME}.ZonedTimestamp"), _zoned), None),
    1266: (ColumnForm(_named(STRING, f"{_TIME}.ZonedTime"), _zoned_time), None),
}
ARRAYS = {1000: 16, 1001: 17, 1005: 21, 1007: 23, 1016: 20, 1021: 700, 1022: 701, 1009: 25, 1015: 1043, 1014: 1042}
ARRAYS |= {1182: 1082, 1115: 1114, 1185: 1184, 1231: 1700, 2951: 2950, 199: 114, 3807: 3802}
