"""The grammar of types."""

from __future__ import annotations

from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.type_nodes import ArrayTypeNode, FieldType, MapTypeNode, NamedType, StructTypeNode, TypeNode

__all__ = ["type_node"]


def type_node(cursor: Cursor) -> TypeNode:
    """Read a type."""
    cursor.enter()
    at = cursor.token.at
    node: TypeNode
    opened = cursor.following() in ("<", "<>")
    if opened and cursor.accept("ARRAY"):
        cursor.expect("<")
        node = ArrayTypeNode(type_node(cursor), at=at)
        cursor.expect(">")
    elif opened and cursor.accept("MAP"):
        cursor.expect("<")
        key = type_node(cursor)
        cursor.expect(",")
        node = MapTypeNode(key, type_node(cursor), at=at)
        cursor.expect(">")
    elif opened and cursor.accept("STRUCT"):
        node = StructTypeNode(_fields(cursor), at=at)
    else:
        node = NamedType(cursor.name("a type"), _parameters(cursor), at=at)
    cursor.leave()
    return node


def _fields(cursor: Cursor) -> tuple[FieldType, ...]:
    if cursor.accept("<>"):
        return ()
    cursor.expect("<")
    if cursor.accept(">"):
        return ()
    fields = [_field(cursor)]
    while cursor.accept(","):
        fields.append(_field(cursor))
    cursor.expect(">")
    return tuple(fields)


def _field(cursor: Cursor) -> FieldType:
    at = cursor.token.at
    return FieldType(cursor.name(), type_node(cursor), at=at)


def _parameters(cursor: Cursor) -> tuple[int | str, ...]:
    if not cursor.accept("("):
        return ()
    parameters = [_parameter(cursor)]
    while cursor.accept(","):
        parameters.append(_parameter(cursor))
    cursor.expect(")")
    return tuple(parameters)


def _parameter(cursor: Cursor) -> int | str:
    return "STRING" if cursor.accept("STRING") else cursor.whole_number()
