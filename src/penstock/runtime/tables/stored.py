"""A table that is kept in a store: the changes of a batch become state, a view and rows downstream.

With caching a table sends one change per key and batch, as Kafka's cache does at a commit: the last one, with the value
before the batch as the old one, and none for a key that was not there before and is not there now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from penstock.runtime.rows import Rows
from penstock.runtime.tables.groups import group_keys
from penstock.runtime.tables.value_getters import StoreTableView, is_read, read_store, write_store
from penstock.runtime.tables.versioned import VersionedTable, VersionedTableView
from penstock.serde.column import Column
from penstock.serde.headers import uses_headers
from penstock.state.views.header_format import unpack_headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.tables.groups import FoldResult, GroupFold, RowGroups
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["StoredTable"]


class _TableOperation(Protocol):
    """An operation whose result is kept in a store."""

    @property
    def store(self) -> str: ...

    @property
    def send_old(self) -> bool: ...


class StoredTable:
    """The store of a table node, its view, and the rules for changes that go downstream.

    Args:
        node: The node; its operation names the store and says whether old values are sent.
        topology: The whole topology.
        context: The task.
        on_close: Whether only windows that have closed are sent.
    """

    def __init__(
        self, node: ProcessorNode, topology: Topology, context: TaskContext, *, on_close: bool = False
    ) -> None:
        operation = cast("_TableOperation", node.operation)
        store, send_old = operation.store, operation.send_old
        spec = topology.stores[store]
        self._store = store
        self._context = context
        self._flush_number = list(topology.stores).index(store)  # Kafka flushes stores in the order of their processors
        self._view = StoreTableView(store, context)
        self.send_old = send_old
        self.versions: VersionedTable | None = None
        if spec.kind == "versioned":
            history = VersionedTableView(store, context)
            self.versions = VersionedTable(history, send_old=send_old)
            context.register_table(node.name, history)
        else:
            context.register_table(node.name, self._view)
        self.caching = context.caches(spec) and spec.kind != "versioned" and not on_close
        if self.caching:
            self._view.sent = StoreTableView(store, context)
        self.is_read = is_read(topology, node.name)
        # Kafka's cache sends sessions with the headers of their entries, where these have any.
        self._forgets_headers = spec.kind == "session" and spec.keeps_headers
        self._reads_back = self.caching and uses_headers(spec.value_serde)
        # Whether the value and the timestamp of one entry are all that matters: nobody looks at versions or headers.
        is_stamped = spec.kind in {"timestamped", "session"} or (spec.kind == "window" and spec.timestamped)
        self.takes_entries = is_stamped and not (spec.keeps_headers or self.is_read or self._reads_back)

    @property
    def per_row(self) -> bool:
        """Whether the value after each single row is needed."""
        return not self.caching or self.is_read

    @property
    def logs_passing(self) -> bool:
        """Whether changelogs have the deletion of each window, also if it comes and goes within a batch."""
        return self._context.current is not None

    @property
    def store(self) -> Any:
        """The typed view of the store."""
        return self._context.store(self._store)

    @property
    def key_serde(self) -> Any:
        return self.store.spec.key_serde

    def stored(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return values and timestamps before the batch."""
        return read_store(self.store, keys)

    def put(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
        """Write the state without sending changes."""
        write_store(self.store, keys, values, timestamps)

    def update(self, rows: Rows, fold: GroupFold) -> Rows:
        """Fold the rows (no null keys) into the table; return the changes."""
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        if self.versions is not None:
            return self.versions.fold(rows, fold)
        groups = group_keys(rows.keys, self.key_serde)
        before = self.stored(rows.keys.take(groups.first))
        return self.commit(rows, groups, fold(rows, groups, before), before)

    def change_of(self, rows: Rows, old: Any, new: Any, stamp: int) -> Rows:
        """Return the change of one row, whose entry has been written: what `commit` returns for it."""
        olds = Column.of_items([old if self.send_old else None])
        if not self.caching:
            return Rows(rows.place, np.array([stamp], np.int64), rows.keys, Column.of_items([new]), rows.headers, olds)
        if new is None and old is None:
            return rows.without_changes()
        return Rows(
            rows.place.flushed(self._flush_number),
            rows.timestamps if new is None else np.array([stamp], np.int64),
            rows.keys,
            Column.of_items([new]),
            rows.headers,
            olds,
        )

    def flushed(self, changes: Rows) -> Rows:
        """Return changes of entries as they leave the cache."""
        return changes.with_place(changes.place.flushed(self._flush_number))

    def commit(
        self, rows: Rows, groups: RowGroups, fold: FoldResult, before: tuple[Column, NDArray[np.int64]] | None
    ) -> Rows:
        """Write the state and return the changes.

        Args:
            rows: The rows that the fold went over, with the table's keys.
            groups: The same rows by key.
            fold: Its result.
            before: The groups' values and timestamps before the batch; may be None if they are not needed, see
                ``needs_before``.
        """
        if len(rows) == 1 == len(fold.last) and fold.last[0] == 0:
            touched = last = fold.last
            final, final_stamps = fold.final, fold.final_stamps
        else:
            touched = np.flatnonzero(fold.last >= 0)
            touched = touched[np.argsort(fold.last[touched], kind="stable")]
            last = fold.last[touched]
            final, final_stamps = fold.final.take(touched), fold.final_stamps[touched]
        kept = rows if fold.changed_rows is None else rows.take(fold.changed_rows)
        if self.is_read and before is not None and fold.news is not None and fold.stamps is not None:
            group_keys = rows.keys.take(groups.first)
            self._view.note(kept.place, (kept.keys, fold.news, fold.stamps), (group_keys, *before))
        keys = rows.keys.take(last)
        if self._view.sent is not None and self.is_read and before is not None:
            at = rows.place.take(last)
            self._view.sent.note(at, (keys, final, final_stamps), (rows.keys.take(groups.first), *before))
        rows_before = self.store.stored_rows(keys) if self._reads_back else None
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
            previous = before[0].take(touched) if rows_before is None else self.store.decode_rows(rows_before)
            was_gone = previous.null_mask()
            olds = previous if self.send_old else olds
        headers = None if self._forgets_headers else changes.headers
        if rows_before is not None:  # what leaves Kafka's cache is decoded again, with the headers that it has by then
            rows_now = self.store.stored_rows(keys)
            final = self.store.decode_rows(rows_now)
            if self._forgets_headers:
                headers = [() if row is None else unpack_headers(row)[0] for row in rows_now]
        result = Rows(
            changes.place.flushed(self._flush_number),
            np.where(gone, changes.timestamps, final_stamps),
            changes.keys,
            final,
            headers,
            olds,
        )
        return result.filter(~(gone & was_gone))

    def needs_before(self, finals: Column) -> bool:
        """Return whether ``commit`` needs the values from before the batch, given those after it."""
        return self.send_old or self.is_read or (self.caching and bool(finals.null_mask().any()))
