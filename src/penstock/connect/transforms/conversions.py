"""Cast, and TimestampConverter: fields or the whole key or value in another type."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar

from penstock.base.java_text.dates import SimpleDateFormat
from penstock.base.java_text.hashing import hash_order
from penstock.base.java_text.numbers import parse_double, parse_integer, to_float32
from penstock.base.java_text.texts import JavaTextError, is_blank
from penstock.connect.config import Check, ConfigDef, Importance, Kind, OneOf
from penstock.connect.converters.headers import moment_text
from penstock.connect.data import (
    DATE,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Moment,
    Schema,
    SettingError,
    Struct,
    Type,
    UnexpectedDataError,
    copy_basics,
    java_class,
    type_of,
    with_default,
    with_struct_default,
    wrapped,
)
from penstock.connect.transforms.transformation import (
    REPLACE_NULL,
    R,
    SidedTransformation,
    require_map,
    require_struct,
    required,
    schema_cache,
    setting,
)
from penstock.errors import ConnectError
from penstock.serde.data.logical import DATE_NAME, DAY_MS, TIME_NAME, TIMESTAMP_NAME, days_of, millis_of_day
from penstock.serde.data.values import java_text

__all__ = ["Cast", "TimestampConverter"]

PURPOSE = "cast types"
KNOWN = {kind.name: kind for kind in Type}
OUTPUTS = (
    *(Type.INT8, Type.INT16, Type.INT32, Type.INT64),
    *(Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING),
)
INPUTS = (*OUTPUTS, Type.BYTES)
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}


def _parse(mappings: list[str]) -> dict[str | None, Type]:
    """Return the types by field; None stands for the whole value."""
    casts: dict[str | None, Type] = {}
    whole = False
    for mapping in mappings:
        parts = mapping.split(":")
        while len(parts) > 1 and parts[-1] == "":  # as Java's split leaves them out
            parts.pop()
        if len(parts) > 2:
            raise SettingError.invalid("renames", mappings, f"Invalid rename mapping: {mapping}")
        field, word = (parts[0].strip(), parts[1]) if len(parts) == 2 else (None, parts[0])
        kind = KNOWN.get(word.strip().upper())
        if kind is None:
            reason = f"No enum constant org.apache.kafka.connect.data.Schema.Type.{word.strip().upper()}"
            name = f"Invalid type found in casting spec: {word.strip()}"
            raise SettingError(f"Invalid value java.lang.IllegalArgumentException: {reason} for configuration {name}")
        if kind not in OUTPUTS:
            supported = ", ".join(map(str, OUTPUTS))
            raise SettingError(
                f"Cast transformation does not support casting to {kind}; supported types are [{supported}]"
            )
        whole = whole or field is None
        casts[field] = kind
    if whole and len(mappings) > 1:
        raise SettingError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast "
            "in their spec"
        )
    return casts


def _check(_name: str, value: list[str] | None) -> None:
    if not value:
        raise SettingError("Must specify at least one field to cast.")
    _parse(value)


class Cast(SidedTransformation):
    """Cast fields, or the entire key or value, to a specific type, e.g. an integer to a smaller width.

    From integers, floats, booleans and strings to any other such type, and from bytes to a string (base64).
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "spec",
                Kind.LIST,
                "List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of "
                "Maps or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, "
                "float32, float64, boolean, and string. Note that binary fields can only be cast to string.",
                rule=Check(_check, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
                importance=Importance.HIGH,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._casts = _parse(parsed["spec"])
        self._whole = self._casts.get(None)
        self._fields = hash_order(field for field in self._casts if field is not None)
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._schemas = schema_cache(self._changed)

    def apply(self, record: R) -> R:
        """Return the record with the fields, or the whole value, cast."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            if self._whole is not None:
                return self.updated(record, None, cast_value(None, value, self._whole))
            fields = require_map(value, PURPOSE)
            casts = {field: cast_value(None, fields.get(field), self._casts[field]) for field in self._fields}
            return self.updated(record, None, {**fields, **casts})
        if self._whole is not None:
            changed = self._schemas(schema)
            return self.updated(record, changed, cast_value(schema, value, self._whole))
        changed = self._schemas(schema)
        before = require_struct(value, PURPOSE)
        after = Struct(changed)
        for part in before.schema.fields:
            original = before.get(part, with_default=self.replace_null)
            kind = self._casts.get(part.name)
            after[part.name] = original if kind is None else cast_value(part.schema, original, kind)
        return self.updated(record, changed, after)

    def _changed(self, schema: Schema) -> Schema:
        if self._whole is not None:
            changed = copy_basics(schema, self._whole)
        else:
            fields = [(part.name, self._changed_field(part.name, part.schema)) for part in schema.struct_fields()]
            changed = copy_basics(schema, Type.STRUCT, fields)
        return _with_nulls(changed, schema)

    def _changed_field(self, name: str, schema: Schema) -> Schema:
        kind = self._casts.get(name)
        return schema if kind is None else _with_nulls(Schema(kind), schema)


def _with_nulls(changed: Schema, source: Schema) -> Schema:
    """Return a schema that is optional as another is, and has its default, cast."""
    changed = replace(changed, optional=source.optional)
    if source.default is None:
        return changed
    return with_default(changed, cast_value(source, source.default, changed.type))


def check_input(kind: Type) -> None:
    """Check that values of a type can be cast.

    Raises:
        DataError: They cannot.
    """
    if kind not in INPUTS:
        supported = ", ".join(map(str, INPUTS))
        raise DataError(f"Cast transformation does not support casting from {kind}; supported types are [{supported}]")


def cast_value(schema: Schema | None, value: Any, target: Type) -> Any:
    """Return a value in another type; null stays null.

    Args:
        schema: Its schema; None if it has none.
        value: The value.
        target: The type.

    Raises:
        DataError: It cannot be cast, or is a text that is not of the type.

    Example:
        >>> cast_value(None, "12", Type.INT8), cast_value(None, 300, Type.INT8), cast_value(None, 1.5, Type.STRING)
        (12, 44, '1.5')
    """
    if value is None:
        return None
    kind = type_of(value) if schema is None else schema.type
    if kind is None:
        raise DataError(
            f"Cast transformation was passed a value of type class {java_class(value)} "
            "which is not supported by Connect's data API"
        )
    check_input(kind)
    original = value
    if schema is not None and schema.name is not None and target is not Type.STRING:
        value = _encoded(schema, value)
    try:
        return _as(value, schema, target)
    except JavaTextError as error:
        raise DataError(f"Value ({java_text(original)}) was out of range for requested data type") from error


def _encoded(schema: Schema, value: Any) -> Any:
    if isinstance(value, Moment):
        match schema.name:
            case n if n == DATE_NAME:
                return days_of(value)
            case n if n == TIME_NAME:
                return millis_of_day(value)
            case n if n == TIMESTAMP_NAME:
                return value.ms
    return value


def _as(value: Any, schema: Schema | None, target: Type) -> Any:
    if target is Type.STRING:
        if isinstance(value, Moment):
            return moment_text(value)
        return base64.b64encode(value).decode() if isinstance(value, bytes) else java_text(value, schema)
    if not isinstance(value, int | float | Decimal | str):
        raise DataError(f"Unexpected type in Cast transformation: class {java_class(value, schema)}")
    if target is Type.BOOLEAN:
        if isinstance(value, bool):
            return value
        return value.lower() == "true" if isinstance(value, str) else wrapped(value, 64) != 0
    if target in BITS:
        bits = BITS[target]
        return CLASSES[target](parse_integer(value, bits) if isinstance(value, str) else wrapped(value, bits))
    number = parse_double(value) if isinstance(value, str) else float(value)
    return Float32(to_float32(number)) if target is Type.FLOAT32 else Float64(number)


TIMESTAMP_PURPOSE = "converting timestamp formats"
SCHEMAS = {"string": STRING, "unix": INT64, "Date": DATE, "Time": TIME, "Timestamp": TIMESTAMP}
PER_SECOND = {"nanoseconds": 10**9, "microseconds": 10**6, "milliseconds": 10**3, "seconds": 1}
LONGEST = (1 << 63) - 1


class TimestampConverter(SidedTransformation):
    """Convert timestamps between different formats such as Unix epoch, strings, and Connect Date/Timestamp types.

    Applies to individual fields or to the entire value.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "field",
                Kind.STRING,
                "The field containing the timestamp, or empty if the entire value is a timestamp",
                default="",
                importance=Importance.HIGH,
            ),
            setting(
                "target.type",
                Kind.STRING,
                "The desired timestamp representation: string, unix, Date, Time, or Timestamp",
                rule=OneOf(tuple(SCHEMAS)),
                importance=Importance.HIGH,
            ),
            setting(
                "format",
                Kind.STRING,
                "A SimpleDateFormat-compatible format for the timestamp. Used to generate the output when type=string "
                "or used to parse the input if the input is a string.",
                default="",
            ),
            setting(
                "unix.precision",
                Kind.STRING,
                "The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or nanoseconds. "
                "Used to generate the output when type=unix or used to parse the input if the input is a Long."
                "Note: This SMT will cause precision loss during conversions from, and to, values with "
                "sub-millisecond components.",
                default="milliseconds",
                rule=OneOf(tuple(PER_SECOND)),
                importance=Importance.LOW,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._target: str = parsed["target.type"]
        self._per_second = PER_SECOND[parsed["unix.precision"]]
        self._field: str | None = parsed["field"]
        self.replace_null = required(parsed, REPLACE_NULL.name)
        pattern = parsed["format"]
        self._format: SimpleDateFormat | None = None
        self._schemas = schema_cache(self._changed)
        if is_blank(pattern or ""):
            if self._target == "string":
                raise SettingError(
                    "TimestampConverter requires format option to be specified when using string timestamps"
                )
            return
        try:
            self._format = SimpleDateFormat(pattern)
        except JavaTextError as error:
            raise SettingError(
                f"Invalid value java.lang.IllegalArgumentException: {error} for configuration TimestampConverter "
                f"requires a SimpleDateFormat-compatible pattern for string timestamps: {pattern}"
            ) from error

    def apply(self, record: R) -> R:
        """Return the record with the timestamp in the other form."""
        value, schema = self.value_of(record), self.schema_of(record)
        if self._field is None:
            raise UnexpectedDataError("the setting field is null")
        if schema is None:
            if value is None or not self._field:
                return self.updated(record, None, self._converted(value, None))
            fields = require_map(value, TIMESTAMP_PURPOSE)
            return self.updated(record, None, fields | {self._field: self._converted(fields.get(self._field), None)})
        if not self._field:
            converted = self._converted(value, schema)
            return self.updated(record, SCHEMAS[self._target].as_optional(schema.optional), converted)
        before = None if value is None else require_struct(value, TIMESTAMP_PURPOSE)
        changed = self._schemas(schema)
        return self.updated(record, changed, None if before is None else self._struct(before, changed))

    def _struct(self, before: Struct, schema: Schema) -> Struct:
        after = Struct(schema)
        for part in before.schema.fields:
            original = before.get(part, with_default=self.replace_null)
            after[part.name] = self._converted(original, part.schema) if part.name == self._field else original
        return after

    def _changed(self, schema: Schema) -> Schema:
        target = SCHEMAS[self._target]
        fields = [
            (part.name, target.as_optional(part.schema.optional) if part.name == self._field else part.schema)
            for part in schema.struct_fields()
        ]
        changed = replace(copy_basics(schema, Type.STRUCT, fields), optional=schema.optional)
        if schema.default is None:
            return changed
        return with_struct_default(changed, self._struct(schema.default, changed))

    def _converted(self, value: Any, schema: Schema | None) -> Any:
        kind = None if schema is None else _kind_of(schema)
        if value is None:
            return None
        moment = self._read(value, kind or _guessed(value), schema)
        match self._target:
            case "string":
                if self._format is None:
                    raise UnexpectedDataError("there is no format to write timestamps in")
                return self._format.format(moment.ms)
            case "unix":
                return self._unix(moment.ms)
            case "Date":
                return Moment(moment.ms // DAY_MS * DAY_MS)
            case "Time":
                return Moment(moment.ms % DAY_MS)
        return moment

    def _read(self, value: Any, kind: str, schema: Schema | None) -> Moment:
        if kind == "string":
            if not isinstance(value, str):
                java_type = java_class(value, schema)
                raise DataError(f"Expected string timestamp to be a String, but found class {java_type}")
            if self._format is None:
                raise UnexpectedDataError("there is no format to read timestamps in")
            try:
                return Moment(self._format.parse(value))
            except JavaTextError as error:
                raise DataError(
                    f"Could not parse timestamp: value ({value}) does not match pattern ({self._format.pattern})"
                ) from error
        if kind == "unix":
            if type_of(value, schema) is not Type.INT64:
                java_type = java_class(value, schema)
                raise DataError(f"Expected Unix timestamp to be a Long, but found class {java_type}")
            return Moment(_scaled(value, 1000, self._per_second))
        if not isinstance(value, Moment):
            java_type = java_class(value, schema)
            raise DataError(f"Expected {kind} to be a java.util.Date, but found class {java_type}")
        return value

    def _unix(self, ms: int) -> int:
        return _scaled(ms, self._per_second, 1000)


def _scaled(value: int, to: int, of: int) -> int:
    """Return a time in other units, as Java's ``TimeUnit`` converts it: towards zero, and no further than 64 bits."""
    if to >= of:
        return max(-LONGEST - 1, min(LONGEST, value * (to // of)))
    factor = of // to
    return value // factor if value >= 0 else -(-value // factor)


def _kind_of(schema: Schema) -> str:
    for kind in ("Timestamp", "Date", "Time"):
        if schema.name == SCHEMAS[kind].name:
            return kind
    if schema.type in (Type.STRING, Type.INT64):
        return "string" if schema.type is Type.STRING else "unix"
    raise ConnectError(f"Schema {schema} does not correspond to a known timestamp type format")


def _guessed(value: Any) -> str:
    if isinstance(value, Moment):
        return "Timestamp"
    if isinstance(value, str):
        return "string"
    if type_of(value) is Type.INT64 and wrapped(value, 64) == value:
        return "unix"
    raise DataError(f"TimestampConverter does not support class {java_class(value)} objects as timestamps")
