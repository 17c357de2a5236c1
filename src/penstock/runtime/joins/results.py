"""The result rows of a join of two streams: left value in ``values``, right one in ``olds``, until they are joined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.runtime.joins.pairs import Candidates, Pairs, numbered
from penstock.runtime.joins.sides import Arrived, JoinSide
from penstock.runtime.joins.unmatched import Events, Released
from penstock.runtime.rows import Rows
from penstock.runtime.tables.value_getters import spread
from penstock.serde.column import Column
from penstock.state.views.outer_join import OuterJoinView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.views.window_rows import WindowRows

__all__ = ["Matches", "expired_rows", "lone_rows", "matched_rows", "outer_events"]


@dataclass(frozen=True)
class Matches:
    """The matches of the rows of one side among the rows of ``other``, and whether those wait for matches."""

    side: JoinSide
    arrived: Arrived
    other: Arrived
    stored: WindowRows  # of the other side
    candidates: Candidates
    pairs: Pairs
    is_left: bool
    other_waits: bool

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of matches of each valid row."""
        return np.bincount(self.pairs.probes, minlength=len(self.arrived.valid))


def _both(rows: Rows, others: Column, *, is_left: bool) -> Rows:
    """Return the rows with both values, the other side's taken from ``others``."""
    return replace(rows, olds=others) if is_left else replace(rows, values=others, olds=rows.values)


def matched_rows(matches: Matches, skipped: NDArray[np.int64] | None) -> Rows:
    """Return a row per match, after ``skipped`` rows (of each row of the side) that come before."""
    pairs = matches.pairs
    positions = matches.arrived.valid[pairs.probes]
    rows = matches.arrived.rows.take(positions)
    number = numbered(matches.counts)
    if skipped is not None:
        number += skipped[positions]
    rows = replace(
        rows,
        place=rows.place.extend(number),
        timestamps=np.maximum(rows.timestamps, matches.candidates.times[pairs.found]),
    )
    return _both(rows, matches.other.values_of(matches.stored, pairs.found), is_left=matches.is_left)


def lone_rows(
    arrived: Arrived, positions: NDArray[np.int64], skipped: NDArray[np.int64] | None, *, is_left: bool
) -> Rows:
    """Return the rows at these positions, with nothing on the other side."""
    rows = arrived.rows.take(positions)
    number = np.zeros(len(rows), np.int64) if skipped is None else skipped[positions]
    return _both(replace(rows, place=rows.place.extend(number)), Column.nulls(len(rows)), is_left=is_left)


def expired_rows(
    outgoing: Released, arrived: Arrived, left: JoinSide, right: JoinSide
) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows that leave with the rows of this side, and how many leave with each row."""
    ranks = np.concatenate(outgoing.ranks)
    position = np.searchsorted(arrived.ranks, ranks)
    inside = position < len(arrived.ranks)
    mine = inside & (arrived.ranks[np.where(inside, position, 0)] == ranks)
    taken = pa.array(np.flatnonzero(mine))
    position = position[mine]
    counts = np.bincount(position, minlength=len(arrived.rows))
    times, is_left, keys = OuterJoinView.parse(pa.concat_arrays(outgoing.rows).take(taken))
    encoded = pa.concat_arrays(outgoing.values).take(taken)
    values = []
    for side, mask in ((left, is_left), (right, ~is_left)):
        own = np.flatnonzero(mask)
        values.append(spread(side.store.spec.value_serde.decode(encoded.take(pa.array(own))), own, len(times)))
    rows = replace(
        arrived.rows.take(position),
        timestamps=times,
        keys=left.store.spec.key_serde.decode(keys),
        values=values[0],
        olds=values[1],
    )
    return replace(rows, place=rows.place.extend(numbered(counts))), counts


def outer_events(
    sides: tuple[Matches, Matches],
    waits: tuple[NDArray[np.int64], NDArray[np.int64]],
    times: NDArray[np.int64],
    stream_times: NDArray[np.int64],
) -> Events:
    """Return the batch's changes of the waiting records; ``waits`` are positions in the valid rows of each side."""
    total = len(times)
    is_left, may_release, waiting = (np.zeros(total, np.bool_) for _ in range(3))
    rows, values, ranks = [], [], []
    match_rows, match_ranks = [pa.array([], pa.large_binary())], [np.empty(0, np.int64)]
    for matches, waits_here in zip(sides, waits, strict=True):
        arrived = matches.arrived
        is_left[arrived.ranks] = matches.is_left
        own = arrived.ranks[arrived.valid]
        may_release[own] = True
        waiting[own[waits_here]] = True
        ranks.append(own[waits_here])
        flags = np.full(len(waits_here), matches.is_left, np.bool_)
        rows.append(OuterJoinView.rows(arrived.times[waits_here], flags, arrived.keys.take(pa.array(waits_here))))
        present = arrived.rows.values.take(arrived.valid[waits_here])
        values.append(matches.side.store.spec.value_serde.encode(present))
        if matches.other_waits:
            probes, matched = matches.pairs.probes, matches.pairs.found
            flags = np.full(len(matched), not matches.is_left, np.bool_)
            keys = arrived.keys.take(pa.array(probes))
            match_rows.append(OuterJoinView.rows(matches.candidates.times[matched], flags, keys))
            match_ranks.append(own[probes])
    order = pa.array(np.argsort(np.concatenate(ranks), kind="stable"))
    return Events(
        times,
        is_left,
        may_release,
        stream_times,
        waiting,
        pa.concat_arrays(rows).take(order),
        pa.concat_arrays(values).take(order),
        np.concatenate(match_ranks),
        pa.concat_arrays(match_rows),
    )
