"""Operations that make tables: joins, cogroups, transformers, suppression; see `penstock.topology.operations.base`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.topology.operations.base import Operation
from penstock.topology.operations.functions import Function
from penstock.topology.operations.windows import WindowSpec

__all__ = [
    "CogroupMember",
    "CogroupMerge",
    "Suppress",
    "TableJoinKind",
    "TableJoinMerge",
    "TableTableJoin",
    "TableTransformValues",
]

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
