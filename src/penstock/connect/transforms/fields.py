"""Transformations of fields: ExtractField, HoistField, ReplaceField, ValueToKey, InsertField, MaskField, Flatten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from penstock.base.java_text.hashing import hash_order
from penstock.base.java_text.numbers import parse_big_decimal, to_float32, whole_number
from penstock.base.java_text.texts import JavaTextError
from penstock.connect.config import AnyCase, Check, ConfigDef, Importance, Kind, NonEmptyText, UniqueList
from penstock.connect.converters.headers import number_of
from penstock.connect.data import (
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    BigInteger,
    ConnectRecord,
    DataError,
    Field,
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
    struct,
    type_of,
    validate_value,
    with_default,
    wrapped,
)
from penstock.connect.transforms.transformation import (
    PACKAGE,
    REPLACE_NULL,
    R,
    SidedTransformation,
    Transformation,
    raw_structs,
    require_map,
    require_sink_record,
    require_struct,
    require_text_key,
    required,
    schema_cache,
    setting,
)

__all__ = [
    "FIELD_SYNTAX",
    "ExtractField",
    "FieldPath",
    "Flatten",
    "HoistField",
    "InsertField",
    "MaskField",
    "ReplaceField",
    "ValueToKey",
]

# Paths of fields

PURPOSE = "nested field access"
FIELD_SYNTAX = setting(
    "field.syntax.version",
    Kind.STRING,
    "Defines the version of the syntax to access fields. If set to `V1`, then the field paths are limited to access "
    "the elements at the root level of the struct or map. If set to `V2`, the syntax will support accessing nested "
    "elements. To access nested elements, dotted notation is used. If dots are already included in the field name, "
    "then backtick pairs can be used to wrap field names containing dots. E.g. to access the subfield `baz` from a "
    'field named "foo.bar" in a struct/map the following format can be used to access its elements: "`foo.bar`.baz".',
    default="V1",
    rule=AnyCase(("V1", "V2")),
    importance=Importance.HIGH,
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The path to one field.

    Attributes:
        text: The path as it was written.
        steps: The names on the way.

    Example:
        >>> FieldPath.of("`a.b`.c", "V2").steps
        ('a.b', 'c')
    """

    text: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, text: str | None, syntax: str) -> FieldPath:
        """Return the path that a text says.

        Raises:
            SettingError: A backtick lacks its pair.
        """
        if text is None:
            raise UnexpectedDataError("the path of a field is null")
        return cls(text, (text,) if syntax.upper() == "V1" else tuple(_steps(text)))

    def in_schema(self, schema: Schema) -> Field | None:
        """Return the field in a schema; None if there is none."""
        for step in self._way():
            field = schema.field(step)
            if field is None:
                return None
            schema = field.schema
        return schema.field(self.steps[-1])

    def in_struct(self, value: Struct, *, with_default: bool) -> Any:
        """Return the field's value; None if there is no such field."""
        for step in self._way():
            field = value.schema.field(step)
            inner = None if field is None else value.get(field)
            if inner is None:
                return None
            value = require_struct(inner, PURPOSE)
        field = value.schema.field(self.steps[-1])
        return None if field is None else value.get(field, with_default=with_default)

    def in_map(self, value: dict[Any, Any]) -> Any:
        """Return the value in a map; None if it has none."""
        for step in self._way():
            inner = value.get(step)
            if inner is None:
                return None
            value = require_map(inner, PURPOSE)
        return value.get(self.steps[-1])

    def _way(self) -> tuple[str, ...]:
        if not self.steps:
            raise UnexpectedDataError("the path of a field is empty")
        return self.steps[:-1]


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while 0 <= at < len(path):
        if path[at] == "`":
            name, at = _quoted(path, at)
            steps.append(name)
        else:
            dot = path.find(".", at)
            steps.append(path[at:dot] if dot >= 0 else path[at:])
            at = dot + 1 if dot >= 0 else len(path)
    return [*steps, ""] if path.endswith(".") else steps


def _quoted(path: str, opening: int) -> tuple[str, int]:
    """Return the name in backticks, and the position behind it and its dot.

    Backticks inside stand, before a dot escaped.
    """
    name: list[str] = []
    start = at = opening + 1
    while True:
        at = path.find("`", at)
        escaped = at > 0 and path[at - 1] == "\\"
        if at < 0 or (at == len(path) - 1 and escaped):
            raise SettingError(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at "
                f"position {opening} to escape it"
            )
        if at == len(path) - 1:
            return "".join([*name, path[start:at]]), at + 1
        if path[at + 1] != ".":
            at += 1
        elif escaped:
            name.append(path[start : at - 1] + "`")
            at += 1
            start = at
        else:
            return "".join([*name, path[start:at]]), at + 2


# ExtractField, HoistField, ReplaceField, ValueToKey


class ExtractField(SidedTransformation):
    """Extract the specified field from a struct when schema present, or a map in the case of schemaless data.

    Any null values are passed through unmodified.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [setting("field", Kind.STRING, "Field name to extract."), REPLACE_NULL, FIELD_SYNTAX]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._path = FieldPath.of(parsed["field"], parsed[FIELD_SYNTAX.name])
        self.replace_null = required(parsed, REPLACE_NULL.name)

    def apply(self, record: R) -> R:
        """Return the record with the field in place of its key or value."""
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            extracted = None if value is None else self._path.in_map(require_map(value, "field extraction"))
            return self.updated(record, None, extracted)
        whole = None if value is None else require_struct(value, "field extraction")
        field = self._path.in_schema(schema)
        if field is None:
            raise DataError(f"Unknown field: {self._path.text}")
        extracted = None if whole is None else self._path.in_struct(whole, with_default=self.replace_null)
        return self.updated(record, field.schema, extracted)


class HoistField(SidedTransformation):
    """Wrap data using the specified field name in a struct when schema present, or a map in schemaless data."""

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "field",
                Kind.STRING,
                "Field name for the single field that will be created in the resulting Struct or Map.",
            )
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the name of the field."""
        self._field = self.config.parse(settings)["field"]
        self._schemas = schema_cache(lambda schema: struct([(self._field, schema)]))

    def apply(self, record: R) -> R:
        """Return the record with its key or value in a field."""
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            return self.updated(record, None, {self._field: value})
        changed = self._schemas(schema)
        return self.updated(record, changed, Struct(changed, {self._field: value}))

    def all_updated(self, schema: Schema | None, values: Sequence[Any]) -> tuple[Schema | None, list[Any]]:
        """Return all keys or values in fields."""
        if schema is None:
            return None, [{self._field: value} for value in values]
        changed = self._schemas(schema)
        if schema.type is not Type.STRING or schema.name is not None or not all(type(value) is str for value in values):
            for value in values:
                validate_value(schema, value, self._field)
        return changed, [Struct.of_checked(changed, [value]) for value in values]


def parse_renames(mappings: list[str]) -> dict[str, str]:
    """Return pairs such as ``old:new``.

    Raises:
        SettingError: One is not a pair.
    """
    renames: dict[str, str] = {}
    for mapping in mappings:
        parts = mapping.split(":")
        while len(parts) > 1 and parts[-1] == "":  # as Java's split leaves them out
            parts.pop()
        if len(parts) != 2:
            raise SettingError.invalid("renames", mappings, f"Invalid rename mapping: {mapping}")
        renames[parts[0]] = parts[1]
    return renames


def _check_renames(_name: str, value: list[str] | None) -> None:
    parse_renames(value or [])


class ReplaceField(SidedTransformation):
    """Filter or rename fields."""

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "exclude",
                Kind.LIST,
                "Fields to exclude. This takes precedence over the fields to include.",
                default=(),
                rule=UniqueList(allow_empty=True),
            ),
            setting(
                "include",
                Kind.LIST,
                "Fields to include. If specified, only these fields will be used.",
                default=(),
                rule=UniqueList(allow_empty=True),
            ),
            setting(
                "renames",
                Kind.LIST,
                "Field rename mappings.",
                default=(),
                rule=Check(_check_renames, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._exclude, self._include = frozenset(required(parsed, "exclude")), frozenset(required(parsed, "include"))
        self._renames = parse_renames(required(parsed, "renames"))
        self._originals = {self._renames[old]: old for old in hash_order(self._renames)}
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._schemas = schema_cache(self._changed)

    def apply(self, record: R) -> R:
        """Return the record with other fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            fields = require_map(value, "field replacement")
            kept = {
                self._renames.get(name, name): part
                for name, part in fields.items()
                if self._keeps(require_text_key(name))
            }
            return self.updated(record, None, kept)
        before = require_struct(value, "field replacement")
        changed = self._schemas(before.schema)
        after = Struct(changed)
        for part in changed.fields:
            original = self._originals.get(part.name, part.name)
            after[part.name] = before[original] if self.replace_null else before.raw(original)
        return self.updated(record, changed, after)

    def all_updated(self, schema: Schema | None, values: Sequence[Any]) -> tuple[Schema | None, list[Any]] | None:
        """Return all keys or values with other fields."""
        if schema is None or schema.type is not Type.STRUCT:
            return None
        raw_values = raw_structs(schema, values, replace_null=self.replace_null)
        if raw_values is None:
            return None
        changed = self._schemas(schema)
        pairs = ((part, schema.field(self._originals.get(part.name, part.name))) for part in changed.fields)
        rows = [original.index for part, original in pairs if original is not None and original.schema == part.schema]
        if len(rows) < len(changed.fields):  # two fields have been given one name
            return None
        return changed, [Struct.of_checked(changed, [value[row] for row in rows]) for value in raw_values]

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _changed(self, schema: Schema) -> Schema:
        kept = [(self._renames.get(p.name, p.name), p.schema) for p in schema.struct_fields() if self._keeps(p.name)]
        return copy_basics(schema, Type.STRUCT, kept)


class ValueToKey(Transformation):
    """Replace the record key with a new key formed from a subset of fields in the record value."""

    java_class: ClassVar[str] = f"{PACKAGE}.ValueToKey"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "fields",
                Kind.LIST,
                "Field names on the record value to extract as the record key.",
                rule=UniqueList(),
                importance=Importance.HIGH,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._fields: list[str] = parsed["fields"]
        self._replace_null = required(parsed, REPLACE_NULL.name)
        self._schemas = schema_cache(self._key_schema)

    def apply(self, record: R) -> R:
        """Return the record with a new key."""
        purpose = "copying fields from value to key"
        if record.value_schema is None:
            value = require_map(record.value, purpose)
            return record.with_(key_schema=None, key={name: value.get(name) for name in self._fields})
        source = require_struct(record.value, purpose)
        schema = self._schemas(source.schema)
        values = {name: source[name] if self._replace_null else source.raw(name) for name in self._fields}
        return record.with_(key_schema=schema, key=Struct(schema, values), value_schema=source.schema)

    def _key_schema(self, schema: Schema) -> Schema:
        fields: list[tuple[str, Schema]] = []
        for name in self._fields:
            part = schema.field(name)
            if part is None:
                raise DataError(f"Field does not exist: {name}")
            fields.append((name, part.schema))
        return struct(fields)


# InsertField

INSERT_PURPOSE = "field insertion"
SUFFIX = (
    "Suffix with <code>!</code> to make this a required field, or <code>?</code> to keep it optional (the default)."
)
SCHEMAS = {"topic": STRING, "partition": INT32, "offset": INT64, "timestamp": TIMESTAMP, "static": STRING}
DOCS = {
    "topic": "Field name for Kafka topic. ",
    "partition": "Field name for Kafka partition. ",
    "offset": "Field name for Kafka offset - only applicable to sink connectors.<br/>",
    "timestamp": "Field name for record timestamp. ",
    "static": "Field name for static data field. ",
}


class InsertField(SidedTransformation):
    """Insert field(s) using attributes from the record metadata or a configured static value."""

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *(setting(f"{part}.field", Kind.STRING, doc + SUFFIX, default=None) for part, doc in DOCS.items()),
            setting("static.value", Kind.STRING, "Static field value, if field name configured.", default=None),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._static = parsed["static.value"]
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._fields = {part: _name(parsed[f"{part}.field"]) for part in DOCS if parsed[f"{part}.field"] is not None}
        if not self._fields:
            raise SettingError("No field insertion configured")
        if "static" in self._fields and self._static is None:
            name = self._fields["static"][0]
            raise SettingError.invalid("static.value", None, f"No value specified for static field: {name}")
        self._schemas = schema_cache(self._extended)

    def apply(self, record: R) -> R:
        """Return the record with more fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            fields = require_map(value, INSERT_PURPOSE)
            inserted = self._found(record)
            if "partition" in inserted:
                inserted["partition"] = Int32(inserted["partition"])
            return self.updated(record, None, fields | {self._fields[part][0]: one for part, one in inserted.items()})
        before = require_struct(value, INSERT_PURPOSE)
        changed = self._schemas(before.schema)
        after = Struct(changed, self.raw_or_default(before))
        for part, one in self._found(record).items():
            after[self._fields[part][0]] = Moment(one) if part == "timestamp" else one
        return self.updated(record, changed, after)

    def all_updated(self, schema: Schema | None, values: Sequence[Any]) -> tuple[Schema | None, list[Any]] | None:
        """Return all keys or values with a fixed text as a field."""
        if schema is None or schema.type is not Type.STRUCT or set(self._fields) != {"static"}:
            return None
        raw_values = raw_structs(schema, values, replace_null=self.replace_null)
        if raw_values is None:
            return None
        changed, static = self._schemas(schema), self._static
        return changed, [Struct.of_checked(changed, [*value, static]) for value in raw_values]

    def _found(self, record: ConnectRecord) -> dict[str, Any]:
        """Return what there is to insert, by part."""
        inserted: dict[str, Any] = {}
        if "topic" in self._fields:
            inserted["topic"] = record.topic
        if "partition" in self._fields and record.partition is not None:
            inserted["partition"] = record.partition
        if "offset" in self._fields:
            inserted["offset"] = require_sink_record(record, INSERT_PURPOSE).offset
        if "timestamp" in self._fields and record.timestamp is not None:
            inserted["timestamp"] = record.timestamp
        if "static" in self._fields:
            inserted["static"] = self._static
        return inserted

    def _extended(self, schema: Schema) -> Schema:
        fields = [(part.name, part.schema) for part in schema.struct_fields()]
        fields += [(name, SCHEMAS[part].as_optional(optional)) for part, (name, optional) in self._fields.items()]
        return copy_basics(schema, Type.STRUCT, fields)


def _name(text: str) -> tuple[str, bool]:
    """Return the name of a field, and whether it is optional."""
    return (text[:-1], text.endswith("?")) if text.endswith(("?", "!")) else (text, True)


# MaskField

MASK_PURPOSE = "mask fields"
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


class MaskField(SidedTransformation):
    """Mask specified fields with a valid null value for the field type (i.e. 0, false, empty string, and so on).

    For numeric and string fields, an optional replacement value can be specified that is converted to the correct
    type.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting("fields", Kind.LIST, "Names of fields to mask.", rule=UniqueList(), importance=Importance.HIGH),
            setting(
                "replacement",
                Kind.STRING,
                "Custom value replacement, that will be applied to all 'fields' values (numeric or non-empty string "
                "values only).",
                default=None,
                rule=NonEmptyText(),
                importance=Importance.LOW,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._fields = hash_order(parsed["fields"])
        self._replacement: str | None = parsed["replacement"]
        self.replace_null = required(parsed, REPLACE_NULL.name)

    def apply(self, record: R) -> R:
        """Return the record with these fields masked."""
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            fields = require_map(value, MASK_PURPOSE)
            masked = {name: self._masked(fields.get(name), None) for name in self._fields}
            return self.updated(record, None, fields | masked)
        before = require_struct(value, MASK_PURPOSE)
        after = Struct(before.schema)
        for part in before.schema.fields:
            original = before.get(part, with_default=self.replace_null)
            after[part.name] = self._masked(original, part.schema) if part.name in self._fields else original
        return self.updated(record, schema, after)

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        return _empty(value, schema) if self._replacement is None else _replaced(value, schema, self._replacement)


def _empty(value: Any, schema: Schema | None) -> Any:
    kind = type_of(value, schema)
    if kind in BITS and isinstance(value, int):
        return CLASSES[kind](0)
    match value:
        case bool():
            return False
        case int():
            return BigInteger(0)
        case float():
            return Float32(0.0) if kind is Type.FLOAT32 else Float64(0.0)
        case str():
            return ""
        case Decimal():
            return Decimal(0)
        case Moment():
            return Moment(0)
        case list() | tuple():
            return []
        case dict():
            return {}
    raise DataError(f"Cannot mask value of type: class {java_class(value, schema)}")


def _replaced(value: Any, schema: Schema | None, text: str) -> Any:
    kind = type_of(value, schema)
    if isinstance(value, bool | bytes | list | tuple | dict | Moment | Struct | UUID):
        raise DataError(f"Cannot mask value of type class {java_class(value, schema)} with custom replacement.")
    if isinstance(value, str):
        return text
    if kind in BITS:
        return CLASSES[kind](wrapped(number_of(text), BITS[kind]))
    if isinstance(value, float):
        number = float(number_of(text))
        return Float32(to_float32(number)) if kind is Type.FLOAT32 else Float64(number)
    if isinstance(value, Decimal):
        try:
            return parse_big_decimal(text)
        except JavaTextError as error:
            raise DataError(f"Unable to convert {text} (class java.lang.String) to number") from error
    whole = whole_number(text)
    if whole is None:
        raise DataError(f"Unable to convert {text} (class java.lang.String) to number")
    return BigInteger(whole)


# Flatten

FLATTEN_PURPOSE = "flattening"


class Flatten(SidedTransformation):
    """Flatten a nested data structure, joining the names of fields of each level with a delimiter.

    Array fields and their contents are not modified.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "delimiter",
                Kind.STRING,
                "Delimiter to insert between field names from the input record when generating field names for the "
                "output record",
                default=".",
            )
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the delimiter."""
        delimiter = self.config.parse(settings)["delimiter"]
        self._delimiter = "null" if delimiter is None else delimiter  # as Java joins texts
        self._schemas = schema_cache(self._flat_schema)

    def apply(self, record: R) -> R:
        """Return the record with one level of fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            return self.updated(record, None, self._flat_map(require_map(value, FLATTEN_PURPOSE), ""))
        nested = require_struct(value, FLATTEN_PURPOSE)
        changed = self._schemas(schema)
        flat = Struct(changed)
        self._fill(flat, nested, "")
        return self.updated(record, changed, flat)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flat_map(self, nested: dict[Any, Any], prefix: str) -> dict[str, Any]:
        """Return one level of fields. Of two of one name the nested one stays: maps such as JSON's have no order."""
        flat: dict[str, Any] = {}
        inner: dict[str, Any] = {}
        for key, value in nested.items():
            name = self._name(prefix, require_text_key(key))
            kind = None if value is None else type_of(value)
            if kind is None and value is not None:
                raise DataError(
                    f"Flatten transformation was passed a value of type class {java_class(value)} "
                    "which is not supported by Connect's data API"
                )
            if kind is Type.MAP:
                inner |= self._flat_map(value, name)
                flat |= inner
            elif kind is Type.STRUCT:
                raise DataError(
                    f"Flatten transformation does not support class {java_class(value)} for record without schemas "
                    f"(for field {name})."
                )
            elif name not in inner:
                flat[name] = value
        return flat

    def _flat_schema(self, schema: Schema) -> Schema:
        fields: list[tuple[str, Schema]] = []
        self._collect(schema, "", fields, optional=schema.optional, parent=schema.default)
        return copy_basics(schema, Type.STRUCT, fields)

    def _collect(
        self, schema: Schema, prefix: str, fields: list[tuple[str, Schema]], *, optional: bool, parent: Struct | None
    ) -> None:
        for part in schema.struct_fields():
            name = self._name(prefix, part.name)
            default = part.schema.default
            if default is None and parent is not None:
                default = parent[part.name]
            can_be_null = optional or part.schema.optional
            if part.schema.type is Type.STRUCT:
                self._collect(part.schema, name, fields, optional=can_be_null, parent=default)
                continue
            self._refuse_maps(part.schema, name)
            flat = replace(copy_basics(part.schema), optional=can_be_null)
            fields.append((name, flat if default is None else with_default(flat, default)))

    def _fill(self, flat: Struct, nested: Struct | None, prefix: str) -> None:
        if nested is None:
            return
        for part in nested.schema.fields:
            name = self._name(prefix, part.name)
            if part.schema.type is Type.STRUCT:
                self._fill(flat, nested.raw(part.name), name)
            else:
                self._refuse_maps(part.schema, name)
                flat[name] = nested.get(part)

    def _refuse_maps(self, schema: Schema, name: str) -> None:
        if schema.type is Type.MAP:
            raise DataError(
                f"Flatten transformation does not support {schema.type} for record with schemas (for field {name})."
            )
