"""Types as they are written: nothing is resolved, so a name may be that of a custom type."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.parse.nodes import Node

__all__ = ["ArrayTypeNode", "FieldType", "MapTypeNode", "NamedType", "StructTypeNode", "TypeNode"]


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """A type by its name: ``INT``, ``DECIMAL(4, 2)``, ``VARCHAR(STRING)``, a custom type.

    Attributes:
        name: The name; of unquoted ones in upper case.
        parameters: Whole numbers, or the word STRING.
    """

    name: str
    parameters: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayTypeNode(Node):
    """``ARRAY<item>``."""

    item: TypeNode


@dataclass(frozen=True, slots=True)
class MapTypeNode(Node):
    """``MAP<key, value>``."""

    key: TypeNode
    value: TypeNode


@dataclass(frozen=True, slots=True)
class FieldType(Node):
    """A field of a struct type."""

    name: str
    type: TypeNode


@dataclass(frozen=True, slots=True)
class StructTypeNode(Node):
    """``STRUCT<name type, ...>``."""

    fields: tuple[FieldType, ...]


TypeNode = NamedType | ArrayTypeNode | MapTypeNode | StructTypeNode
