"""Session windows: Kafka's ``KStreamSessionWindowAggregate``.

Over columns go keys whose rows come in order. Such a row belongs to the key's newest session, or starts one. So
sessions are runs of rows with small gaps between them, of which only the first can continue a stored session; each is a
group over which the known aggregations run. Keys with rows that come out of order or perhaps too late, or near to
several stored sessions, are left to the row loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.api.groups.agg import BuiltInAggregator
from penstock.runtime.aggregate.changes import ByKey, StoredWindows, WindowChangeList, WindowChanges, commit
from penstock.runtime.aggregate.windows import WindowOperator
from penstock.runtime.fold.columns import (
    KnownAggregation,
    RowGroups,
    few_by_row,
    fold_known,
    group_keys,
    one_by_row,
    recognise,
)
from penstock.runtime.fold.rows import initial, snapshot, step_of
from penstock.runtime.operator import RowStep
from penstock.runtime.rows import FEW, Row, Rows
from penstock.serde.column import Column
from penstock.serde.windowed import Window, Windowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Headers
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.definitions import Aggregation
    from penstock.topology.topology import Topology

__all__ = ["SessionAggregate"]

Session = tuple[int, int, Any]  # start, end, aggregate
SessionChange = tuple[int, int, Any, Any, bool]  # start, end, new and old value, whether the store has not taken it


def by_key(stored: StoredWindows) -> dict[int, list[Session]]:
    """Return key -> its sessions, by end."""
    sessions: dict[int, list[Session]] = {}
    columns = (stored.owners.tolist(), stored.starts.tolist(), stored.ends.tolist(), stored.values.items())
    for owner, start, end, value in zip(*columns, strict=True):
        sessions.setdefault(owner, []).append((start, end, value))
    return sessions


def _single(stored: StoredWindows, keys: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each key the position of its only session (-1 for none), and whether it has several."""
    position = np.full(keys, -1, np.int64)
    position[stored.owners] = np.arange(len(stored.owners))
    return position, np.bincount(stored.owners, minlength=keys) > 1


class SessionRuns:
    """The rows of one batch, sorted by key, cut into sessions."""

    def __init__(
        self, rows: Rows, groups: RowGroups, stored: StoredWindows, gap: int, observed: NDArray[np.int64]
    ) -> None:
        self._rows = rows
        self._groups = groups
        self._stored = stored
        self._gap = gap
        segments = groups.segments
        self._order = segments.order
        self._codes = segments.codes
        self._times = rows.timestamps[self._order]
        self._is_first = np.zeros(len(rows), np.bool_)
        self._is_first[segments.starts] = True
        self._session, self._has_several = _single(stored, len(groups))
        position = self._session[self._codes]
        self._has_session = position >= 0
        if len(stored.owners):
            self._stored_end = np.where(self._has_session, stored.ends[position], -1)
            self._stored_start = np.where(self._has_session, stored.starts[position], -1)
        else:
            self._stored_start = self._stored_end = np.full(len(rows), -1, np.int64)
        previous = np.empty_like(self._times)
        previous[1:] = self._times[:-1]
        previous[segments.starts] = -1
        self._before = np.maximum(previous, self._stored_end)  # where the session before each row ends
        self._observed = observed[self._order]

    def simple_keys(self, close_times: NDArray[np.int64], store: Any) -> NDArray[np.bool_]:
        """Return the keys for which `changes` equals the result of the row loop."""
        times, before, order = self._times, self._before, self._order
        out_of_order = np.zeros(len(times), np.bool_)
        out_of_order[1:] = (np.diff(times) < 0) & ~self._is_first[1:]
        near = (before >= 0) & (before >= times - self._gap)
        bad = (
            out_of_order
            | (times < close_times[order])
            | (near & (before < store.visible_from(self._observed)))
            | (self._is_first & self._has_session & (self._stored_start > times))
            | ~store.is_live(times, np.maximum(self._observed, times))
        )
        simple = ~self._has_several
        simple[self._codes[bad]] = False
        return simple

    def changes(self, aggregation: KnownAggregation) -> WindowChanges | None:
        """Return all changes of the sessions; None when these columns need the row loop."""
        times, before, order = self._times, self._before, self._order
        joins = (before >= 0) & (times - before <= self._gap)
        fresh = self._is_first | ~joins
        heads = np.flatnonzero(fresh)  # the first rows of the sessions
        number = np.cumsum(fresh) - 1
        of_stored = joins[heads]
        starts = np.where(of_stored, self._stored_start[heads], times[heads])[number]
        ends = np.maximum(times, np.where(joins, before, -1))
        sessions = _by_appearance(number, heads, order)
        position = np.full(len(heads), -1, np.int64)
        position[sessions.codes[order[heads]]] = np.where(of_stored, self._session[self._codes[heads]], -1)
        aggregates = (
            self._stored.values.take_or_null(position) if len(self._stored.owners) else Column.nulls(len(heads))
        )
        stamps = np.where(position < 0, -1, self._stored.ends[position] if len(self._stored.owners) else -1)
        fold = fold_known(aggregation, self._rows, sessions, (aggregates, stamps), per_row=True)
        if fold is None or fold.news is None or fold.olds is None:
            return None
        moment = (starts == times) & (
            ends == times
        )  # the session is a single moment, the present one: its value is replaced
        replaces = joins & ~moment
        counts = np.ones(len(times), np.int64)
        counts[order] += replaces
        index = np.repeat(np.arange(len(times)), counts)
        puts = np.zeros(len(index), np.bool_)
        puts[np.cumsum(counts) - 1] = True
        unsorted = np.empty_like(order)
        unsorted[order] = np.arange(len(order))
        at = unsorted[index]
        ended = np.where(puts, ends[at], before[at])
        return WindowChanges(
            index,
            starts[at],
            ended,
            fold.news.take_or_null(np.where(puts, index, -1)),
            fold.olds.take_or_null(np.where(puts, -1, index)),
            ended,
            np.zeros(len(index), np.bool_),
        )


def _by_appearance(number: NDArray[np.int64], heads: NDArray[np.int64], order: NDArray[np.int64]) -> RowGroups:
    """Return sessions as groups of the rows, in the order of their first rows."""
    first = order[heads]
    rank = np.empty(len(heads), np.int64)
    rank[np.argsort(first)] = np.arange(len(heads))
    codes = np.empty_like(number)
    codes[order] = rank[number]
    return RowGroups(codes, np.sort(first))


class SessionAggregate(WindowOperator):
    """The aggregation in sessions: each row joins the sessions that are near to it, or starts one."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        super().__init__(node, topology, context)
        self._gap = self._operation.windows.size_ms
        self._closes_after_ms = self._operation.windows.closes_after_ms
        self._retention_ms = topology.stores[self._operation.store].retention_ms
        self._known = _known(self._operation.aggregation)
        self._few_by_row = few_by_row(self._operation.aggregation, self._known)
        self._loop = _SessionLoop(self._operation.aggregation, self._gap, self._name, context)
        by_row = one_by_row(self._operation.aggregation, self._known)
        self._takes_one = by_row and self._closed is None and self._table.takes_entries and not self._table.logs_passing

    def process(self, rows: Rows, parent: str) -> Rows:
        if self._takes_one and len(rows) == 1:
            row = Row.only_of(rows)
            if row.key is not None:
                return self._table.changes_of(rows, self._add_row(row))
        return super().process(rows, parent)

    def row_step(self) -> RowStep | None:
        return self._add_row if self._takes_one else super().row_step()

    def _add_row(self, row: Row) -> list[Row]:
        """Add a row by itself: what `add` does with it."""
        context, table, store, time = self._context, self._table, self._table.store, row.timestamp
        if row.key is None:
            return Row.each_of(super().process(row.rows(context.step), ""))
        close_time = self._windows.observe_one(time) - self._closes_after_ms
        data, stored = store.find_near(row.key, time - self._gap, time + self._gap)
        observed = store.observed_stream_time
        changes: list[SessionChange] = []
        before = {(start, end): value for start, end, value in stored}
        try:
            self._loop.add(row.key, row.value, time, close_time, stored, observed, store, changes)
            if not changes:
                context.drop(self._name, 1, "the session has closed")
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            context.failed(self._name, self._loop.function, row.rows(context.step), 0, error)
        if not changes:
            return []
        finals: dict[tuple[int, int], Any] = {}  # of equal windows the last change counts
        for start, end, new, _, lost in changes:
            window = start, end
            finals.pop(window, None)
            finals[window] = None if lost else new
            if lost:
                context.drop(self._name, 1, "the store keeps no session that old")
        shown_from = observed - self._retention_ms if table.caching else -1
        written = [(*window, new) for window, new in finals.items() if new is not None or window in before]
        if written:
            store.put_near(data, written)
        moved = max([change[1] for change in changes])
        if not written or moved > store.observed_stream_time:
            store.observe(moved)
        if not table.caching:
            sent = [(start, end, new, old) for start, end, new, old, _ in changes]
            headers: Headers = ()
        else:  # Kafka's cache still shows sessions whose time in the store below is over
            olds = {window: value for window, value in before.items() if window[1] > shown_from}
            sent = [(start, end, new, olds.get((start, end))) for start, end, new in written]
            sent = [change for change in sent if change[2] is not None or change[3] is not None]
            headers = row.headers
        sends_old = table.send_old
        return [
            Row(end, Windowed(row.key, Window(start, end)), new, headers, old if sends_old else None)
            for start, end, new, old in sent
        ]

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Add rows that have keys; return the changes."""
        if not self._table.caching:
            rows = replace(rows, headers=None)  # Kafka sends headers only with changes that leave a cache
        if not len(rows):
            return replace(rows, olds=Column.nulls(0))
        groups = group_keys(rows.keys, self._table.key_serde)
        stored = self._load(rows, groups)
        close_times = stream_times - self._operation.windows.closes_after_ms
        changes = self._changes(rows, groups, stored, stream_times, close_times)
        if changes.lost.any():
            self._context.drop(self._name, int(changes.lost.sum()), "the store keeps no session that old")
        changed = replace(changes.of(rows), timestamps=changes.ends)
        if self._table.caching:  # Kafka's cache still shows sessions whose time in the store below is over
            over = stored.ends <= self._table.store.observed_stream_time - self._retention_ms
            stored = stored.forgetting(over)
        return commit(self._table, changed, changes, groups.codes[changes.rows], stored)

    def _changes(
        self,
        rows: Rows,
        groups: RowGroups,
        stored: StoredWindows,
        stream_times: NDArray[np.int64],
        close_times: NDArray[np.int64],
    ) -> WindowChanges:
        store = self._table.store
        before = np.maximum.accumulate(np.append(store.observed_stream_time, rows.timestamps[:-1]))

        def runs(some: Rows, keys: RowGroups, windows: StoredWindows, index: NDArray[np.int64]) -> SessionRuns:
            return SessionRuns(some, keys, windows, self._gap, before[index])

        def loop(some: Rows, codes: NDArray[np.int64], index: NDArray[np.int64], observed: list[int]) -> WindowChanges:
            close = close_times[index].tolist()
            return self._loop.run(some, codes.tolist(), by_key(stored), close, observed, store).columns()

        ways = ByKey(rows, groups, stored, runs, loop, by_end=True)
        behind = stream_times[0] > max(store.observed_stream_time, int(rows.timestamps[0]))
        # The store's time is behind after a failure of the newest record's function.
        if self._known is None or behind or (self._few_by_row and len(rows) <= FEW):
            return ways.by_rows()
        whole = runs(rows, groups, stored, np.arange(len(rows)))
        return ways.changes(self._known, whole, whole.simple_keys(close_times, store))

    def _load(self, rows: Rows, groups: RowGroups) -> StoredWindows:
        """Return the sessions of each group that a row of the batch may touch."""
        times, segments = rows.timestamps[groups.segments.order], groups.segments
        earliest = np.minimum.reduceat(times, segments.starts)
        latest = np.maximum.reduceat(times, segments.starts)
        keys = rows.keys.take(groups.first)
        owners, starts, ends, values = self._table.store.find_many(keys, earliest - self._gap, latest + self._gap)
        return StoredWindows(owners, starts, ends, values, ends)


class _SessionLoop:
    """The row loop: exact for every function, and the reference for aggregation by column."""

    def __init__(self, aggregation: Aggregation, gap: int, node: str, context: TaskContext) -> None:
        self._aggregation = aggregation
        self._gap = gap
        self._node = node
        self._context = context
        self._initial, self._merge, self._step = initial(aggregation), _merger(aggregation), step_of(aggregation)
        function = aggregation.aggregator
        # Of single values, for which no session may be lost.
        self._refuses = function is not None and isinstance(function.fn, BuiltInAggregator)
        self.function = function  # that has been called last

    def run(
        self,
        rows: Rows,
        codes: list[int],
        sessions: dict[int, list[Session]],
        close_times: list[int],
        observed_before: list[int],
        store: Any,
    ) -> WindowChangeList:
        """Return the changes; ``observed_before`` is the store's stream time before each row, as other rows move it."""
        context = self._context
        changes = WindowChangeList()
        observed: int = store.observed_stream_time
        late = 0
        columns = zip(codes, rows.keys.items(), rows.values.items(), rows.timestamps.tolist(), close_times, strict=True)
        for row, (code, key, value, time, close_time) in enumerate(columns):
            mine = sessions.setdefault(code, [])
            observed = max(observed, observed_before[row])
            changed: list[SessionChange] = []
            try:
                self.add(key, value, time, close_time, mine, observed, store, changed)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                context.failed(self._node, self.function, rows, row, error)
            else:
                late += not changed
                observed = max(observed, changed[-1][1]) if changed else observed
            for start, end, new, old, lost in changed:
                changes.add(row, (start, end), new, old, end, lost=lost)
        if late:
            context.drop(self._node, late, "the session has closed")
        return changes

    def add(
        self,
        key: Any,
        value: Any,
        time: int,
        close_time: int,
        mine: list[Session],
        observed: int,
        store: Any,
        changes: list[SessionChange],
    ) -> None:
        """Add a row to the sessions of its key, and note the changes, its own session's last; none: it is too late.

        Where a function raises, `function` is that one; the sessions that had to make room are gone by then.
        """
        gap = self._gap
        low = max(time - gap, store.visible_from(observed))
        near = [s for s in mine if s[1] >= low and s[0] <= time + gap]
        self.function = self._aggregation.merger
        aggregate = self._initial()
        start = end = time
        for first, last, other in near:
            aggregate = self._merge(key, aggregate, snapshot(other))
            start, end = min(start, first), max(end, last)
        if end < close_time:
            return
        self.function = self._aggregation.aggregator
        if self._refuses:  # before the sessions that it would replace are gone, which Kafka's order does not mind
            aggregate = self._step(key, value, aggregate)
        if (start, end) != (time, time):
            for session in near:
                mine.remove(session)
                changes.append((session[0], session[1], None, session[2], False))
        if not self._refuses:
            aggregate = self._step(key, value, aggregate)
        if near and near[0] in mine:  # a session of the present moment alone, whose value is replaced
            mine.remove(near[0])
        alive = bool(store.is_live(end, max(observed, end)))
        if alive and aggregate is not None:
            mine.append((start, end, aggregate))
            mine.sort(key=_by_end)
        changes.append((start, end, aggregate, None, not alive))


def _known(aggregation: Aggregation) -> KnownAggregation | None:
    """Return the known aggregation, if it runs over columns and merges as it adds."""
    if aggregation.kind == "aggregate":
        builtin = getattr(aggregation.merger and aggregation.merger.fn, "__self__", None)
        if aggregation.aggregator is None or builtin is not aggregation.aggregator.fn:
            return None
    return recognise(aggregation)


def _by_end(session: Session) -> tuple[int, int]:
    return session[1], session[0]


def _merger(aggregation: Aggregation) -> Any:
    """Return the merger as (key, left, right) -> aggregate."""
    if aggregation.kind == "count":
        return lambda _key, left, right: left + right
    if aggregation.kind == "reduce":
        assert aggregation.aggregator is not None  # noqa: S101 - a reduce has a reducer
        reduce = aggregation.aggregator.fn
        return lambda _key, left, right: right if left is None else reduce(left, right)
    assert aggregation.merger is not None  # noqa: S101 - the verb asks for one
    return aggregation.merger.fn
