"""Session windows: Kafka's ``KStreamSessionWindowAggregate``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.runtime.aggregate_rows import initial, snapshot, step_of
from penstock.runtime.tables_groups import group_keys
from penstock.runtime.tables_store import StoredTable
from penstock.runtime.window_changes import Changes, commit
from penstock.runtime.windows import WindowAssigner
from penstock.runtime.windows_close import ClosedWindows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations import Aggregation, WindowedAggregate
    from penstock.topology.topology import Topology

__all__ = ["SessionAggregate"]

_Session = tuple[int, int, Any]  # start, end, aggregate


class SessionAggregate:
    """Each row joins the sessions that are near to it, or starts one."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("WindowedAggregate", node.operation)
        self._name = node.name
        self._context = context
        self._operation = operation
        self._gap = operation.windows.size_ms
        self._windows = WindowAssigner(node.name, operation.windows, operation.store, context)
        self._table = StoredTable(
            node.name, operation.store, topology, context, send_old=operation.send_old, on_close=operation.on_close
        )
        self._closed = ClosedWindows(operation.windows, operation.store, context) if operation.on_close else None

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows, stream_times = self._windows.observe(rows)
        if self._closed is None:
            return self.add(rows, stream_times)
        return self._closed.run(rows, stream_times, self.add)

    def add(self, rows: Rows, stream_times: NDArray[np.int64]) -> Rows:
        """Adds rows that have keys; gives the changes."""
        if not self._table.caching:
            rows = replace(rows, headers=None)  # Kafka sends them on only with what leaves a cache
        groups = group_keys(rows.keys, self._table.key_serde)
        sessions = self._load(rows, groups.codes, groups.first)
        loop = _Loop(self._operation.aggregation, self._gap, self._name, self._context, self._table.store)
        close_times = stream_times - self._operation.windows.closes_after_ms
        changes, lost = loop.run(rows, groups.codes.tolist(), sessions, close_times.tolist())
        changed, ends = changes.of(rows)
        if any(lost):
            self._context.drop(self._name, sum(lost), "the store keeps no session that old")
        return commit(self._table, replace(changed, timestamps=ends), ends, np.array(lost, np.bool_))

    def _load(self, rows: Rows, codes: NDArray[np.int64], first: NDArray[np.int64]) -> list[list[_Session]]:
        """The sessions of each group that a row of the batch may touch, by end."""
        earliest = np.full(len(first), np.iinfo(np.int64).max)
        np.minimum.at(earliest, codes, rows.timestamps)
        latest = np.full(len(first), -1, np.int64)
        np.maximum.at(latest, codes, rows.timestamps)
        owners, starts, ends, values = self._table.store.find_many(
            rows.keys.take(first), earliest - self._gap, latest + self._gap
        )
        sessions: list[list[_Session]] = [[] for _ in range(len(first))]
        for owner, *session in zip(owners.tolist(), starts.tolist(), ends.tolist(), values.items(), strict=True):
            sessions[owner].append(tuple(session))
        return sessions


class _Loop:
    """Row by row: exact for every function, and what the vectorised way must agree with."""

    def __init__(self, aggregation: Aggregation, gap: int, node: str, context: TaskContext, store: Any) -> None:
        self._aggregation = aggregation
        self._gap = gap
        self._node = node
        self._context = context
        self._store = store

    def run(
        self, rows: Rows, codes: list[int], sessions: list[list[_Session]], close_times: list[int]
    ) -> tuple[Changes, list[bool]]:
        """The changes, and which of them come too late for the store."""
        start_value, merge = initial(self._aggregation), _merger(self._aggregation)
        step = step_of(self._aggregation)
        gap, store, context = self._gap, self._store, self._context
        changes = Changes()
        lost: list[bool] = []
        observed: int = store.observed_stream_time
        late = 0
        columns = zip(codes, rows.keys.items(), rows.values.items(), rows.timestamps.tolist(), close_times, strict=True)
        for row, (code, key, value, time, close_time) in enumerate(columns):
            mine = sessions[code]
            low = max(time - gap, store.visible_from(observed))
            near = [s for s in mine if s[1] >= low and s[0] <= time + gap]
            function = self._aggregation.merger
            try:
                aggregate = start_value()
                for _, _, other in near:
                    aggregate = merge(key, aggregate, snapshot(other))
                start, end = min(time, *(s[0] for s in near), time), max(time, *(s[1] for s in near), time)
                if end < close_time:
                    late += 1
                    continue
                function = self._aggregation.aggregator
                if (start, end) != (time, time):
                    for session in near:
                        mine.remove(session)
                        _note(changes, row, session[0], session[1], None, session[2])
                        lost.append(False)
                aggregate = step(key, value, aggregate)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                context.failed(self._node, function, rows, row, error)
                continue
            if near and near[0] in mine:  # a session of this very moment, whose value is replaced
                mine.remove(near[0])
            observed = max(observed, end)
            alive = bool(store.is_live(end, observed))
            if alive and aggregate is not None:
                mine.append((start, end, aggregate))
                mine.sort(key=_by_end)
            _note(changes, row, start, end, aggregate, None)
            lost.append(not alive)
        if late:
            context.drop(self._node, late, "the session has closed")
        return changes, lost


def _by_end(session: _Session) -> tuple[int, int]:
    return session[1], session[0]


def _note(changes: Changes, row: int, start: int, end: int, new: Any, old: Any) -> None:
    changes.rows.append(row)
    changes.starts.append(start)
    changes.ends.append(end)
    changes.news.append(new)
    changes.olds.append(old)
    changes.stamps.append(end)


def _merger(aggregation: Aggregation) -> Any:
    """(key, left, right) -> aggregate."""
    if aggregation.kind == "count":
        return lambda _key, left, right: left + right
    if aggregation.kind == "reduce":
        assert aggregation.aggregator is not None  # noqa: S101 - a reduce has a reducer
        reduce = aggregation.aggregator.fn
        return lambda _key, left, right: right if left is None else reduce(left, right)
    assert aggregation.merger is not None  # noqa: S101 - the verb asks for one
    return aggregation.merger.fn
