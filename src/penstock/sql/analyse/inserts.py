"""INSERT INTO ... VALUES: one row, its values converted to the types of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import SqlError
from penstock.sql.analyse.fields import ClauseScope
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import PSEUDO, Source
from penstock.sql.evaluate import compile_rows, type_expression
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.functions.registry import FunctionRegistry
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.types import (
    BOOLEAN,
    DATE,
    NULL,
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
from penstock.sql.types.conversions import cast_function, widens
from penstock.sql.types.sql_type import is_numeric

__all__ = ["InsertedRow", "constant_of", "insert_values"]


@dataclass(frozen=True, slots=True)
class InsertedRow:
    """A row to write.

    Attributes:
        key: The values of the key's columns; None if there is no key.
        value: The values of the other columns; None for a tombstone.
        timestamp: ROWTIME, if it was given.
    """

    source: Source
    key: tuple[Any, ...] | None
    value: tuple[Any, ...] | None
    timestamp: int | None


def insert_values(statement: s.InsertValues, target: Source, scalars: FunctionRegistry) -> InsertedRow:
    """Return the row of a statement.

    Raises:
        SqlError: The target cannot be written, a column does not exist, or a value does not fit.
    """
    if target.read_only:
        raise refusal(
            statement.at, f"{target.name} is a read-only {target.kind.lower()}, and takes no INSERT of values"
        )
    if target.headers:
        raise refusal(statement.at, f"{target.name} has header columns, and takes no INSERT")
    if target.window is not None:
        raise refusal(statement.at, f"{target.name} is a windowed {target.kind.lower()}, and takes no INSERT of values")
    columns = {column.name: column.type for column in target.columns}
    names = statement.columns or tuple(column.name for column in (*target.keys, *target.values))
    if len(names) != len(statement.values):
        raise refusal(
            statement.at,
            f"Expected a value for each column. Expected columns: {list(names)}. Got {len(statement.values)} values",
        )
    values_by_name: dict[str, Any] = {}
    places = dict(zip(statement.columns, statement.places, strict=False))
    for name, node in zip(names, statement.values, strict=True):
        kind = PSEUDO["ROWTIME"] if name == "ROWTIME" else columns.get(name)
        if kind is None:
            hint = did_you_mean(name, columns) or f"Columns are {', '.join(columns)}."
            raise refusal(places.get(name, node.at), f"Column name {name} does not exist.", hint)
        if name in values_by_name:
            raise refusal(places.get(name, node.at), f"Column {name} is listed twice.")
        values_by_name[name] = constant_of(node, kind, name, scalars)
    keys = tuple(values_by_name.get(column.name) for column in target.keys)
    if target.is_table and any(value is None for value in keys):
        raise refusal(statement.at, "Failed to insert values: tables need a value for each PRIMARY KEY column")
    timestamp = values_by_name.get("ROWTIME")
    if timestamp is not None and timestamp < 0:
        reason = f"ROWTIME is milliseconds since 1970, and {timestamp} is before"
        raise refusal(statement.values[names.index("ROWTIME")].at, reason)
    values = tuple(values_by_name.get(column.name) for column in target.values)
    absent = target.is_table and not any(column.name in values_by_name for column in target.values)
    key = keys if keys and any(value is not None for value in keys) else None
    return InsertedRow(target, key, None if absent else values, timestamp)


def constant_of(node: Any, kind: SqlType, name: str, scalars: FunctionRegistry) -> Any:
    """Return the value of an expression without columns, as a column's type has it.

    Raises:
        SqlError: It cannot be computed, or does not fit.
    """
    if isinstance(node, x.NullLiteral):
        return None
    errors = EvaluationErrors()
    try:
        typed = type_expression(node, ClauseScope((), "VALUES"), scalars)
        (value,) = compile_rows([typed], errors)(())
    except SqlTypeError as error:
        raise refusal(node.at, str(error)) from error
    if errors.counts:
        raise refusal(node.at, f"The value of {name} cannot be computed")
    if typed.type in (kind, NULL) or value is None:
        return value
    if not _converts(typed.type, kind):
        raise refusal(node.at, f"Expected type {kind} for field {name} but got {typed.type}")
    try:
        converted = cast_function(typed.type, kind)(value)
    except (ValueError, TypeError, ArithmeticError, SqlError) as error:
        shown = repr(value) if isinstance(value, str) else str(value)
        raise refusal(node.at, f"{shown} is not {with_article(str(kind))} for field {name}: {error}") from error
    if not _kept(value, converted):
        raise refusal(
            node.at,
            f"Expected type {kind} for field {name} but got {typed.type}: {value} would become {converted}",
            "Round it, or CAST it, to say that this is meant.",
        )
    return converted


def _kept(value: Any, converted: Any) -> bool:
    """Return whether a value is the same number, or has the same numbers, after its conversion."""
    if isinstance(value, bool) or isinstance(converted, bool | float):
        return True  # DOUBLE is wider than all others
    if isinstance(value, int | float | Decimal) and isinstance(converted, int | Decimal):
        return Decimal(str(value)) == converted
    if isinstance(value, list):
        return all(map(_kept, value, converted))
    if isinstance(value, dict):
        return all(_kept(item, converted[name]) for name, item in value.items() if name in converted)
    return True


def _converts(source: SqlType, target: SqlType) -> bool:
    if widens(source, target):
        return True
    if is_numeric(source) and (isinstance(target, DecimalType) or is_numeric(target)):
        return True
    match source, target:
        case ArrayType(inner), ArrayType(outer):
            return _converts(inner, outer)
        case MapType(key, inner), MapType(other, outer):
            return key == other and _converts(inner, outer)
        case StructType(fields), StructType():
            return all((kind := target.field(f.name)) is not None and _converts(f.type, kind) for f in fields)
    return source == STRING and target in (DATE, TIME, TIMESTAMP, BOOLEAN)
