"""The operations of a topology's processors, as frozen data; `runtime` has one operator for each.

The comment after each class is Kafka's processor. Stores are named; their specs are in the topology.
``send_old``: the node's changes carry old values, as a node downstream needs them.

The foreign-key join: on the left side `SubscriptionSend` subscribes its rows to their foreign keys on the right side.
There `SubscriptionReceive` keeps the subscriptions, `SubscriptionJoin` answers with the present foreign value, and
`ForeignTableJoin` answers again when a foreign value changes. On the left side `ResponseJoin` joins the answers that
still fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.base.argument_checks import check_given, check_whole
from penstock.base.backoff import Backoff
from penstock.base.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.operations.functions import Function

__all__ = [
    "Aggregation",
    "Branch",
    "CogroupMember",
    "CogroupMerge",
    "DropNullKeys",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "Foreach",
    "ForeignTableJoin",
    "MapAsync",
    "MapPairs",
    "MapValues",
    "Operation",
    "PassThrough",
    "Peek",
    "Process",
    "ResponseJoin",
    "Retry",
    "SelectKey",
    "StreamAggregate",
    "StreamGlobalTableJoin",
    "StreamTableJoin",
    "StreamToTable",
    "SubscriptionJoin",
    "SubscriptionReceive",
    "SubscriptionSend",
    "Suppress",
    "TableAggregate",
    "TableFilter",
    "TableJoinMerge",
    "TableMapValues",
    "TableRegroup",
    "TableSource",
    "TableTableJoin",
    "TableToStream",
    "TableTransformValues",
    "WindowSpec",
    "WindowedAggregate",
]

_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows of one kind; ``kind`` "time" is tumbling (advance = size) or hopping.

    ``size_ms`` is the window's size (sliding: the time difference; session: the inactivity gap).
    """

    kind: Literal["time", "sliding", "session", "unlimited"]
    size_ms: int
    advance_ms: int = 0
    grace_ms: int = 0
    start_ms: int = 0

    @property
    def closes_after_ms(self) -> int:
        """The time from a window's end to its close: grace; a session can still grow for the gap before that."""
        return self.grace_ms + (self.size_ms if self.kind == "session" else 0)

    @property
    def retention_ms(self) -> int:
        """The least time for which a store has to keep the windows.

        A record of sliding windows looks back twice the time difference.
        """
        sizes = 2 if self.kind == "sliding" else 1
        return min(sizes * self.size_ms + self.grace_ms, _LONG_MAX)


@dataclass(frozen=True, slots=True)
class Operation:
    """Base of all operations.

    Attributes:
        keeps_keys: Whether records go on with the keys that they came with, so that a wrapper gets a supplier of
            processors with fixed keys.
        keeps_values: Whether values go on as they came, so that the schema of those above holds below.
        reads_values: Whether the fields that its functions name are those of the values that come.
    """

    keeps_keys: ClassVar[bool] = False
    keeps_values: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class PassThrough(Operation):  # PassThrough: merge, the target of through() and of named branches
    keeps_values = True


@dataclass(frozen=True, slots=True)
class DropNullKeys(Operation):  # KStreamFilter before a repartition topic: null keys are dropped, not counted
    keeps_keys = True
    keeps_values = True


@dataclass(frozen=True, slots=True)
class Filter(Operation):  # KStreamFilter
    predicate: Function
    negate: bool = False

    keeps_keys = True
    keeps_values = True
    reads_values = True


@dataclass(frozen=True, slots=True)
class MapPairs(
    Operation
):  # KStreamMap; the function returns a (key, value) tuple, or an expression a struct {key, value}
    fn: Function

    reads_values = True


@dataclass(frozen=True, slots=True)
class MapValues(Operation):  # KStreamMapValues
    fn: Function

    keeps_keys = True
    reads_values = True


@dataclass(frozen=True, slots=True)
class FlatMap(Operation):  # KStreamFlatMap; an iterable of (key, value), or an expression for a list of structs
    fn: Function

    reads_values = True


@dataclass(frozen=True, slots=True)
class FlatMapValues(Operation):  # KStreamFlatMapValues; an iterable, or an expression for a list
    fn: Function

    keeps_keys = True
    reads_values = True


@dataclass(frozen=True, slots=True)
class SelectKey(Operation):  # KStreamMap with the value kept
    fn: Function

    keeps_values = True
    reads_values = True


@dataclass(frozen=True, slots=True)
class Peek(Operation):  # KStreamPeek
    fn: Function

    keeps_keys = True
    keeps_values = True


@dataclass(frozen=True, slots=True)
class Foreach(Operation):  # KStreamForeach: a peek that forwards nothing
    fn: Function


@dataclass(frozen=True, slots=True)
class Branch(
    Operation
):  # KStreamBranch: the first predicate that holds sends the record to that child, else the default
    predicates: tuple[Function, ...]
    children: tuple[str, ...]  # names of the children, one a predicate
    default: str | None = None

    keeps_values = True
    reads_values = True


@dataclass(frozen=True, slots=True)
class TableSource(Operation):  # KTableSource
    store: str | None  # None: not materialised
    send_old: bool = False

    keeps_values = True


@dataclass(frozen=True, slots=True)
class StreamToTable(Operation):  # KStreamToTable: KTableSource's rules for null keys and tombstones, after toTable()
    store: str | None
    send_old: bool = False

    keeps_values = True


@dataclass(frozen=True, slots=True)
class TableFilter(
    Operation
):  # KTableFilter; ``parent`` is the table node whose value getter serves when there is no store
    predicate: Function
    parent: str
    store: str | None = None
    negate: bool = False
    send_old: bool = False
    versioned: bool = False  # the table above is: every change goes on, as none is needless

    keeps_values = True
    reads_values = True


@dataclass(frozen=True, slots=True)
class TableMapValues(Operation):  # KTableMapValues
    fn: Function
    parent: str
    store: str | None = None
    send_old: bool = False

    reads_values = True


@dataclass(frozen=True, slots=True)
class TableToStream(Operation):  # KTable.toStream: changes become records with the new value
    keeps_keys = True
    keeps_values = True


@dataclass(frozen=True, slots=True)
class TableRegroup(
    Operation
):  # KTableRepartitionMap: (key, change) -> changes under the new keys, as ChangeSerde values
    fn: Function
    parent: str
    versioned: bool = False  # the table above is: changes that are not the latest are left out

    reads_values = True


AggregationKind = Literal["count", "reduce", "aggregate"]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The functions that fold values into an aggregate.

    "count": ``initializer``, ``aggregator`` None. "reduce": ``aggregator(aggregate, value)``, the first value starts.
    "aggregate": ``initializer()`` starts, ``aggregator(key, value, aggregate)``. ``merger(key, left, right)`` merges
    sessions. On a grouped table, ``aggregator`` is the adder and ``subtractor`` takes old values out.
    """

    kind: AggregationKind
    aggregator: Function | None = None
    initializer: Callable[[], Any] | None = None
    subtractor: Function | None = None
    merger: Function | None = None


@dataclass(frozen=True, slots=True)
class StreamAggregate(Operation):  # KStreamReduce, KStreamAggregate
    aggregation: Aggregation
    store: str
    send_old: bool = False

    reads_values = True


@dataclass(frozen=True, slots=True)
class WindowedAggregate(
    Operation
):  # KStreamWindowAggregate, KStreamSlidingWindowAggregate, KStreamSessionWindowAggregate, by the kind of the windows
    aggregation: Aggregation
    windows: WindowSpec
    store: str
    on_close: bool = False
    send_old: bool = False
    idle_ms: int | None = None  # not in Kafka: windows close when no record came for so long

    reads_values = True


@dataclass(frozen=True, slots=True)
class TableAggregate(Operation):  # KTableAggregate, KTableReduce: takes ChangeSerde values
    aggregation: Aggregation
    store: str
    send_old: bool = False

    reads_values = True


@dataclass(frozen=True, slots=True)
class StreamTableJoin(Operation):  # KStreamKTableJoin; ``table`` is the table's node, read through its value getter
    table: str
    joiner: Function  # (stream value, table value) or (key, stream value, table value)
    left: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None


@dataclass(frozen=True, slots=True)
class StreamGlobalTableJoin(Operation):  # KStreamGlobalKTableJoin; ``store`` is the global table's
    store: str
    joiner: Function  # (stream value, table value) or (key, stream value, table value)
    selector: Function  # (value) or (key, value) -> key of the global table
    left: bool = False

    reads_values = True


@dataclass(frozen=True, slots=True)
class Process(Operation):  # the Processor API: a supplier of Processor or FixedKeyProcessor objects, one a task
    supplier: Callable[[], Any]
    stores: tuple[str, ...] = ()
    fixed_key: bool = False


TableJoinKind = Literal["inner", "left", "outer"]


@dataclass(frozen=True, slots=True)
class TableTableJoin(Operation):  # KTableKTableInnerJoin, ...LeftJoin, ...RightJoin, ...OuterJoin
    """One side's changes with the other side's table.

    ``table`` is the other side's node, read through its value getter. ``from_right``: the changes are those of the
    right side, and ``joiner``, which takes (left, right) or (key, left, right), gets them second.
    """

    kind: TableJoinKind
    table: str
    joiner: Function
    from_right: bool
    send_old: bool = False
    versioned: bool = False  # this side is: changes that are not the latest are dropped


@dataclass(frozen=True, slots=True)
class TableJoinMerge(Operation):  # KTableKTableJoinMerger
    """The changes of both sides as one table. ``left``, ``right``: the joined tables, read when there is no store."""

    kind: TableJoinKind
    left: str
    right: str
    joiner: Function
    store: str | None = None
    send_old: bool = False


@dataclass(frozen=True, slots=True)
class TableTransformValues(Operation):  # KTableTransformValues; one transformer a task, and one for reading the table
    supplier: Callable[[], Any]
    parent: str
    stores: tuple[str, ...] = ()
    store: str | None = None
    send_old: bool = False


@dataclass(frozen=True, slots=True)
class CogroupMember(Operation):  # KStreamAggregate, KStreamWindowAggregate, ... of one of the streams
    number: int
    windows: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class CogroupMerge(Operation):  # KTablePassThrough; ``aggregators`` by the number of the stream
    aggregators: tuple[Function, ...]
    initializer: Callable[[], Any]
    store: str
    windows: WindowSpec | None = None
    merger: Function | None = None
    send_old: bool = False


@dataclass(frozen=True, slots=True)
class Suppress(Operation):  # KTableSuppressProcessor; ``parent`` is the table node whose values it shows late
    parent: str
    store: str
    wait_ms: int  # from the buffer time of a key: its window's end, or the time of the first change held back for it
    until_window_closes: bool
    max_records: int | None = None
    max_bytes: int | None = None
    emit_early: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionSend(Operation):  # SubscriptionSendProcessorSupplier
    """``extractor`` takes (value) or (key, value) and returns the foreign key."""

    extractor: Function
    primary_key_serde: Any
    foreign_key_serde: Any
    value_serde: Any
    left: bool
    versioned: bool = False  # the left table is: changes that are not the latest are dropped


@dataclass(frozen=True, slots=True)
class SubscriptionReceive(Operation):  # SubscriptionReceiveProcessorSupplier
    foreign_key_serde: Any
    primary_key_serde: Any
    store: str


@dataclass(frozen=True, slots=True)
class SubscriptionJoin(Operation):  # SubscriptionJoinProcessorSupplier; ``table`` is the right table
    table: str


@dataclass(frozen=True, slots=True)
class ForeignTableJoin(Operation):  # ForeignTableJoinProcessorSupplier; ``subscriptions`` is the receiving node
    subscriptions: str
    foreign_key_serde: Any
    primary_key_serde: Any
    store: str
    versioned: bool = False  # the right table is: changes that are not the latest are dropped


@dataclass(frozen=True, slots=True)
class ResponseJoin(Operation):  # ResponseJoinProcessorSupplier; ``table`` is the left table
    """``joiner`` takes (left, right) or (key, left, right)."""

    table: str
    value_serde: Any
    joiner: Function
    left: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of retries of a call that raised or took too long, and the pauses before them.

    >>> list(Retry(4, backoff="1 s", max_backoff="5 s").pauses_ms())
    [1000, 2000, 4000, 5000]

    Args:
        times: Attempts after the first one.
        backoff: The pause before the first of them.
        factor: By which each pause is longer than the one before.
        max_backoff: The longest pause.
        on: The exceptions after which to try again; all others count as final.

    Raises:
        TopologyError: A number is out of range.
    """

    times: int = 3
    backoff: DurationLike = 100
    factor: float = 2.0
    max_backoff: DurationLike = 30_000
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        for name in ("backoff", "max_backoff"):
            object.__setattr__(self, name, duration_ms(getattr(self, name), name))
        check_whole(self.times, "Retry: times", 0)
        check_given(self.factor, (int, float), "Retry: factor", "a number")
        check_given(self.on, tuple, "Retry: on", "a tuple of exception classes", "For example (TimeoutError,).")
        if self.factor < 1 or duration_ms(self.backoff) < 0:
            raise TopologyError(
                f"{self!r} cannot be done", hint="Give times and backoff of at least 0, factor 1 or more."
            )
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.on):
            raise TopologyError(f"on= is {self.on!r}", hint="Give a tuple of exception classes.")

    def pauses_ms(self) -> Iterator[int]:
        """Yield the pauses, one for each further attempt."""
        backoff = Backoff(duration_ms(self.backoff) / 1000, duration_ms(self.max_backoff) / 1000, float(self.factor))
        for failures in range(1, self.times + 1):
            yield round(1000 * backoff.pause_s(failures))


@dataclass(frozen=True, slots=True)
class MapAsync(Operation):
    """A coroutine for each record; its result is the new value, or with ``pairs`` a (key, value) tuple."""

    fn: Function
    pairs: bool
    limit: int
    ordered: bool
    retry: Retry | None
    timeout_ms: int | None
