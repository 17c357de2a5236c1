"""The back end that evaluates an expression in a topology."""

from __future__ import annotations

from penstock.sql.analyse.plans import Derived, Expression, Flatten, Read, Step
from penstock.sql.analyse.walking import steps_below
from penstock.sql.compile.origins import names_origins
from penstock.sql.evaluate import vectorised

__all__ = ["back_end"]

BY_COLUMN = ("JSON", "DELIMITED", "KAFKA", "NONE")  # formats whose rows come as columns


def back_end(expression: Expression, root: Step | None) -> str:
    """The back end of an expression in batches of some size: Polars if rows come by the column, and it has its form.

    Rows that have columns of their origin (ROWTIME, headers), keys of windowed sources, schemas in a registry, and the
    results of table functions and subqueries come one by one.

    Args:
        expression: The expression.
        root: The last step of its query; None where rows of a table are looked up, which come one by one.
    """
    return vectorised.back_end(expression.typed) if root is not None and _by_column(root) else "Python"


def _by_column(root: Step) -> bool:
    if names_origins(root):
        return False
    for step in steps_below(root):
        if isinstance(step, Derived | Flatten):
            return False
        if isinstance(step, Read):
            source = step.source
            if source.window is not None or {source.key_format.name, source.value_format.name} - set(BY_COLUMN):
                return False
    return True
