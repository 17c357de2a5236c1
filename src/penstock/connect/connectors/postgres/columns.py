"""Columns of PostgreSQL's types as Debezium has them: schemas, and values of their texts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct as packing
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.base.java_text.numbers import double_text
from penstock.connect.connectors.postgres.pgoutput import UNCHANGED, Cell
from penstock.connect.connectors.postgres.type_texts import (
    DAY_US,
    civil_of_days,
    days_of_civil,
    parse_array,
    parse_date,
    parse_time,
    parse_timestamp,
    timestamp_text,
)
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
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
    map_of,
    struct,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    decimal_to_bytes,
    scaled_decimal,
    unscaled,
)

__all__ = ["UNAVAILABLE", "ColumnForm", "Handling", "column_form", "with_schema"]

UNAVAILABLE = "__debezium_unavailable_value"
VARIABLE = replace(
    struct({"scale": INT32, "value": BYTES}, name="io.debezium.data.VariableScaleDecimal", version=1),
    doc="Variable scaled decimal",
)
POINT = replace(
    struct(
        {"x": FLOAT64, "y": FLOAT64, "wkb": OPTIONAL_BYTES, "srid": OPTIONAL_INT32},
        name="io.debezium.data.geometry.Point",
        version=1,
    ),
    doc="Geometry (POINT)",
)
INFINITE_US = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
INFINITE_NS = {"infinity": (1 << 63) - 1, "-infinity": -(1 << 63)}
INFINITE_DAYS = {"infinity": -2_147_472_692, "-infinity": -2_147_472_691}  # 2000-01-01 and the most of 32 bits
INFINITE_DATES = {"infinity": (292_278_994, 8, 16), "-infinity": (292_269_055, 12, 2)}  # of Java's java.sql.Date
GREGORIAN_BEGIN = (1582, 10, 5), (1582, 10, 15)
SPECIAL_DECIMALS = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
LONGEST = (1 << 63) - 1
MOST_SCALE = 1000
MONTH_US = 2_629_800_000_000  # a twelfth of 365.25 days
MICROS_DIGITS = 6
_INTERVAL = re.compile(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?")
_PAIR = re.compile(r'\s*("(?:[^"\\]|\\.)*")=>(NULL|"(?:[^"\\]|\\.)*")\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class Handling:
    """How values are written, by the settings of the same names.

    Attributes:
        decimals: ``decimal.handling.mode``.
        times: ``time.precision.mode``.
        intervals: ``interval.handling.mode``.
        hstore: ``hstore.handling.mode``.
        binary: ``binary.handling.mode``.
        unknown: ``include.unknown.datatypes``.
        unavailable: ``unavailable.value.placeholder``.
        snapshot: For rows that are read by a query, in which Debezium has some dates in another calendar.
        in_array: For elements of arrays: Debezium has dates as in a snapshot, and cuts times.
    """

    decimals: str = "precise"
    times: str = "adaptive"
    intervals: str = "numeric"
    hstore: str = "json"
    binary: str = "bytes"
    unknown: bool = False
    unavailable: str = UNAVAILABLE
    snapshot: bool = False
    in_array: bool = False


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A column's schema, and what makes a value of its text.

    Attributes:
        schema: The schema.
        read: Makes the value.
        unavailable: What stands for a large value that the server does not send.
        null: What stands for null; None: null itself.
        zero: What stands for null where null cannot be.
        shows: Whether messages may show the text.
    """

    schema: Schema
    read: Callable[[str], Any]
    unavailable: Any = None
    null: Any = None
    zero: Any = None
    shows: bool = True

    def value(self, cell: Cell) -> Any:
        """Return the value of a cell; None if it is null, or its type has no such value.

        Raises:
            DataError: The text is none of the column's type.
        """
        if cell is None:
            return self.null
        if cell is UNCHANGED:
            return self.unavailable
        try:
            return self.read(str(cell))
        except (ValueError, InvalidOperation, OverflowError) as error:
            reason = f": {error}" if self.shows else ""
            raise DataError(f"{self.shown(cell)} is not a value of the type {self.schema}{reason}") from None

    def shown(self, cell: Cell) -> str:
        """Return a cell in a message."""
        return repr(str(cell)[:100]) if self.shows else "a text"


def column_form(kind: int | PgType, modifier: int, handling: Handling, *, nullable: bool) -> ColumnForm | None:
    """Return the form of a column's type; None: Debezium does not have the type, and the column is left out.

    >>> column_form(23, -1, Handling(), nullable=False).value("7")
    7
    """
    pg_type = kind if isinstance(kind, PgType) else PgType(kind, BUILT_IN.get(kind, str(kind)), modifier=modifier)
    form = _form(pg_type, handling)
    if form is None:
        return None
    nullable_form = with_schema(form, form.schema.as_optional(nullable))
    return replace(
        nullable_form,
        unavailable=_unavailable(nullable_form.schema, pg_type, handling),
        zero=None if nullable else _zero(nullable_form) if form.zero is None else form.zero,
    )


ZERO_TIMES = {
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z",
    "io.debezium.time.ZonedTime": "00:00:00Z",
    "io.debezium.time.IsoDate": "1970-01-01Z",
    "io.debezium.time.IsoTime": "00:00:00Z",
    "io.debezium.time.IsoTimestamp": "1970-01-01T00:00:00Z",
}


def _zero(form: ColumnForm) -> Any:
    """Return a value in place of one that the server does not send, for a column that cannot be null."""
    schema = form.schema
    if schema.type is Type.STRUCT or schema.name == DECIMAL_NAME:
        return form.value("(0,0)" if (schema.name or "").endswith("Point") else "0")
    if schema.name in ZERO_TIMES:
        return ZERO_TIMES[schema.name]
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        return Moment(0)
    zeros: dict[Type, Any] = {Type.STRING: "", Type.BYTES: b"", Type.BOOLEAN: False, Type.ARRAY: [], Type.MAP: {}}
    zeros |= {Type.FLOAT32: 0.0, Type.FLOAT64: 0.0}
    return zeros.get(schema.type, 0)


def with_schema(form: ColumnForm, schema: Schema) -> ColumnForm:
    """Return the form with another schema of its type; structs say theirs themselves."""
    if schema.type is not Type.STRUCT:
        return replace(form, schema=schema)

    def of_schema(parsed: Struct | None) -> Struct | None:
        return None if parsed is None else Struct.of_checked(schema, parsed.all_raw())

    read = form.read
    return replace(form, schema=schema, read=lambda text: of_schema(read(text)), zero=of_schema(form.zero))


def _form(kind: PgType, handling: Handling) -> ColumnForm | None:
    if kind.element is not None:
        return _array_form(kind, kind.element, handling)
    if kind.kind == "e":
        allowed = {"allowed": kind.labels or ""}
        return ColumnForm(replace(STRING, name="io.debezium.data.Enum", version=1, parameters=allowed), str)
    make = MAKERS.get(kind.name)
    if make is not None:
        return make(kind, handling)
    if kind.name in PLAIN:
        return PLAIN[kind.name]
    if kind.name in GEOMETRIES and handling.unknown:
        return _binary(handling, lambda text: _java_numbers(text).encode())
    if kind.name.isdigit():
        return ColumnForm(STRING, str)  # nothing is known of it
    return _binary(handling, str.encode) if handling.unknown else None


GEOMETRIES = ("line", "lseg", "box", "path", "polygon", "circle")


def _java_numbers(text: str) -> str:
    """Return a geometry whose numbers are written as Java writes them.

    >>> _java_numbers("<(1,2.5),1e+30>")
    '<(1.0,2.5),1.0E30>'
    """
    return re.sub(r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|Infinity|NaN)", lambda match: double_text(float(match[0])), text)


def _array_form(kind: PgType, element: PgType, handling: Handling) -> ColumnForm | None:
    plain = _form(element, replace(handling, in_array=True))
    if plain is None or element.name in ("money", "interval", "xml", "point") or element.domain is not None:
        return None
    is_enum = element.kind == "e"
    inner = with_schema(plain, plain.schema.as_optional(not is_enum and element.kind != "c"))
    read = inner.read

    def items(text: str) -> list[Any] | None:
        elements = parse_array(text, kind.delimiter)
        if is_enum and None in elements:
            return None  # its elements are never null, by Debezium's schema
        return [None if each is None or isinstance(each, list) else read(each) for each in elements]

    return ColumnForm(array(inner.schema), items)


def _unavailable(schema: Schema, kind: PgType, handling: Handling) -> Any:
    """Debezium's mark of a value that the server does not send, where the type can have it."""
    mark = handling.unavailable
    if kind.name == "bytea" and handling.binary.startswith("base64"):
        return None
    if schema.type is Type.STRING:
        return mark
    if schema.type is Type.BYTES and schema.name is None:
        return mark.encode()
    if schema.type is Type.MAP:
        return {mark: mark}
    element = None if kind.element is None else kind.element.name
    if element in ("text", "varchar", "json", "jsonb"):
        return [mark]
    is_number = schema.values is not None and schema.values.type in (Type.INT32, Type.INT64)
    if element in ("int4", "int8", "date") and is_number and (element != "date" or handling.times != "connect"):
        return list(mark.encode())
    if element == "uuid":
        return [str(uuid.UUID(bytes=hashlib.md5(mark.encode(), usedforsecurity=False).digest(), version=3))]
    return None


# Numbers


def _numeric(kind: PgType, handling: Handling) -> ColumnForm:
    modifier = kind.modifier
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF  # -2 is 2046, as in Debezium
    if handling.decimals == "string":
        zero = f"{scaled_decimal(0, scale if modifier >= 0 else 0):f}"
        if modifier < 0 or scale <= MOST_SCALE:
            return ColumnForm(STRING, lambda text: SPECIAL_DECIMALS.get(text, text), zero=zero)
        return ColumnForm(
            STRING, lambda text: SPECIAL_DECIMALS.get(text) or f"{_scaled(Decimal(text), scale):f}", zero=zero
        )
    if handling.decimals == "double":
        return ColumnForm(FLOAT64, float)
    if modifier < 0:
        return ColumnForm(VARIABLE, _variable)
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return ColumnForm(
        replace(decimal_schema(scale), parameters=parameters),
        lambda text: None if text in SPECIAL_DECIMALS else _scaled(Decimal(text), scale),
    )


def _scaled(value: Decimal, scale: int) -> Decimal:
    """Return the same number with this scale; PostgreSQL has rounded it already."""
    number, has = unscaled(value)
    number = number * 10 ** (scale - has) if scale >= has else number // 10 ** (has - scale)
    return scaled_decimal(number, scale)


def _variable(text: str) -> Struct | None:
    if text in SPECIAL_DECIMALS:
        return None
    number, scale = unscaled(Decimal(text))
    while scale > 0 and number % 10 == 0:
        number, scale = number // 10, scale - 1
    if scale < 0:
        number, scale = number * 10**-scale, 0
    value = decimal_to_bytes(decimal_schema(scale), scaled_decimal(number, scale))
    return Struct(VARIABLE, {"scale": scale, "value": value})


def _money(_kind: PgType, handling: Handling) -> ColumnForm:
    def plain(text: str) -> str:
        digits = re.sub(r"[^0-9.]", "", text)
        return f"-{digits}" if "-" in text or "(" in text else digits

    if handling.decimals == "string":
        return ColumnForm(STRING, plain, zero="0.00")
    if handling.decimals == "double":
        return ColumnForm(FLOAT64, lambda text: float(plain(text)))
    return ColumnForm(decimal_schema(2), lambda text: _scaled(Decimal(plain(text)), 2))


def _bits(kind: PgType, _handling: Handling) -> ColumnForm:
    if kind.name == "bit" and kind.modifier <= 1:
        return ColumnForm(BOOLEAN, lambda text: text == "1")
    length = str(kind.modifier if kind.modifier > 0 else (1 << 31) - 1)

    def read(text: str) -> bytes:
        number = int(text, 2) if text else 0
        return number.to_bytes((number.bit_length() + 7) // 8, "little")

    return ColumnForm(replace(BYTES, name="io.debezium.data.Bits", version=1, parameters={"length": length}), read)


# Bytes and texts


def _bytea(_kind: PgType, handling: Handling) -> ColumnForm:
    return _binary(handling, lambda text: bytes.fromhex(text.removeprefix("\\x")))


def _binary(handling: Handling, data: Callable[[str], bytes]) -> ColumnForm:
    match handling.binary:
        case "base64":
            return ColumnForm(STRING, lambda text: base64.b64encode(data(text)).decode())
        case "base64-url-safe":
            return ColumnForm(STRING, lambda text: base64.urlsafe_b64encode(data(text)).decode())
        case "hex":
            return ColumnForm(STRING, lambda text: data(text).hex())
    return ColumnForm(BYTES, data)


def _hstore(_kind: PgType, handling: Handling) -> ColumnForm:
    if handling.hstore == "map":
        return ColumnForm(map_of(STRING, OPTIONAL_STRING), _pairs)

    def read(text: str) -> str:
        return json.dumps(_pairs(text), ensure_ascii=False, separators=(",", ":"))

    return ColumnForm(_named(STRING, "io.debezium.data.Json"), read, zero="{}")


def _pairs(text: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueError("it is not an hstore")
        key, value = pair.groups()
        pairs[_unquoted(key)] = None if value == "NULL" else _unquoted(value)
        at = pair.end()
    return pairs


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _point(text: str) -> Struct:
    x, _, y = text.strip("()").partition(",")
    numbers = float(x), float(y)
    wkb = packing.pack("<BIdd", 1, 1, *numbers)
    return Struct(POINT, {"x": numbers[0], "y": numbers[1], "wkb": wkb, "srid": None})


# Times


def _timestamp(kind: PgType, handling: Handling) -> ColumnForm:
    digits = kind.modifier if 0 <= kind.modifier < MICROS_DIGITS else MICROS_DIGITS
    mode = handling.times
    if mode == "connect":
        return ColumnForm(TIMESTAMP, lambda text: Moment((INFINITE_US.get(text) or parse_timestamp(text)) // 1000))
    if mode == "isostring":
        return ColumnForm(_time_named(STRING, "IsoTimestamp"), _iso_timestamp)
    if mode == "nanoseconds":
        return ColumnForm(_time_named(INT64, "NanoTimestamp"), _nanos)
    if mode.startswith("adaptive") and digits <= 3:
        return ColumnForm(_time_named(INT64, "Timestamp"), lambda text: _micros(text, 1000))
    return ColumnForm(_time_named(INT64, "MicroTimestamp"), lambda text: _micros(text, 1))


def _saturated(micros: int) -> int:
    """Microseconds as Debezium has them beyond 64 bits: seconds end at the most, and the rest is added all the same.

    >>> _saturated(9_224_318_015_999_999_999)
    -9223372036853775810
    """
    seconds, rest = divmod(micros, 1_000_000)
    total = min(max(seconds * 1_000_000, -LONGEST - 1), LONGEST) + rest
    return (total + LONGEST + 1) % (1 << 64) - LONGEST - 1


def _micros(text: str, unit: int) -> int:
    micros = INFINITE_US[text] if text in INFINITE_US else parse_timestamp(text)
    return _saturated(micros) if unit == 1 else micros // unit


def _nanos(text: str) -> int | None:
    nanos = INFINITE_NS[text] if text in INFINITE_NS else parse_timestamp(text) * 1000
    return None if abs(nanos) > LONGEST + 1 else nanos


def _iso_timestamp(text: str) -> str:
    if text in INFINITE_US:
        return text
    return f"{_java_time(parse_timestamp(text), MICROS_DIGITS, trims=True)}Z"


def _zoned(kind: PgType, _handling: Handling) -> ColumnForm:
    digits = kind.modifier if 0 <= kind.modifier < MICROS_DIGITS else MICROS_DIGITS

    def read(text: str) -> str:
        return text if text in INFINITE_US else f"{_java_time(parse_timestamp(text), digits)}Z"

    return ColumnForm(_time_named(STRING, "ZonedTimestamp"), read)


def _java_time(micros: int, digits: int, *, trims: bool = False) -> str:
    """Return a moment as Java writes it: years of four digits or more, with a sign before 1 and after 9999."""
    days, rest = divmod(micros, DAY_US)
    clock = timestamp_text(rest)[11:]
    seconds, _, fraction = clock.partition(".")
    fraction = fraction.rstrip("0") if trims else fraction[:digits]
    return f"{_java_date(days)}T{seconds}{'.' if fraction else ''}{fraction}"


def _java_date(days: int) -> str:
    year, month, day = civil_of_days(days)
    years = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{years}-{month:02}-{day:02}"


def _time(kind: PgType, handling: Handling) -> ColumnForm:
    digits = kind.modifier if 0 <= kind.modifier < MICROS_DIGITS else MICROS_DIGITS

    def micros(text: str) -> int:
        clock = parse_time(text)[0]
        return clock // 1000 * 1000 if handling.in_array else clock

    match handling.times:
        case "connect":
            return ColumnForm(TIME, lambda text: Moment(micros(text) // 1000))
        case "isostring":
            return ColumnForm(_time_named(STRING, "IsoTime"), lambda text: f"{_clock(micros(text))}Z")
        case "nanoseconds":
            return ColumnForm(_time_named(INT64, "NanoTime"), lambda text: micros(text) * 1000)
        case "adaptive" if digits <= 3:
            return ColumnForm(_time_named(INT32, "Time"), lambda text: micros(text) // 1000)
    return ColumnForm(_time_named(INT64, "MicroTime"), micros)


def _clock(micros: int) -> str:
    seconds, _, fraction = timestamp_text(micros % DAY_US)[11:].partition(".")
    fraction = fraction.rstrip("0")
    return f"{seconds}{'.' if fraction else ''}{fraction}"


def _zoned_time(_kind: PgType, handling: Handling) -> ColumnForm:
    def read(text: str) -> str:
        micros, offset = parse_time(text)
        clock = _clock(micros - offset)
        return f"{clock.partition('.')[0] if handling.in_array else clock}Z"

    return ColumnForm(_time_named(STRING, "ZonedTime"), read)


def _date(_kind: PgType, handling: Handling) -> ColumnForm:
    by_query = handling.snapshot or handling.in_array

    def days(text: str) -> int:
        return _wrapped(days_of_civil(*_query_date(text))) if by_query else _days(text)

    if handling.times == "connect":
        return ColumnForm(DATE, lambda text: Moment(days(text) * (DAY_US // 1000)))
    if handling.times == "isostring":

        def iso(text: str) -> str:
            return f"{_java_date(days_of_civil(*_query_date(text)) if by_query else _days(text))}Z"

        return ColumnForm(_time_named(STRING, "IsoDate"), iso)
    return ColumnForm(_time_named(INT32, "Date"), days)


def _query_date(text: str) -> tuple[int, int, int]:
    """The date of a row that Debezium reads by a query: without the era, and the days that 1582 lacks ten days later.

    >>> _query_date("0044-03-15 BC"), _query_date("1582-10-05")
    ((44, 3, 15), (1582, 10, 15))
    """
    if text in INFINITE_DATES:
        return INFINITE_DATES[text]
    year, month, day = civil_of_days(parse_date(text))
    date = (1 - year if year < 1 else year), month, day
    return (year, month, day + 10) if GREGORIAN_BEGIN[0] <= date < GREGORIAN_BEGIN[1] else date


def _wrapped(days: int) -> int:
    return (days + (1 << 31)) % (1 << 32) - (1 << 31)


def _days(text: str) -> int:
    return INFINITE_DAYS[text] if text in INFINITE_DAYS else parse_date(text)


def _interval(_kind: PgType, handling: Handling) -> ColumnForm:
    if handling.intervals == "string":
        return ColumnForm(_time_named(STRING, "Interval"), _iso_interval, zero="P0Y0M0DT0H0M0S")

    def micros(text: str) -> int | None:
        years, months, days, hours, minutes, seconds = (Decimal(each) for each in _parts(text))
        whole = (years * 12 + months) * MONTH_US + days * DAY_US
        total = int(whole + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000)
        return None if abs(total) > LONGEST else total

    return ColumnForm(_time_named(INT64, "MicroDuration"), micros)


def _iso_interval(text: str) -> str:
    return "P{}Y{}M{}DT{}H{}M{}S".format(*_parts(text))


def _parts(text: str) -> list[str]:
    """Years, months, days, hours, minutes and seconds of an interval in ISO's form."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError("it is not an interval")
    return [each or "0" for each in match.groups()]


def _named(schema: Schema, name: str) -> Schema:
    return replace(schema, name=name, version=1)


def _time_named(schema: Schema, name: str) -> Schema:
    return _named(schema, f"io.debezium.time.{name}")


MAKERS: dict[str, Callable[[PgType, Handling], ColumnForm]] = {
    "numeric": _numeric,
    "money": _money,
    "bit": _bits,
    "varbit": _bits,
    "bytea": _bytea,
    "hstore": _hstore,
    "timestamp": _timestamp,
    "timestamptz": _zoned,
    "time": _time,
    "timetz": _zoned_time,
    "date": _date,
    "interval": _interval,
}
_TEXTS = (
    "text", "varchar", "bpchar", "char", "name", "citext", "inet", "cidr", "macaddr", "macaddr8", "int4range",
    "int8range", "numrange", "tsrange", "tstzrange", "daterange", "isbn",
)  # fmt: skip
PLAIN: dict[str, ColumnForm] = {
    **dict.fromkeys(_TEXTS, ColumnForm(STRING, str)),
    "bool": ColumnForm(BOOLEAN, lambda text: text == "t"),
    "int2": ColumnForm(INT16, int),
    "int4": ColumnForm(INT32, int),
    "int8": ColumnForm(INT64, int),
    "oid": ColumnForm(INT64, int),
    "float4": ColumnForm(FLOAT32, float),
    "float8": ColumnForm(FLOAT64, float),
    "json": ColumnForm(_named(STRING, "io.debezium.data.Json"), str),
    "jsonb": ColumnForm(_named(STRING, "io.debezium.data.Json"), str),
    "xml": ColumnForm(_named(STRING, "io.debezium.data.Xml"), str),
    "uuid": ColumnForm(_named(STRING, "io.debezium.data.Uuid"), str),
    "ltree": ColumnForm(_named(STRING, "io.debezium.data.Ltree"), str),
    "tsvector": ColumnForm(_named(STRING, "io.debezium.data.Tsvector"), str),
    "point": ColumnForm(POINT, _point),
}
BUILT_IN = {16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid", 114: "json"}
BUILT_IN |= {700: "float4", 701: "float8", 1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time"}
BUILT_IN |= {1114: "timestamp", 1184: "timestamptz", 1266: "timetz", 1700: "numeric", 2950: "uuid", 3802: "jsonb"}
