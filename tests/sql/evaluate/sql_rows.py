"""Expressions over one row of named columns, for tests: parsed, typed, compiled and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import SqlError
from penstock.sql.evaluate import Typed, TypedColumn, compile_predicate, compile_rows, sql_type, type_expression
from penstock.sql.functions import EvaluationErrors, scalar_functions
from penstock.sql.parse import TextPosition, parse_expression, parse_statement
from penstock.sql.types import SqlType


def columns_of(declared: str) -> dict[str, SqlType]:
    """The columns of a list as CREATE STREAM has it."""
    if not declared:
        return {}
    statement = parse_statement(f"CREATE STREAM S ({declared}) WITH (KAFKA_TOPIC='s', FORMAT='JSON')")
    return {column.name: sql_type(column.type) for column in statement.columns}


class Columns:
    """A scope of columns in their order."""

    def __init__(self, kinds: dict[str, SqlType]) -> None:
        self.kinds = kinds

    def column(self, source: str | None, name: str, at: TextPosition) -> TypedColumn:
        if source is not None or name not in self.kinds:
            raise SqlError(f"Unknown column {name}.")
        return TypedColumn(self.kinds[name], list(self.kinds).index(name), at=at)


class Rows:
    """Columns, and the errors of all that was evaluated over them."""

    def __init__(self, declared: str = "") -> None:
        self.scope = Columns(columns_of(declared))
        self.errors = EvaluationErrors()

    def typed(self, text: str) -> Typed:
        return type_expression(parse_expression(text), self.scope, scalar_functions())

    def of(self, text: str, *row: Any) -> Any:
        """The value of an expression for a row."""
        return compile_rows([self.typed(text)], self.errors, ["it"])(row)[0]

    def where(self, text: str) -> Callable[[tuple[Any, ...]], bool]:
        return compile_predicate(self.typed(text), self.errors)
