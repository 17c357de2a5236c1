"""Unmatched records of left and outer joins: which wait, which leave, and when.

A record that finds no match waits in a store that both sides share, until a match takes it out or its window plus grace
has passed; one whose window has passed already leaves at once. Records leave with the next record that is not out of
order: before its matches, in order of time. The checks follow Kafka's rule, with its timer (at most once per interval
of wall-clock time, but in a run until "latest", which no later record follows) and with its estimate of the smallest
waiting time, for which some leave later than they could.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.serde.column import to_bytes_list
from penstock.state.views.join_buffers import OuterJoinView, Waiting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.building.joins import JoinWindowSpec

__all__ = ["EMIT_INTERVAL", "Events", "OuterJoinQueue", "Released"]

EMIT_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"
_DEFAULT_INTERVAL_MS = 1000
_NOTHING = (1 << 63) - 1  # the smallest waiting time when nothing waits
_FIRST_CHUNK = 256
_MANY = 1000  # rows of a batch for which it pays to look first where the store ends


@dataclass
class Events:
    """The batch's changes of the waiting records, by rank: the position among all rows of both sides.

    ``times``, ``is_left``: of every row. ``may_release``: the row has key and value. ``waits``: it goes into the store.
    ``rows``, ``values``: of the rows that wait, in order of rank. ``match_ranks``, ``match_rows``: the ranks at which a
    match takes records out, and the records.
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
class Released:
    """Records that leave: for each the rank of the row that releases it, the row where it waited, and its value."""

    ranks: list[NDArray[np.int64]] = field(default_factory=list)
    rows: list[pa.Array] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)

    def add(self, rank: int, rows: list[bytes], values: pa.Array) -> None:
        """Add the records that leave with one row."""
        if rows:
            self.ranks.append(np.full(len(rows), rank, np.int64))
            self.rows.append(pa.array(rows, pa.large_binary()))
            self.values.append(values)


class OuterJoinQueue:
    """The waiting records of one join."""

    def __init__(self, store: str, windows: JoinWindowSpec, *, both_sides: bool, context: TaskContext) -> None:
        self._store = store
        self._windows = windows
        self._both_sides = both_sides
        self._context = context
        interval = context.config.get(EMIT_INTERVAL)
        self._interval_ms = _DEFAULT_INTERVAL_MS if interval is None else int(interval)
        if context.until_latest:
            self._interval_ms = 0
        self._step: _Step | None = None
        self._time_meta = f"{store}/stream-time"
        self._smallest_meta = f"{store}/smallest-time"
        self._next_meta = f"{store}/next-emit-time"

    @property
    def _view(self) -> OuterJoinView:
        view: OuterJoinView = self._context.store(self._store)
        return view

    def stream_times(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the join's stream time at each of these times, which come in order of rank."""
        if not len(times):
            return times
        result = np.maximum.accumulate(np.maximum(times, self._context.get_meta(self._time_meta, -1)))
        self._context.put_meta(self._time_meta, int(result[-1]))
        return result

    # A record by itself, after which nothing leaves

    def stream_time(self, time: int) -> int:
        """Return the join's stream time at a record of this time."""
        now = max(time, self._context.get_meta(self._time_meta, -1))
        self._context.put_meta(self._time_meta, now)
        return now

    def is_due(self, time: int, now: int, *, is_left: bool) -> bool:
        """Return whether a record with key and value makes Kafka look for what may leave: see `_next_release`."""
        if time != now:
            return False
        context, windows = self._context, self._windows
        if self._interval_ms > 0 and context.wall_clock_ms < context.get_meta(self._next_meta, 0):
            return False
        smallest = context.get_meta(self._smallest_meta, _NOTHING)
        if self._interval_ms <= 0 and smallest == _NOTHING:
            return False
        closes = smallest + (windows.after_ms if is_left else windows.before_ms) + windows.grace_ms
        return (closes if closes <= _NOTHING else closes - (1 << 64)) < now

    def add_one(self, time: int, key: bytes, value: bytes, *, is_left: bool) -> None:
        """Let a record wait."""
        self._view.add(OuterJoinView.row(time, key, is_left=is_left), value)

    def take_out(self, times: Sequence[int], key: bytes, *, is_left: bool) -> None:
        """Take out the waiting records of these times, which a match has found."""
        rows = [OuterJoinView.row(time, key, is_left=is_left) for time in dict.fromkeys(times)]
        self._view.take_out(rows)

    def note_smallest(self, time: int | None) -> None:
        """Note the time of a record that waits; None: none does."""
        smallest = self._context.get_meta(self._smallest_meta, _NOTHING)
        self._context.put_meta(self._smallest_meta, smallest if time is None else min(smallest, time))

    # Batches

    def run(self, events: Events) -> Released:
        """Apply the batch's events to the store; return the records that leave meanwhile."""
        outgoing = Released()
        self._step = _Step(events, outgoing) if self._context.by_record else None
        if self._step is not None:
            self._step.note(self._view, [*to_bytes_list(events.rows), *to_bytes_list(events.match_rows)])
        changes = _Changes(events)
        if len(events.times) > _MANY:
            changes.newest_ms = self._view.last_time() or 0
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

    def stop_at(self, row: int) -> None:
        """Take back a single record's changes: the joiner failed at this row of its results, as in Kafka.

        At an unmatched record that leaves: it stays, and with it the one before, which is taken out only when the next
        one has left. At a match: later ones take nothing out.
        """
        assert self._step is not None, "a failure stops single records only"  # noqa: S101
        times = self._step.stop_at(self._view, row)
        if times is not None:
            self._context.put_meta(self._smallest_meta, times)

    def _next_release(
        self, events: Events, waiting_times: NDArray[np.int64], smallest: int, start: int, first: int
    ) -> int:
        """Return the first row from ``first`` on that makes Kafka look for records that may leave."""
        total = len(events.times)
        if self._interval_ms > 0 and self._context.wall_clock_ms < self._context.get_meta(self._next_meta, 0):
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

    def _release(self, rank: int, stream_time: int, outgoing: Released) -> int:
        """Take out the records that may leave; return Kafka's estimate of the smallest time that still waits."""
        windows, view = self._windows, self._view
        left_limit = stream_time - windows.after_ms - windows.grace_ms  # older windows have closed
        right_limit = stream_time - windows.before_ms - windows.grace_ms
        both_closed = min(left_limit, right_limit) if self._both_sides else left_limit
        rows, values = view.older_than(both_closed)
        outgoing.add(rank, rows, values)
        smallest = int.from_bytes(rows[-1][:8], "big") if rows else _NOTHING
        leaving: list[Waiting] = []
        left_open = right_open = False
        for record in view.waiting(both_closed):
            smallest = record.time
            if left_open and right_open:
                break
            if record.time >= (left_limit if record.is_left else right_limit):
                if not self._both_sides:  # all others are left records, and open too
                    smallest = view.last_time() or 0
                    break
                left_open |= record.is_left
                right_open |= not record.is_left
                continue
            leaving.append(record)
        rows_left = [record.row for record in leaving]
        outgoing.add(rank, rows_left, pa.array([record.value for record in leaving], pa.large_binary()))
        if self._step is not None:
            self._step.note(view, [*rows, *rows_left])
        view.delete(list(dict.fromkeys([*rows, *rows_left])))
        return smallest


class _Step:
    """The changes of one record's turn, which may have to be taken back."""

    def __init__(self, events: Events, outgoing: Released) -> None:
        self._events = events
        self._outgoing = outgoing
        self._before: dict[bytes, bytes | None] = {}

    def note(self, view: OuterJoinView, rows: Sequence[bytes | None]) -> None:
        """Note rows as they are before they are changed."""
        names = [row for row in dict.fromkeys(rows) if row is not None and row not in self._before]
        self._before.update(zip(names, view.packed(names), strict=True))

    def stop_at(self, view: OuterJoinView, row: int) -> int | None:
        """Take back all but what came before a row of the results; return the time of one that stays to be sent."""
        left = [name for rows in self._outgoing.rows for name in to_bytes_list(rows) if name is not None]
        gone = set(left)
        if row < len(left):
            gone = set(left[:row]) - set(left[max(row - 1, 0) : row + 1])
        else:
            gone.update(name for name in to_bytes_list(self._events.match_rows)[: row - len(left) + 1] if name)
        view.restore({name: data for name, data in self._before.items() if name not in gone})
        return int.from_bytes(left[row][:8], "big") if row < len(left) else None


class _Changes:
    """The batch's changes of the store, in order of rank."""

    def __init__(self, events: Events) -> None:
        order = np.argsort(events.match_ranks, kind="stable")
        self._events = events
        self._ranks = np.flatnonzero(events.waits)
        self._match_ranks = events.match_ranks[order]
        self._match_rows = events.match_rows.take(pa.array(order))
        together = pa.concat_arrays([events.rows, self._match_rows]).dictionary_encode()
        codes = together.indices.to_numpy(zero_copy_only=False)
        self._codes, self._match_codes = codes[: len(self._ranks)], codes[len(self._ranks) :]
        self._last_match = np.full(len(together.dictionary), -1, np.int64)
        self._next = self._next_match = 0
        self.newest_ms: int | None = None  # the largest time in the store, where it is worth knowing

    def apply(self, view: OuterJoinView, rank: int) -> None:
        """Apply the changes of rows before ``rank`` that have not been applied."""
        put = np.arange(self._next, np.searchsorted(self._ranks, rank))
        match = slice(self._next_match, int(np.searchsorted(self._match_ranks, rank)))
        self._next, self._next_match = self._next + len(put), match.stop
        codes, first = np.unique(self._match_codes[match], return_index=True)
        if len(codes):
            np.maximum.at(self._last_match, self._match_codes[match], self._match_ranks[match])
        elif not len(put):
            return
        stays = put[self._last_match[self._codes[put]] < self._ranks[put]]
        matched: list[Any] = to_bytes_list(self._match_rows.take(pa.array(match.start + first)))
        kept = pa.array(stays)
        view.apply(matched, self._events.rows.take(kept), self._events.values.take(kept), self.newest_ms)
        if self.newest_ms is not None and len(stays):
            self.newest_ms = max(self.newest_ms, int(self._events.times[self._ranks[stays]].max()))
