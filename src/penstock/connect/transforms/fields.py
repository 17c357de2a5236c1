"""Transformations that move, wrap and drop fields: ExtractField, HoistField, ReplaceField, ValueToKey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.base.java_text.hashing import hash_order
from penstock.connect.config import AnyCase, Check, ConfigDef, Importance, Kind, UniqueList
from penstock.connect.data import (
    DataError,
    Field,
    Schema,
    SettingError,
    Struct,
    Type,
    UnexpectedDataError,
    copy_basics,
    struct,
    validate_value,
)
from penstock.connect.transforms.transformation import (
    PACKAGE,
    REPLACE_NULL,
    R,
    SidedTransformation,
    Transformation,
    raw_structs,
    require_map,
    require_struct,
    require_text_key,
    required,
    schema_cache,
    setting,
)

__all__ = ["FIELD_SYNTAX", "ExtractField", "FieldPath", "HoistField", "ReplaceField", "ValueToKey"]

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
    """Pairs such as ``old:new``.

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
