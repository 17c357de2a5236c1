"""TimestampConverter: between texts, Unix time, Date, Time and Timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from penstock.base.java_text.blanks import is_blank
from penstock.base.java_text.simple_dates import SimpleDateFormat
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.config import ConfigDef, Importance, Kind, OneOf
from penstock.connect.data import (
    DATE,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    SettingError,
    Struct,
    Type,
    UnexpectedDataError,
    copy_basics,
    java_class,
    type_of,
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
from penstock.serde.data.logical import DAY_MS

__all__ = ["TimestampConverter"]

PURPOSE = "converting timestamp formats"
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
            fields = require_map(value, PURPOSE)
            return self.updated(record, None, fields | {self._field: self._converted(fields.get(self._field), None)})
        if not self._field:
            converted = self._converted(value, schema)
            return self.updated(record, SCHEMAS[self._target].as_optional(schema.optional), converted)
        before = None if value is None else require_struct(value, PURPOSE)
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
