"""The back end that evaluates an expression in a topology."""

from __future__ import annotations

from penstock.sql.analyse.plans import Expression

__all__ = ["back_end"]


def back_end(expression: Expression) -> str:
    """The back end of an expression: topologies take rows one by one, so all are generated Python."""
    del expression
    return "Python"
