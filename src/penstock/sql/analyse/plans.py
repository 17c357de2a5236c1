"""The logical plan of a query: a frozen tree of steps, each with the columns of its rows and its key."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import fields as parts_of
from typing import Any, Literal, cast

from penstock.sql.analyse.fields import RowField
from penstock.sql.catalog.source import DataFormat, Source, SourceColumn, SourceWindow
from penstock.sql.evaluate.typed import Typed
from penstock.sql.functions.aggregates.definition import BoundAggregate
from penstock.sql.functions.registry import Bound
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.parse.nodes import Node
from penstock.sql.parse.query_nodes import JoinKind
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
    "Project",
    "QueryPlan",
    "Read",
    "Rekey",
    "Sink",
    "PlanStep",
    "TableCall",
    "WindowTimes",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """What all steps have.

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
class TableCall:
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
class JoinTimes:
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
class WindowTimes:
    """The windows of an aggregation, in milliseconds."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION", "SLIDING"]
    size_ms: int
    advance_ms: int | None
    grace_ms: int
    retention_ms: int | None


@dataclass(frozen=True, slots=True)
class AggregateCall:
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
