"""Session windows over columns, for keys whose rows come in order.

Such a row belongs to the key's newest session, or starts one. So sessions are runs of rows with small gaps between
them, of which only the first can continue a stored session; each is a group over which the known aggregations run. Keys
with rows that come out of order or perhaps too late, or near to several stored sessions, are left to the row loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.aggregate.changes import StoredWindows, WindowChanges
from penstock.runtime.fold.columns import fold_known
from penstock.runtime.fold.recognise import KnownAggregation
from penstock.runtime.tables.groups import RowGroups
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.rows import Rows

__all__ = ["Session", "SessionRuns", "by_key"]

Session = tuple[int, int, Any]  # start, end, aggregate


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

    def changes(self, known: KnownAggregation) -> WindowChanges | None:
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
        fold = fold_known(known, self._rows, sessions, (aggregates, stamps), per_row=True)
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
