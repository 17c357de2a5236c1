"""The operations of a topology's processors, as frozen data; `runtime` has one operator for each.

The comment after each class is Kafka's processor. Stores are named; their specs are in the topology.
``send_old``: the node's changes carry old values, as a node downstream needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.topology.operations.functions import Function
from penstock.topology.operations.windows import WindowSpec

__all__ = [
    "Aggregation",
    "Branch",
    "DropNullKeys",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "Foreach",
    "MapPairs",
    "MapValues",
    "Operation",
    "PassThrough",
    "Peek",
    "Process",
    "SelectKey",
    "StreamAggregate",
    "StreamGlobalTableJoin",
    "StreamTableJoin",
    "StreamToTable",
    "TableAggregate",
    "TableFilter",
    "TableMapValues",
    "TableSource",
    "TableToStream",
    "TableRegroup",
    "WindowedAggregate",
]


@dataclass(frozen=True, slots=True)
class Operation:
    """Base of all operations."""


@dataclass(frozen=True, slots=True)
class PassThrough(Operation):  # PassThrough: merge, the target of through() and of named branches
    pass


@dataclass(frozen=True, slots=True)
class DropNullKeys(Operation):  # KStreamFilter before a repartition topic: null keys are dropped, not counted
    pass


@dataclass(frozen=True, slots=True)
class Filter(Operation):  # KStreamFilter
    predicate: Function
    negate: bool = False


@dataclass(frozen=True, slots=True)
class MapPairs(
    Operation
):  # KStreamMap; the function returns a (key, value) tuple, or an expression a struct {key, value}
    fn: Function


@dataclass(frozen=True, slots=True)
class MapValues(Operation):  # KStreamMapValues
    fn: Function


@dataclass(frozen=True, slots=True)
class FlatMap(Operation):  # KStreamFlatMap; an iterable of (key, value), or an expression for a list of structs
    fn: Function


@dataclass(frozen=True, slots=True)
class FlatMapValues(Operation):  # KStreamFlatMapValues; an iterable, or an expression for a list
    fn: Function


@dataclass(frozen=True, slots=True)
class SelectKey(Operation):  # KStreamMap with the value kept
    fn: Function


@dataclass(frozen=True, slots=True)
class Peek(Operation):  # KStreamPeek
    fn: Function


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


@dataclass(frozen=True, slots=True)
class TableSource(Operation):  # KTableSource
    store: str | None  # None: not materialised
    send_old: bool = False


@dataclass(frozen=True, slots=True)
class StreamToTable(Operation):  # KStreamToTable: KTableSource's rules for null keys and tombstones, after toTable()
    store: str | None
    send_old: bool = False


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


@dataclass(frozen=True, slots=True)
class TableMapValues(Operation):  # KTableMapValues
    fn: Function
    parent: str
    store: str | None = None
    send_old: bool = False


@dataclass(frozen=True, slots=True)
class TableToStream(Operation):  # KTable.toStream: changes become records with the new value
    pass


@dataclass(frozen=True, slots=True)
class TableRegroup(
    Operation
):  # KTableRepartitionMap: (key, change) -> changes under the new keys, as ChangeSerde values
    fn: Function
    parent: str
    versioned: bool = False  # the table above is: changes that are not the latest are left out


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


@dataclass(frozen=True, slots=True)
class TableAggregate(Operation):  # KTableAggregate, KTableReduce: takes ChangeSerde values
    aggregation: Aggregation
    store: str
    send_old: bool = False


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


@dataclass(frozen=True, slots=True)
class Process(Operation):  # the Processor API: a supplier of Processor or FixedKeyProcessor objects, one a task
    supplier: Callable[[], Any]
    stores: tuple[str, ...] = ()
    fixed_key: bool = False
