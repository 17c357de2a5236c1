"""Unmatched records of left and outer joins: which wait, which leave, and when.

A record that finds no match waits in a store that both sides share, until a match takes it out or its window plus grace
has passed; one whose window has passed already leaves at once. Records leave with the next record that is not out of
order: before its matches, in order of time. How often that is looked for is Kafka's rule, with its timer (at most once
per interval of wall-clock time) and with its estimate of the smallest waiting time, which is why some leave later than
they could.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.state.views.frames import to_bytes_list
from penstock.state.views.outer_join import OuterJoinView, Waiting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.operator import TaskContext
    from penstock.topology.stream_joins import JoinWindowSpec

__all__ = ["EMIT_INTERVAL", "Events", "OuterJoinQueue", "Outgoing"]

EMIT_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"
_DEFAULT_INTERVAL_MS = 1000
_NOTHING = (1 << 63) - 1  # the smallest waiting time when nothing waits
_FIRST_CHUNK = 256


@dataclass
class Events:
    """What a batch does to the waiting records, by rank: the position among all rows of both sides.

    ``times``, ``is_left``: of every row. ``may_release``: the row has key and value. ``waits``: it goes into the store.
    ``rows``, ``values``: of the rows that wait, in order of rank. ``match_ranks``, ``match_rows``: where a match takes
    records out, and which.
    """

    times: NDArray[np.int64]
    is_left: NDArray[np.bool_]
    may_release: NDArray[np.bool_]
    stream_times: NDArray[np.int64]
    waits: NDArray[np.bool_]
    rows: pa.Array
    values: pa.Array
    match_ranks: NDArray[np.int64]
    match_rows: pa.Array


@dataclass
class Outgoing:
    """Records that leave, each with the rank of the row that lets it."""

    ranks: list[int] = field(default_factory=list)
    records: list[Waiting] = field(default_factory=list)


class OuterJoinQueue:
    """The waiting records of one join."""

    def __init__(self, store: str, windows: JoinWindowSpec, *, both_sides: bool, context: TaskContext) -> None:
        self._store = store
        self._windows = windows
        self._both_sides = both_sides
        self._context = context
        interval = context.config.get(EMIT_INTERVAL)
        self._interval_ms = _DEFAULT_INTERVAL_MS if interval is None else int(interval)
        self._time_meta = f"{store}/stream-time"
        self._smallest_meta = f"{store}/smallest-time"
        self._next_meta = f"{store}/next-emit-time"

    @property
    def _view(self) -> OuterJoinView:
        view: OuterJoinView = self._context.store(self._store)
        return view

    def stream_times(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The join's stream time at each of these times, which come in order of rank."""
        if not len(times):
            return times
        result = np.maximum.accumulate(np.maximum(times, self._context.get_meta(self._time_meta, -1)))
        self._context.put_meta(self._time_meta, int(result[-1]))
        return result

    def run(self, events: Events) -> Outgoing:
        """Takes the batch's events to the store; gives what leaves meanwhile."""
        outgoing = Outgoing()
        changes = _Changes(events)
        waiting_times = np.where(events.waits, events.times, _NOTHING)
        smallest = self._context.get_meta(self._smallest_meta, _NOTHING)
        start = first = 0  # events from `start` on are not in the store yet, releases from `first` on not looked for
        total = len(events.times)
        while (rank := self._next_release(events, waiting_times, smallest, start, first)) < total:
            changes.apply(self._view, rank)
            smallest = self._release(rank, int(events.stream_times[rank]), outgoing)
            self._context.put_meta(self._next_meta, self._context.wall_clock_ms + self._interval_ms)
            start, first = rank, rank + 1
        changes.apply(self._view, total)
        if total > start:
            smallest = min(smallest, int(waiting_times[start:].min()))
        self._context.put_meta(self._smallest_meta, smallest)
        return outgoing

    def _next_release(
        self, events: Events, waiting_times: NDArray[np.int64], smallest: int, start: int, first: int
    ) -> int:
        """The first row from ``first`` on that makes Kafka look for records that may leave."""
        total = len(events.times)
        if self._context.wall_clock_ms < self._context.get_meta(self._next_meta, 0):
            return total
        windows = self._windows
        chunk = _FIRST_CHUNK
        while start < total:
            part = slice(start, min(start + chunk, total))
            before = np.minimum.accumulate(np.concatenate([[smallest], waiting_times[part]]))
            closes = np.where(events.is_left[part], windows.after_ms, windows.before_ms) + windows.grace_ms
            now = events.stream_times[part]
            looks = events.may_release[part] & (events.times[part] == now)
            looks &= before[:-1] + closes < now  # wraps around when nothing waits, as in Java
            if self._interval_ms <= 0:
                looks &= before[:-1] != _NOTHING  # a look that finds nothing and sets no timer
            looks[: max(first - start, 0)] = False
            if looks.any():
                return start + int(looks.argmax())
            smallest, start, chunk = int(before[-1]), part.stop, chunk * 2
        return total

    def _release(self, rank: int, stream_time: int, outgoing: Outgoing) -> int:
        """Takes out what may leave; gives Kafka's estimate of the smallest time that still waits."""
        windows, view = self._windows, self._view
        left_limit = stream_time - windows.after_ms - windows.grace_ms  # what is older has closed
        right_limit = stream_time - windows.before_ms - windows.grace_ms
        leaving: list[Waiting] = []
        smallest = _NOTHING
        left_open = right_open = False
        for record in view.waiting():
            smallest = record.time
            if left_open and right_open:
                break
            if record.time >= (left_limit if record.is_left else right_limit):
                if record.is_left and not self._both_sides:  # all others are left records, and open too
                    smallest = view.last_time() or 0
                    break
                left_open |= record.is_left
                right_open |= not record.is_left
                continue
            leaving.append(record)
        view.delete(list(dict.fromkeys(record.row for record in leaving)))
        outgoing.ranks += [rank] * len(leaving)
        outgoing.records += leaving
        return smallest


class _Changes:
    """The batch's changes of the store, in order of rank."""

    def __init__(self, events: Events) -> None:
        self._rows = to_bytes_list(events.rows)
        self._values = to_bytes_list(events.values)
        self._ranks = np.flatnonzero(events.waits)
        order = np.argsort(events.match_ranks, kind="stable")
        self._match_ranks = events.match_ranks[order]
        self._match_rows = to_bytes_list(events.match_rows.take(pa.array(order)))
        self._next = self._next_match = 0

    def apply(self, view: OuterJoinView, rank: int) -> None:
        """Applies the changes of rows before ``rank`` that have not been applied."""
        put_from, put_to = self._next, int(np.searchsorted(self._ranks, rank))
        match_from, match_to = self._next_match, int(np.searchsorted(self._match_ranks, rank))
        self._next, self._next_match = put_to, match_to
        ranks = self._ranks[put_from:put_to]
        rows: list[Any] = self._rows[put_from:put_to]
        values: list[Any] = self._values[put_from:put_to]
        matched: dict[Any, int] = dict(
            zip(self._match_rows[match_from:match_to], self._match_ranks[match_from:match_to].tolist(), strict=True)
        )
        if matched and rows:
            latest = np.array([matched.get(row, -1) for row in rows], np.int64)
            kept = np.flatnonzero(latest < ranks).tolist()
            rows, values = [rows[i] for i in kept], [values[i] for i in kept]
        if matched or rows:
            view.apply(list(matched), rows, values)
