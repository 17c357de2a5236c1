"""The interface of transformations, and what those of keys and values share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from penstock.connect.config import NO_DEFAULT, ConfigDef, Importance, Kind, Setting, Validator
from penstock.connect.data import (
    ConnectRecord,
    DataError,
    Field,
    Schema,
    SinkRecord,
    Struct,
    UnexpectedDataError,
    java_class,
)

__all__ = [
    "PACKAGE",
    "REPLACE_NULL",
    "SidedTransformation",
    "Transformation",
    "both_sides",
    "raw_structs",
    "require_map",
    "require_sink_record",
    "require_struct",
    "require_text_key",
    "required",
    "schema_cache",
    "setting",
]

PACKAGE = "org.apache.kafka.connect.transforms"
R = TypeVar("R", bound=ConnectRecord)
S = TypeVar("S", bound="SidedTransformation")


def setting(
    name: str,
    kind: Kind,
    doc: str,
    *,
    default: Any = NO_DEFAULT,
    rule: Validator | None = None,
    importance: Importance = Importance.MEDIUM,
) -> Setting:
    """Return a setting of a transformation."""
    return Setting(name=name, kind=kind, default=default, rule=rule, importance=importance, doc=doc)


REPLACE_NULL = setting(
    "replace.null.with.default",
    Kind.BOOLEAN,
    "Whether to replace fields that have a default value and that are null to the default value. When set to true, "
    "the default value is used, otherwise null is used.",
    default=True,
)


class Transformation:
    """A change of single records. Records are not changed in place: ``apply`` makes new ones.

    Attributes:
        java_class: Kafka's class name, under which configs name it.
        config: The definition of its settings.
    """

    java_class: ClassVar[str]
    config: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings, without their prefix such as ``transforms.route.``.

        Raises:
            SettingError: One is wrong.
        """

    def apply(self, record: R) -> R | None:
        """Return the record as it goes on; None drops it.

        Raises:
            DataError: The record is not of the form that the transformation takes.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give up what it holds."""


class SidedTransformation(Transformation):
    """A transformation of keys or of values: Kafka's classes with ``$Key`` and ``$Value``.

    Attributes:
        side: The part of the record that it changes.
        replace_null: Null fields become their defaults.
    """

    side: ClassVar[Literal["key", "value"]]
    replace_null: bool = True

    def all_updated(
        self,
        schema: Schema | None,  # noqa: ARG002 - for those that override it
        values: Sequence[Any],  # noqa: ARG002
    ) -> tuple[Schema | None, list[Any]] | None:
        """Change the keys or values of many records of one schema at once; nothing else of a record is looked at.

        Returns:
            Their schema and the values; None: it cannot be done at once, and `apply` is called for each record.

        Raises:
            DataError: Some value is not of the form that the transformation takes.
        """
        return None

    def value_of(self, record: ConnectRecord) -> Any:
        """Return the key or value."""
        return record.key if self.side == "key" else record.value

    def schema_of(self, record: ConnectRecord) -> Schema | None:
        """Return the schema of the key or value."""
        return record.key_schema if self.side == "key" else record.value_schema

    def updated(self, record: R, schema: Schema | None, value: Any, **more: Any) -> R:
        """Return the record with another key or value, and with other parts."""
        if self.side == "key":
            return record.with_(key_schema=schema, key=value, **more)
        return record.with_(value_schema=schema, value=value, **more)

    def field_of(self, value: Struct, part: Field) -> Any:
        """Return the value of a field of the record's schema: with defaults by its place, without by its name.

        Raises:
            UnexpectedDataError: The value is of another schema, which has fewer fields.
        """
        if not self.replace_null:
            return value.raw(part.name)
        if part.index >= len(value.schema.fields):
            raise UnexpectedDataError(f"the value has no field {part.index}, which its schema names {part.name}")
        return value.get(part)

    def raw_or_default(self, value: Struct) -> dict[str, Any]:
        """Return all fields of a struct, defaults in place of nulls if the settings say so."""
        return {part.name: value.get(part, with_default=self.replace_null) for part in value.schema.fields}


def both_sides(base: type[S]) -> tuple[type[S], type[S]]:
    """Return the two classes of a transformation: of keys and of values."""

    def made(side: str, name: str) -> type[S]:
        names = {"side": side, "java_class": f"{PACKAGE}.{base.__name__}${name}", "__doc__": base.__doc__}
        return type(f"{base.__name__}Of{name}", (base,), {**names, "__module__": base.__module__})

    return made("key", "Key"), made("value", "Value")


def schema_cache(build: Callable[[Schema], Schema]) -> Callable[[Schema], Schema]:
    """Return a function that makes a schema of another, remembering the last ones."""
    return lru_cache(maxsize=16)(build)


def required(parsed: Mapping[str, Any], name: str) -> Any:
    """Return a parsed setting that must not be null where it is used.

    Raises:
        UnexpectedDataError: It is null, where Java fails without words.
    """
    value = parsed[name]
    if value is None:
        raise UnexpectedDataError(f"the setting {name} is null")
    return value


def require_map(value: Any, purpose: str) -> dict[Any, Any]:
    """Return the value as a map.

    Raises:
        DataError: It is something else.
    """
    if not isinstance(value, dict):
        java_type = java_class(value)
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {java_type}")
    return value


def require_text_key(key: Any) -> str:
    """Return a key of a map as the name of a field.

    Raises:
        UnexpectedDataError: It is something else, where Java fails without words.
    """
    if not isinstance(key, str):
        raise UnexpectedDataError(f"the key {key} of a map is of {java_class(key)}, and not the name of a field")
    return key


def raw_structs(schema: Schema, values: Sequence[Any], *, replace_null: bool) -> list[list[Any]] | None:
    """Return the fields of many structs of a schema; None if one is something else or incomplete, or has defaults."""
    if replace_null and any(part.schema.default is not None for part in schema.fields):
        return None
    if not all(type(value) is Struct and value.schema is schema for value in values):
        return None
    raw_values = [value.all_raw() for value in values]
    needed = [part.index for part in schema.fields if not part.schema.optional]
    if any(None in row and any(row[index] is None for index in needed) for row in raw_values):
        return None
    return raw_values


def require_struct(value: Any, purpose: str) -> Struct:
    """Return the value as a struct.

    Raises:
        DataError: It is something else.
    """
    if not isinstance(value, Struct):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {java_class(value)}")
    return value


def require_sink_record(record: ConnectRecord, purpose: str) -> SinkRecord:
    """Return the record as a sink's.

    Raises:
        DataError: It is a source's.
    """
    if not isinstance(record, SinkRecord):
        java_type = "org.apache.kafka.connect.source.SourceRecord"
        raise DataError(f"Only SinkRecord supported for [{purpose}], found: {java_type}")
    return record
