"""A table that is kept in a store: how what the batch did becomes state, a view and changes.

With caching a table gives one change per key and batch, as Kafka's cache does at a commit: the last one, with the value
before the batch as the old one, and none for a key that was not there before and is not there now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.versioned import VersionedTable, VersionedTableView
from penstock.runtime.views import StoreTableView, is_read, read_store, write_store
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.runtime.tables_groups import Groups
    from penstock.topology.topology import Topology

__all__ = ["Fold", "StoredTable"]


@dataclass(frozen=True)
class Fold:
    """What a batch did to a table, row by row and group by group.

    Attributes:
        final: The value of each group after the batch.
        final_stamps: The timestamps of the groups' values after the batch.
        last: The last row that changed each group; -1 when none did.
        kept: The rows that made a change; None when all did.
        news: The new value of each kept row. Rows' values may be left out (None) when nobody needs them.
        olds: The old value of each kept row.
        stamps: The result's timestamp of each kept row.
    """

    final: Column
    final_stamps: NDArray[np.int64]
    last: NDArray[np.int64]
    kept: NDArray[np.int64] | None = None
    news: Column | None = None
    olds: Column | None = None
    stamps: NDArray[np.int64] | None = None


class StoredTable:
    """The store of a table node, its view, and the rules for what goes downstream."""

    def __init__(
        self, node: str, store: str, topology: Topology, context: TaskContext, *, send_old: bool, on_close: bool = False
    ) -> None:
        spec = topology.stores[store]
        self._store = store
        self._context = context
        self._view = StoreTableView(store, context)
        self.send_old = send_old
        self.versions: VersionedTable | None = None
        if spec.kind == "versioned":
            history = VersionedTableView(store, context)
            self.versions = VersionedTable(history, send_old=send_old)
            context.register_table(node, history)
        else:
            context.register_table(node, self._view)
        self.caching = context.caching and spec.caching is not False and spec.kind != "versioned" and not on_close
        if self.caching:
            self._view.sent = StoreTableView(store, context)
        self.is_read = is_read(topology, node)

    @property
    def per_row(self) -> bool:
        """Whether the value after each single row is needed."""
        return not self.caching or self.is_read

    @property
    def store(self) -> Any:
        """The typed view of the store."""
        return self._context.store(self._store)

    @property
    def key_serde(self) -> Any:
        return self.store.spec.key_serde

    def stored(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Values and timestamps before the batch."""
        return read_store(self.store, keys)

    def put(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
        """Writes the state when nobody asks for more."""
        write_store(self.store, keys, values, timestamps)

    def commit(self, rows: Rows, groups: Groups, fold: Fold, before: tuple[Column, NDArray[np.int64]] | None) -> Rows:
        """Writes the state and gives the changes.

        Args:
            rows: The rows that the fold went over, with the table's keys.
            groups: The same rows by key.
            fold: What it did.
            before: The groups' values and timestamps before the batch; may be None if nobody needs them, see
                ``needs_before``.
        """
        touched = np.flatnonzero(fold.last >= 0)
        touched = touched[np.argsort(fold.last[touched], kind="stable")]
        last = fold.last[touched]
        final, final_stamps = fold.final.take(touched), fold.final_stamps[touched]
        kept = rows if fold.kept is None else rows.take(fold.kept)
        if self.is_read and before is not None and fold.news is not None and fold.stamps is not None:
            group_keys = rows.keys.take(groups.first)
            self._view.note(kept.place, (kept.keys, fold.news, fold.stamps), (group_keys, *before))
        keys = rows.keys.take(last)
        if self._view.sent is not None and self.is_read and before is not None:
            at = rows.place.take(last)
            self._view.sent.note(at, (keys, final, final_stamps), (rows.keys.take(groups.first), *before))
        write_store(self.store, keys, final, final_stamps)
        if not self.caching:
            if fold.news is None or fold.stamps is None:
                raise AssertionError("a fold without rows can't be sent row by row")
            olds = fold.olds if self.send_old and fold.olds is not None else Column.nulls(len(kept))
            return Rows(kept.place, fold.stamps, kept.keys, fold.news, kept.headers, olds)
        changes = rows.take(last)
        gone = final.null_mask()
        olds = Column.nulls(len(last))
        was_gone = gone
        if before is not None and (self.send_old or gone.any()):
            previous = before[0].take(touched)
            was_gone = previous.null_mask()
            olds = previous if self.send_old else olds
        result = Rows(
            changes.place,
            np.where(gone, changes.timestamps, final_stamps),
            changes.keys,
            final,
            changes.headers,
            olds,
        )
        return result.filter(~(gone & was_gone))

    def needs_before(self, finals: Column) -> bool:
        """Whether ``commit`` needs the values from before the batch, given those after it."""
        return self.send_old or self.is_read or (self.caching and bool(finals.null_mask().any()))
