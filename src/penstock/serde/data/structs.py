"""Structs: values with named fields, of a schema."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.serde.data.errors import DataError
from penstock.serde.data.schema import Field, Schema, Type
from penstock.serde.data.validation import validate_value

__all__ = ["Struct"]


class Struct:
    """A value with the fields of its schema. Kafka's ``Struct``.

    Args:
        schema: A struct's schema.
        values: Fields to set, by name.

    Raises:
        DataError: The schema is not a struct's, or a value does not fit its field.

    Example:
        >>> from penstock.serde.data import STRING, struct, with_default
        >>> line = Struct(struct({"path": with_default(STRING, "/")}))
        >>> line["path"], line.raw("path")
        ('/', None)
    """

    __slots__ = ("_values", "schema")
    connect_type: ClassVar[Type] = Type.STRUCT

    def __init__(self, schema: Schema, values: dict[str, Any] | None = None) -> None:
        if schema.type is not Type.STRUCT:
            raise DataError(f"Not a struct schema: {schema}")
        self.schema = schema
        self._values: list[Any] = [None] * len(schema.fields)
        for name, value in (values or {}).items():
            self[name] = value

    @classmethod
    def of_checked(cls, schema: Schema, values: list[Any]) -> Struct:
        """Return a struct of values in the order of the schema's fields, each of which is known to fit its field.

        >>> from penstock.serde.data import STRING, struct
        >>> Struct.of_checked(struct({"path": STRING}), ["/"])["path"]
        '/'
        """
        struct = cls.__new__(cls)
        struct.schema, struct._values = schema, values  # noqa: SLF001 - its own
        return struct

    def all_raw(self) -> list[Any]:
        """Return the values of all fields as they were set, in the order of the schema."""
        return self._values

    def __getitem__(self, name: str) -> Any:
        part = self._field(name)
        value = self._values[part.index]
        return part.schema.default if value is None else value

    def __setitem__(self, name: str, value: Any) -> None:
        part = self._field(name)
        validate_value(part.schema, value, part.name)
        self._values[part.index] = value

    def raw(self, name: str) -> Any:
        """Return the value of a field as it was set, None in place of a default. Kafka's ``getWithoutDefault``."""
        return self._values[self._field(name).index]

    def get(self, part: Field, *, with_default: bool = True) -> Any:
        """Return the value of a field, with the default in place of null or without."""
        value = self._values[part.index]
        return part.schema.default if value is None and with_default else value

    def validate(self) -> None:
        """Check that all required fields are set.

        Raises:
            DataError: One is not.
        """
        for part, value in zip(self.schema.fields, self._values, strict=True):
            if value is None and (part.schema.optional or part.schema.default is not None):
                continue
            validate_value(part.schema, value, part.name)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name, defaults in place of nulls; nested structs stay structs."""
        return {part.name: self.get(part) for part in self.schema.fields}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and self._values == other._values

    def __hash__(self) -> int:
        return hash((self.schema, tuple(v if _is_hashable(v) else 0 for v in self._values)))

    def __repr__(self) -> str:
        pairs = zip(self.schema.fields, self._values, strict=True)
        return f"Struct{{{','.join(f'{part.name}={value}' for part, value in pairs if value is not None)}}}"

    def _field(self, name: str) -> Field:
        part = self.schema.field(name)
        if part is None:
            raise DataError(f"{name} is not a valid field name")
        return part


def _is_hashable(value: object) -> bool:
    return not isinstance(value, list | dict)
