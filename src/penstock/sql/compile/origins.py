"""Which columns of a record's origin a query names: its time, partition, offset or headers.

Only a processor sees them, and it takes record by record; rows of queries that name none of them are made without one.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.sql.analyse.plans import PlanStep
from penstock.sql.analyse.walking import expressions_in, steps_below
from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.generate import parts

__all__ = ["names_origins"]

OF_ORIGIN = ("HEADER", "PSEUDO")


def names_origins(root: PlanStep) -> bool:
    """Return whether an expression of a query has the time, partition, offset or headers of a record."""
    return any(_named(step) for step in steps_below(root))


def _named(step: PlanStep) -> bool:
    above = getattr(step, "above", None) or getattr(step, "left", None)
    if not isinstance(above, PlanStep):
        return False
    places = {index for each in expressions_in(step) for index in _places(each.typed)}
    return any(above.fields[index].role in OF_ORIGIN for index in places if index < len(above.fields))


def _places(node: n.Typed) -> Iterator[int]:
    if isinstance(node, n.TypedColumn):
        yield node.index
    for part in parts(node):
        yield from _places(part)
