"""Schemas of Connect's values, frozen and compared by content (Kafka's ``ConnectSchema``), and errors of its data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar

from penstock.errors import ConnectError, SerializationError

__all__ = [
    "BytesError",
    "DataError",
    "Field",
    "Schema",
    "SchemaBuilderError",
    "Type",
    "array",
    "copy_basics",
    "map_of",
    "struct",
]

_ERRORS = "org.apache.kafka.connect.errors"


class DataError(ConnectError):
    """A value that does not fit: its schema, a transformation or a converter. Kafka's ``DataException``."""

    java_class: ClassVar[str] = f"{_ERRORS}.DataException"


class SchemaBuilderError(DataError):
    """A schema that cannot be built: a field twice, a default of another type. Kafka's ``SchemaBuilderException``."""

    java_class: ClassVar[str] = f"{_ERRORS}.SchemaBuilderException"


class BytesError(SerializationError):
    """Bytes that do not decode. Kafka's ``SerializationException``."""

    java_class: ClassVar[str] = "org.apache.kafka.common.errors.SerializationException"


class Type(Enum):
    """The types of Connect; ``value`` is the name in JSON, ``str()`` Kafka's name in messages."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct."""

    name: str
    index: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a value.

    Attributes:
        type: The type.
        optional: Null is a value.
        default: The value in place of null; None: there is none.
        name: Its name: a record's, or a logical type's such as ``org.apache.kafka.connect.data.Timestamp``.
        version: Its version.
        doc: Its documentation.
        parameters: Further properties, such as the ``scale`` of a Decimal.
        fields: Of a struct.
        keys: The schema of a map's keys; None: not known.
        values: The schema of a map's values or of an array's elements; None: not known.

    Example:
        >>> line = struct({"path": Schema(Type.STRING), "status": Schema(Type.INT32, optional=True)}, name="Line")
        >>> line.field("status").index, str(line)
        (1, 'Schema{Line:STRUCT}')
    """

    type: Type
    optional: bool = False
    default: Any = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = None
    fields: tuple[Field, ...] = ()
    keys: Schema | None = None
    values: Schema | None = None
    _by_name: dict[str, Field] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {part.name: part for part in self.fields})
        parameters = tuple(self.parameters.items()) if self.parameters else None
        basics = (self.type, self.optional, self.name, self.version, self.doc, parameters)
        object.__setattr__(self, "_hash", hash((*basics, self.fields, self.keys, self.values)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"Schema{{{self.name}:{self.type}}}" if self.name is not None else f"Schema{{{self.type}}}"

    def field(self, name: str) -> Field | None:
        """Return the field of a name; None if there is none.

        Raises:
            DataError: The schema is not a struct's.
        """
        if self.type is not Type.STRUCT:
            raise DataError("Cannot look up fields on non-struct type")
        return self._by_name.get(name)

    def struct_fields(self) -> tuple[Field, ...]:
        """Return all fields.

        Raises:
            DataError: The schema is not a struct's.
        """
        if self.type is not Type.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        return self.fields

    def as_optional(self, optional: bool = True) -> Schema:  # noqa: FBT001, FBT002 - the word is the method's name
        """Return the same schema, optional or not."""
        return self if self.optional is optional else replace(self, optional=optional)


def struct(
    fields: Mapping[str, Schema] | Iterable[tuple[str, Schema]],
    *,
    optional: bool = False,
    name: str | None = None,
    version: int | None = None,
) -> Schema:
    """Return the schema of a struct with these fields, in order.

    Raises:
        SchemaBuilderError: A field has no name, or a name twice.
    """
    return Schema(Type.STRUCT, optional, name=name, version=version, fields=struct_fields(fields))


def struct_fields(fields: Mapping[str, Schema] | Iterable[tuple[str, Schema]]) -> tuple[Field, ...]:
    """Return the fields of a struct, numbered and checked."""
    checked_fields: list[Field] = []
    seen: set[str] = set()
    for name, schema in fields.items() if isinstance(fields, Mapping) else fields:
        if not name:
            raise SchemaBuilderError("fieldName cannot be null.")
        if name in seen:
            raise SchemaBuilderError(f"Cannot create field because of field name duplication {name}")
        seen.add(name)
        checked_fields.append(Field(name, len(checked_fields), schema))
    return tuple(checked_fields)


def array(items: Schema | None, *, optional: bool = False) -> Schema:
    """Return the schema of a list; ``items`` is None if its elements have none in common."""
    return Schema(Type.ARRAY, optional, values=items)


def map_of(keys: Schema | None, values: Schema | None, *, optional: bool = False) -> Schema:
    """Return the schema of a map; keys or values are None if they have no schema in common."""
    return Schema(Type.MAP, optional, keys=keys, values=values)


def copy_basics(
    source: Schema, kind: Type | None = None, fields: Mapping[str, Schema] | Iterable[tuple[str, Schema]] = ()
) -> Schema:
    """Return a required schema with the name, version, documentation and parameters of another.

    Args:
        source: Its model; without another type, the elements of its array stay too.
        kind: The type; by default the source's.
        fields: The fields of a struct.
    """
    same = kind is None or kind is source.type
    return Schema(
        kind or source.type,
        name=source.name,
        version=source.version,
        doc=source.doc,
        parameters=source.parameters or None,
        fields=struct_fields(fields),
        keys=source.keys if same else None,
        values=source.values if same else None,
    )
