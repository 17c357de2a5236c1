"""Types as they are written, resolved to SQL types; names that are none of the language are those of custom types."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.base.nearest_name import did_you_mean
from penstock.sql.evaluate.placed_errors import refused
from penstock.sql.parse import type_nodes as t
from penstock.sql.parse.dialects import OTHER_TYPES
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    StructType,
)

__all__ = ["sql_type"]

NAMES: dict[str, SqlType] = {
    "BOOLEAN": BOOLEAN,
    "INT": INTEGER,
    "INTEGER": INTEGER,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "STRING": STRING,
    "VARCHAR": STRING,
    "BYTES": BYTES,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
}
DECIMALS = ("DECIMAL", "DEC", "NUMERIC")


def sql_type(node: t.TypeNode, custom: Mapping[str, SqlType] | None = None) -> SqlType:
    """Return the SQL type of a type as it is written.

    Args:
        node: The type.
        custom: The types of CREATE TYPE, by their names.

    Raises:
        SqlError: There is no type of a name, or its parameters are out of range.
    """
    custom_types = custom or {}
    try:
        return _resolved(node, custom_types)
    except SqlTypeError as error:
        raise refused(str(error), node.at) from error


def _resolved(node: t.TypeNode, custom: Mapping[str, SqlType]) -> SqlType:
    match node:
        case t.ArrayTypeNode(item):
            return ArrayType(_resolved(item, custom))
        case t.MapTypeNode(key, value):
            return MapType(_resolved(key, custom), _resolved(value, custom))
        case t.StructTypeNode(fields):
            return StructType.of([(field.name, _resolved(field.type, custom)) for field in fields])
    name = node.name.upper()
    if name in DECIMALS and len(node.parameters) == 2:
        precision, scale = node.parameters
        if isinstance(precision, int) and isinstance(scale, int):
            return DecimalType(precision, scale)
    if name in NAMES:
        return NAMES[name]
    if node.name in custom:
        return custom[node.name]
    if name in DECIMALS:
        raise refused(f"{name} takes a precision and a scale, such as DECIMAL(10, 2)", node.at)
    hint = OTHER_TYPES.get(name) or did_you_mean(node.name, (*NAMES, *DECIMALS, *custom))
    raise refused(f"Cannot resolve unknown type: {node.name}", node.at, hint)
