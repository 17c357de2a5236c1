"""CREATE OR REPLACE of a query: whether the new plan can go on with the state of the old one.

A store outlives the statement that made it, so its contents must mean the same to the new one. Conditions, projections
and columns that are computed behind the state may change; what the state is made of may not: sources, keys, groups,
aggregates, windows, joins. Stores that are compared by their bytes alone would mix groups of one type without notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.sql.analyse import plans as p
from penstock.sql.analyse.walking import steps_below

__all__ = ["has_state", "obstacles"]


@dataclass(frozen=True, slots=True)
class _StatefulPart:
    """A step that keeps state.

    Attributes:
        kind: What it is, as in the statement.
        facts: Clause -> its text, for all that the state depends on.
    """

    kind: str
    facts: tuple[tuple[str, str], ...]


def has_state(plan: p.QueryPlan) -> bool:
    """Return whether a query keeps state."""
    return any(True for _ in _parts(plan.root))


def obstacles(old: p.QueryPlan, new: p.QueryPlan) -> tuple[str, ...]:
    """Return the reasons why a query cannot go on with the state of the one that it replaces; none if it can.

    A query without state can become any other one; stores that it gets then start empty.
    """
    before, after = tuple(_parts(old.root)), tuple(_parts(new.root))
    if not before:
        return ()
    kinds = tuple([part.kind for part in parts] for parts in (before, after))
    if kinds[0] != kinds[1]:
        return (f"it kept the state of {_listed(kinds[0])}, and now would keep that of {_listed(kinds[1])}",)
    reasons = [
        f"{clause} was {was} and now is {now}"
        for one, two in zip(before, after, strict=True)
        for (clause, was), (_, now) in zip(one.facts, two.facts, strict=True)
        if was != now
    ]
    sources = tuple(_sources(plan.root) for plan in (old, new))
    if sources[0] != sources[1]:
        reasons.insert(0, f"it read {_listed(sources[0])} and now reads {_listed(sources[1])}")
    return tuple(dict.fromkeys(reasons))


def _sources(root: p.PlanStep) -> list[str]:
    reads = (step for step in steps_below(root) if isinstance(step, p.Read) and not isinstance(step, p.Derived))
    return sorted(f"{read.source.kind.lower()} {read.source.name} (topic {read.source.topic})" for read in reads)


def _parts(root: p.PlanStep) -> Iterator[_StatefulPart]:
    for step in steps_below(root):
        match step:
            case p.Aggregate():
                yield _StatefulPart("GROUP BY", tuple(_aggregate(step)))
            case p.JoinStreams(times=times):
                within = f"{times.before_ms} ms before, {times.after_ms} ms after"
                yield _StatefulPart("a join of streams", (*_joined(step), ("WITHIN", within)))
            case p.JoinForeign():
                yield _StatefulPart("a foreign-key join", (*_joined(step), ("the foreign key", step.foreign_key.text)))
            case p.JoinTables():
                yield _StatefulPart("a join of tables", tuple(_joined(step)))
            case p.Rekey(is_table=True):
                yield _StatefulPart("PARTITION BY", (("PARTITION BY", _texts(step.expressions)),))
            case p.Read(is_table=True):
                yield _StatefulPart("a table", ((f"the columns of {step.source.name}", _columns(step)),))


def _aggregate(step: p.Aggregate) -> Iterator[tuple[str, str]]:
    yield "GROUP BY", _texts(step.grouping)
    yield "the list of aggregates", _listed([call.text for call in step.calls])
    times = step.times
    window = "none" if times is None else f"{times.kind} of {times.size_ms} ms"
    yield "WINDOW", window if times is None or times.advance_ms is None else f"{window} by {times.advance_ms} ms"


def _joined(step: p.JoinStreams | p.JoinForeign | p.JoinTables) -> tuple[tuple[str, str], ...]:
    return (
        ("the join", f"{step.kind} JOIN"),
        ("the columns on its left", _columns(step.left)),
        ("the columns on its right", _columns(step.right)),
    )


def _columns(step: p.PlanStep) -> str:
    return _listed([f"{each} {each.type}" for each in step.fields])


def _texts(expressions: tuple[p.Expression, ...]) -> str:
    return ", ".join(f"{each.text} {each.type}" for each in expressions)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
