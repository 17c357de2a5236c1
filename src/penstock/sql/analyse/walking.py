"""Walks over the steps of a plan: its sources and its expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.sql.analyse.plans import Derived, Expression, PlanStep, QueryPlan, Read

__all__ = ["expressions_below", "expressions_in", "reads_of", "steps_below"]


def steps_below(step: PlanStep) -> Iterator[PlanStep]:
    """Yield a step and those above it, sources last."""
    yield step
    for name in ("above", "left", "right"):
        other = getattr(step, name, None)
        if isinstance(other, PlanStep):
            yield from steps_below(other)


def reads_of(plan: QueryPlan) -> Iterator[Read]:
    """Return the sources that a plan reads."""
    return (step for step in steps_below(plan.root) if isinstance(step, Read) and not isinstance(step, Derived))


def expressions_below(root: PlanStep) -> Iterator[Expression]:
    """Yield the expressions of a plan, sources first."""
    for step in reversed(list(steps_below(root))):
        yield from expressions_in(step)


def expressions_in(step: PlanStep) -> Iterator[Expression]:
    """Return the expressions of one step."""
    return _expressions(step, top=True)


def _expressions(value: Any, *, top: bool = False) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)
    elif is_dataclass(value) and (top or not isinstance(value, PlanStep)) and type(value).__module__.endswith(".plans"):
        for part in fields(value):
            yield from _expressions(getattr(value, part.name))
