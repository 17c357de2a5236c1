"""Expressions over rows: parsed trees are typed, and typed trees become generated Python functions."""

from penstock.sql.evaluate.compiled import compile_predicate, compile_rows, generated_source
from penstock.sql.evaluate.typed import Functions, Scope, Typed, TypedColumn
from penstock.sql.evaluate.typing import aggregates_in, calls_in, columns_in, sql_type, substitute, type_expression

__all__ = [
    "Functions",
    "Scope",
    "Typed",
    "TypedColumn",
    "aggregates_in",
    "calls_in",
    "columns_in",
    "compile_predicate",
    "compile_rows",
    "generated_source",
    "sql_type",
    "substitute",
    "type_expression",
]
