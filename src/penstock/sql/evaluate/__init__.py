"""Expressions over rows: parsed trees are typed, and typed trees become generated Python functions."""

from penstock.sql.evaluate.compiled import compile_predicate, compile_rows, generated_source
from penstock.sql.evaluate.trees import aggregates_in, calls_in, columns_in, substitute
from penstock.sql.evaluate.typed import Functions, Scope, Typed, TypedColumn
from penstock.sql.evaluate.typing import sql_type, type_expression

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
