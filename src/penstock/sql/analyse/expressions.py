"""Parsed expressions of a clause to typed ones, with errors that name the clause and the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import SqlError
from penstock.sql.analyse.fields import ClauseScope
from penstock.sql.analyse.plans import Expression
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.evaluate import calls_in, type_expression
from penstock.sql.functions.aggregates import AggregateRegistry
from penstock.sql.functions.registry import FunctionRegistry
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.expression_nodes import Node
from penstock.sql.parse.formatting import format_expression
from penstock.sql.types import BOOLEAN, NULL, SqlTypeError

__all__ = ["Library", "constant_value", "predicate", "typed_expression"]

# Refusals of names, which say the clause themselves.
UNRESOLVED = ("which no source has", "ambiguous", "No stream, table or alias")


@dataclass(frozen=True, slots=True)
class Library:
    """All functions that a statement may call."""

    scalars: FunctionRegistry
    aggregates: AggregateRegistry
    tables: FunctionRegistry

    def aggregates_of(self, node: Node) -> tuple[x.CallNode, ...]:
        """Return the calls of aggregate functions in an expression."""
        return calls_in(node, lambda name: self.aggregates.get(name) is not None)

    def tables_of(self, node: Node) -> tuple[x.CallNode, ...]:
        """Return the calls of table functions in an expression."""
        return calls_in(node, lambda name: self.tables.get(name) is not None)


def typed_expression(node: Any, names: ClauseScope, library: Library) -> Expression:
    """Type an expression.

    Raises:
        SqlError: A name is unknown, or types do not fit.
    """
    try:
        return Expression(format_expression(node), type_expression(node, names, library.scalars))
    except SqlTypeError as error:
        raise refusal(node.at, f"Invalid {names.clause}: {error}") from error
    except SqlError as error:
        if getattr(error, "line", 0):
            raise
        raise refusal(node.at, error.message, error.hint) from error


def predicate(node: Any, names: ClauseScope, library: Library) -> Expression:
    """Type an expression that must be true or false."""
    if library.tables_of(node):
        raise refusal(node.at, f"{names.clause} calls a table function; these are allowed only in SELECT")
    try:
        condition = typed_expression(node, names, library)
    except SqlError as error:
        where = f"In {names.clause}: "
        if any(word in error.message for word in UNRESOLVED):
            raise
        line, column = getattr(error, "line", 0), getattr(error, "column", 0)
        prefix = f"line {line}:{column}: "
        facts = {"line": line, "column": column, "offset": getattr(error, "offset", 0)}
        raise SqlError(prefix + where + error.message.removeprefix(prefix), hint=error.hint, **facts) from error
    if condition.type not in (BOOLEAN, NULL):
        raise refusal(
            node.at,
            f"{names.clause} takes a BOOLEAN expression; the type of {condition.text} is {condition.type}.",
        )
    return condition


def constant_value(node: Node) -> Any:
    """Return the value of a literal; None if it is none."""
    match node:
        case x.IntegerLiteral(value) | x.StringLiteral(value) | x.BooleanLiteral(value):
            return value
        case x.Unary("-", x.IntegerLiteral(value)):
            return -value
        case x.DoubleLiteral(text):
            return float(text)
    return None


def texts(nodes: Sequence[Any]) -> list[str]:
    """Return the texts of expressions."""
    return [format_expression(node) for node in nodes]
