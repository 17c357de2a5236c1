"""The input of a fold, and its progress while it goes through the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.tables.groups import FoldResult
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.runtime.tables.groups import RowGroups
    from penstock.topology.operations.base import Aggregation
    from penstock.topology.operations.functions import Function

__all__ = ["FoldInput", "FoldProgress"]


@dataclass(frozen=True, slots=True)
class FoldInput:
    """Rows to add to the aggregates of their keys.

    Attributes:
        aggregation: The functions.
        rows: The rows, none with a null key.
        groups: The same rows by key.
        before: Value and timestamp of each group before them; a null value stands for none, with the timestamp -1.
        node: The name of the aggregation's node.
        context: The task.
    """

    aggregation: Aggregation
    rows: Rows
    groups: RowGroups
    before: tuple[Column, NDArray[np.int64]]
    node: str
    context: TaskContext

    def failed(self, function: Function | None, row: int, error: Exception) -> list[int]:
        """Report a row for which a function raised; return the rows that fail with it, itself included."""
        rest = self.context.failed(self.node, function, self.rows, row, error)
        return list(range(row, len(self.rows) if rest else row + 1))

    def begin(self) -> FoldProgress:
        """Copy the groups' values: the fold changes them as it goes."""
        return FoldProgress(list(self.before[0].items()), self.before[1].tolist())

    def finish(self, progress: FoldProgress) -> FoldResult:
        """Return the result for the table."""
        kept: NDArray[np.int64] | None = None
        last = self.groups.last_rows()
        if progress.failed:
            mask = np.ones(len(self.rows), np.bool_)
            mask[progress.failed] = False
            kept = np.flatnonzero(mask)
            last = np.full(len(self.groups), -1, np.int64)
            last[self.groups.codes[kept]] = kept
        return FoldResult(
            final=Column.of_items(progress.state),
            final_stamps=np.asarray(progress.state_stamps, np.int64),
            last=last,
            changed_rows=kept,
            news=Column.of_items(progress.news),
            olds=Column.of_items(progress.olds),
            stamps=np.asarray(progress.stamps, np.int64),
        )


@dataclass(slots=True)
class FoldProgress:
    """The state of a fold while it goes through the rows.

    Attributes:
        state: The value of each group so far.
        state_stamps: The timestamp of each group's value.
        news: The new value of each row that did not fail.
        olds: The old value of each such row.
        stamps: The result's timestamp of each such row.
        failed: The rows for which a function raised, and the handler said to continue.
    """

    state: list[Any]
    state_stamps: list[int]
    news: list[Any] = field(default_factory=list)
    olds: list[Any] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def keep(self, code: int, old: Any, new: Any, stamp: int) -> None:
        """Note the result of a row of the group ``code``."""
        self.state[code] = new
        self.state_stamps[code] = stamp
        self.news.append(new)
        self.olds.append(old)
        self.stamps.append(stamp)
