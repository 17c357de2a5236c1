"""The logical plan of a query: a frozen tree of steps; walks over it, and whether one may replace another.

A store outlives the statement that made it, so its contents must mean the same to the new one. Conditions, projections
and columns that are computed behind the state may change; what the state is made of may not: sources, keys, groups,
aggregates, windows, joins. Stores that are compared by their bytes alone would mix groups of one type without notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from dataclasses import fields as parts_of
from typing import Any, Literal, cast

from penstock.sql.analyse.fields import RowField
from penstock.sql.catalog import DataFormat, Source, SourceColumn, SourceWindow
from penstock.sql.evaluate.typed import Typed
from penstock.sql.functions.aggregates import BoundAggregate
from penstock.sql.functions.registry import Bound
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.expression_nodes import Node
from penstock.sql.parse.formatting import format_expression
from penstock.sql.parse.statement_nodes import JoinKind
from penstock.sql.types import SqlType

__all__ = [
    "Aggregate",
    "AggregateCall",
    "Derived",
    "Expression",
    "FilterStep",
    "FlattenStep",
    "JoinForeign",
    "JoinStreamTable",
    "JoinStreams",
    "JoinTables",
    "JoinTimes",
    "PlanStep",
    "Project",
    "QueryPlan",
    "Read",
    "Rekey",
    "Sink",
    "TableCall",
    "WindowTimes",
    "expressions_below",
    "expressions_in",
    "has_state",
    "obstacles",
    "reads_of",
    "steps_below",
]

LONGEST_LABEL = 80


@dataclass(frozen=True, slots=True)
class Expression:
    """A typed expression with its text."""

    text: str
    typed: Typed = field(repr=False)

    @property
    def type(self) -> SqlType:
        """The type of its values."""
        return self.typed.type

    @property
    def label(self) -> str:
        """Its text on one line, cut where it is long: what its errors are counted under."""
        text = " ".join(self.text.split())
        return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 3]}..."


class PlanPart:
    """The base of a plan's steps and of their parts: fields of all of them may hold expressions."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep(PlanPart):
    """The common part of all steps.

    Attributes:
        fields: The columns of a row.
        key: The types of the key's columns; empty if there is no key.
        key_format: The format in which keys go through internal topics.
        is_table: Whether it is a table; else it is a stream.
        window: The windows of the keys.
        key_names: For each column of the key the expressions that have its value, with qualified columns; SELECT names
            one of them.
        key_word: The kind of these expressions, for messages.
    """

    fields: tuple[RowField, ...]
    key: tuple[SqlType, ...]
    key_format: DataFormat
    is_table: bool
    window: SourceWindow | None = None
    key_names: tuple[tuple[x.Expression, ...], ...] = ()
    key_word: str = "key column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(PlanStep):
    """A source, read from its topic."""

    source: Source
    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Read):
    """A subquery, read as if its results were a source; nothing of it is in a topic.

    Attributes:
        above: The last step of the subquery.
        reads: The sources that it reads.
    """

    above: PlanStep
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep(PlanStep):
    """WHERE or HAVING."""

    above: PlanStep
    predicate: Expression


@dataclass(frozen=True, slots=True)
class TableCall(PlanPart):
    """A call of a table function."""

    function: Bound = field(repr=False)
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlattenStep(PlanStep):
    """Table functions: as many rows as the longest of their results has, with null where another is shorter."""

    above: PlanStep
    calls: tuple[TableCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rekey(PlanStep):
    """PARTITION BY, or the key of a join; without expressions the key is null.

    Attributes:
        whole: Whether a key with a null in it is null.
    """

    above: PlanStep
    expressions: tuple[Expression, ...]
    name: str = "PartitionBy"
    whole: bool = False


@dataclass(frozen=True, slots=True)
class JoinTimes(PlanPart):
    """WITHIN, in milliseconds; no grace is ksqlDB's old behaviour."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStreams(PlanStep):
    """A join of two streams whose keys are equal."""

    left: PlanStep
    right: PlanStep
    kind: JoinKind
    times: JoinTimes
    name: str = "Join"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStreamTable(PlanStep):
    """A join of a stream with a table by the table's key."""

    left: PlanStep
    right: PlanStep
    kind: JoinKind
    name: str = "Join"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTables(PlanStep):
    """A join of two tables by their keys."""

    left: PlanStep
    right: PlanStep
    kind: JoinKind


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinForeign(PlanStep):
    """A join of a table with another by a column of the one and the key of the other."""

    left: PlanStep
    right: PlanStep
    kind: JoinKind
    foreign_key: Expression


@dataclass(frozen=True, slots=True)
class WindowTimes(PlanPart):
    """The windows of an aggregation, in milliseconds."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION", "SLIDING"]
    size_ms: int
    advance_ms: int | None
    grace_ms: int
    retention_ms: int | None


@dataclass(frozen=True, slots=True)
class AggregateCall(PlanPart):
    """A call of an aggregate function.

    Attributes:
        function: The function, bound to its constants.
        arguments: The arguments that are not constant.
        constants: The texts of those that are.
    """

    function: BoundAggregate = field(repr=False)
    arguments: tuple[Expression, ...] = ()
    constants: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The call with the types of its arguments: what a state of it is a state of."""
        arguments = [f"{each.text} {each.type}" for each in self.arguments]
        return f"{self.function.name}({', '.join((*arguments, *self.constants)) or '*'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(PlanStep):
    """GROUP BY. Its rows have the grouping expressions, the aggregates, and the bounds of the window if there is one.

    Attributes:
        by_key: Whether the grouping expressions are the key, so that nothing moves.
        final: Whether results come once, when a window has closed.
        idle_ms: The wall-clock time without a record after which all windows close; None: windows wait for records.
    """

    above: PlanStep
    grouping: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    by_key: bool
    times: WindowTimes | None = None
    final: bool = False
    idle_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(PlanStep):
    """SELECT: the columns of the value; the key stays."""

    above: PlanStep
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """The source that a query writes, with the columns in the order of the query."""

    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A persistent query.

    Attributes:
        id: Its id, such as ``CSAS_OUTPUT_0``.
        root: Its last step.
        sink: The name of the source that it writes.
        target: That source.
        reads: The names of the sources that it reads.
        replaces: The id of the query that it replaces.
    """

    id: str
    root: PlanStep
    sink: str
    target: Source
    reads: tuple[str, ...]
    columns: tuple[SourceColumn, ...]
    text: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    replaces: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON: what EXPLAIN shows and what two versions of a query are compared by."""
        steps: Any = plain(self.root)
        return {"id": self.id, "sink": plain(self.target), "reads": list(self.reads), "root": steps}


def plain(value: Any) -> Any:
    """Return a part of a plan as JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case Expression():
            return {"expression": value.text, "type": str(value.type)}
        case SqlType():
            return str(value)
        case RowField():
            return {"name": str(value), "type": str(value.type), "role": value.role}
        case Bound():
            return value.name
        case BoundAggregate():
            return value.name
        case Node():
            return format_expression(cast("x.Expression", value))
        case tuple() | list():
            return [plain(item) for item in value]
    shown = {part.name: plain(getattr(value, part.name)) for part in parts_of(value)}
    return {"step": type(value).__name__.removesuffix("Step"), **shown} if isinstance(value, PlanStep) else shown


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
    elif isinstance(value, PlanPart) and is_dataclass(value) and (top or not isinstance(value, PlanStep)):
        for part in fields(value):
            yield from _expressions(getattr(value, part.name))


@dataclass(frozen=True, slots=True)
class _StatefulPart:
    """A step that keeps state.

    Attributes:
        kind: What it is, as in the statement.
        facts: Clause -> its text, for all that the state depends on.
    """

    kind: str
    facts: tuple[tuple[str, str], ...]


def has_state(plan: QueryPlan) -> bool:
    """Return whether a query keeps state."""
    return any(True for _ in _parts(plan.root))


def obstacles(old: QueryPlan, new: QueryPlan) -> tuple[str, ...]:
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


def _sources(root: PlanStep) -> list[str]:
    reads = (step for step in steps_below(root) if isinstance(step, Read) and not isinstance(step, Derived))
    return sorted(f"{read.source.kind.lower()} {read.source.name} (topic {read.source.topic})" for read in reads)


def _parts(root: PlanStep) -> Iterator[_StatefulPart]:
    for step in steps_below(root):
        match step:
            case Aggregate():
                yield _StatefulPart("GROUP BY", tuple(_aggregate(step)))
            case JoinStreams(times=times):
                within = f"{times.before_ms} ms before, {times.after_ms} ms after"
                yield _StatefulPart("a join of streams", (*_joined(step), ("WITHIN", within)))
            case JoinForeign():
                yield _StatefulPart("a foreign-key join", (*_joined(step), ("the foreign key", step.foreign_key.text)))
            case JoinTables():
                yield _StatefulPart("a join of tables", tuple(_joined(step)))
            case Rekey(is_table=True):
                yield _StatefulPart("PARTITION BY", (("PARTITION BY", _texts(step.expressions)),))
            case Read(is_table=True):
                yield _StatefulPart("a table", ((f"the columns of {step.source.name}", _columns(step)),))


def _aggregate(step: Aggregate) -> Iterator[tuple[str, str]]:
    yield "GROUP BY", _texts(step.grouping)
    yield "the list of aggregates", _listed([call.text for call in step.calls])
    times = step.times
    window = "none" if times is None else f"{times.kind} of {times.size_ms} ms"
    yield "WINDOW", window if times is None or times.advance_ms is None else f"{window} by {times.advance_ms} ms"


def _joined(step: JoinStreams | JoinForeign | JoinTables) -> tuple[tuple[str, str], ...]:
    return (
        ("the join", f"{step.kind} JOIN"),
        ("the columns on its left", _columns(step.left)),
        ("the columns on its right", _columns(step.right)),
    )


def _columns(step: PlanStep) -> str:
    return _listed([f"{each} {each.type}" for each in step.fields])


def _texts(expressions: tuple[Expression, ...]) -> str:
    return ", ".join(f"{each.text} {each.type}" for each in expressions)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
