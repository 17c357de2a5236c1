"""Suppression of whole batches: the changes of a key that merge while they wait, and the row after which each leaves.

A change waits from its own row to the first row at which stream time has passed its buffer time. Later changes of its
key up to that row take its place; the first one after it waits anew. So the rows of a key are a chain of stretches,
each found from the one before by its time alone. Only a full buffer breaks this, so batches that could fill one go by
row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.runtime.suppress.model import BufferBounds, BufferChanges, Held
from penstock.runtime.tables.groups import RowGroups, group_keys
from penstock.serde.column import Column, bytes_column, series_of, to_bytes_list
from penstock.state.views.change_columns import ChangeColumns, concat_changes, lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.views.change_buffer import ChangeBufferView

__all__ = ["hold_back"]


def hold_back(
    view: ChangeBufferView, keys: pa.Array, puts: ChangeColumns, expiries: NDArray[np.int64], bounds: BufferBounds
) -> BufferChanges | None:
    """Hold the changes of a batch back and write the buffer; return None when the buffer might become too full.

    Args:
        view: The buffer.
        keys: The key of each row, in bytes.
        puts: The change of each row, as if nothing waited for its key.
        expiries: For each row the buffer time up to which changes leave after it.
        bounds: Of the buffer.
    """
    groups = group_keys(Column.of_series(series_of(keys)), view.spec.key_serde)
    distinct = keys.take(pa.array(groups.first))
    packed = bytes_column(view.get_packed([key or b"" for key in to_bytes_list(distinct)]))
    waiting = np.flatnonzero(packed.is_valid().to_numpy(zero_copy_only=False))
    touched = ChangeColumns.unpack(packed.drop_null())
    if not _fits(view, keys, puts, len(groups) - len(waiting), bounds):
        return None
    held_keys = distinct.take(pa.array(waiting))
    untouched_keys, untouched = _leaving(view, int(expiries[-1]), set(to_bytes_list(distinct)))
    held = Held(pa.concat_arrays([held_keys, untouched_keys]), concat_changes(touched, untouched))
    chains = _Chains(groups, waiting, touched.times, puts.times, expiries)
    count, size = len(puts), len(waiting)
    # Of every stretch: whose time it has, whose change is its last, and after which row it leaves.
    first = np.concatenate([chains.heads, count + np.arange(size), count + size + np.arange(len(untouched))])
    last = np.concatenate([chains.lasts, chains.held_lasts(count), count + size + np.arange(len(untouched))])
    exits = np.concatenate([chains.exits, chains.held_exits, np.searchsorted(expiries, untouched.times)])
    times = np.concatenate([puts.times, held.changes.times])[first]
    all_keys = pa.concat_arrays([keys, held.keys])
    leaves = exits < count
    _Stretches(all_keys, puts, held, first, last, leaves).write(view, int(expiries[-1]))
    gone = np.flatnonzero(leaves)
    order = pl.DataFrame(
        {"exit": exits[gone], "time": times[gone], "key": series_of(all_keys.take(pa.array(last[gone])))}
    )
    gone = gone[order.select(pl.arg_sort_by("exit", "time", "key")).to_series().cast(pl.Int64).to_numpy()]
    rows = exits[gone]
    fresh = np.flatnonzero(np.diff(rows, prepend=-1))
    numbers = np.arange(len(rows)) - np.repeat(fresh, np.diff(fresh, append=len(rows)))
    left = concat_changes(puts, held.changes).take(last[gone])
    return BufferChanges(np.sort(chains.heads), rows, numbers, all_keys.take(pa.array(last[gone])), left, held)


def _fits(view: ChangeBufferView, keys: pa.Array, puts: ChangeColumns, new_keys: int, bounds: BufferBounds) -> bool:
    """Return whether the buffer stays within its bounds even if nothing leaves: a bound from above."""
    if bounds.records is None and bounds.size is None:
        return True
    size = 0
    if bounds.size is not None:
        alone = replace(puts, priors=pa.nulls(len(puts), pa.large_binary()))
        size = view.size + int(alone.sizes(keys).sum() + np.maximum(lengths(puts.olds), 0).sum())
    return not bounds.exceeded(view.records + new_keys, size)


def _leaving(view: ChangeBufferView, until: int, touched: set[bytes | None]) -> tuple[pa.Array, ChangeColumns]:
    """Return the changes that leave by that time, of keys that the batch has no row of."""
    keys = [key for _, key in view.in_order(until) if key not in touched] if view.low <= until else []
    return bytes_column(keys), ChangeColumns.unpack(bytes_column(view.get_packed(keys)))


class _Chains:
    """The stretches of the keys that the batch has rows of.

    ``heads`` are the rows that begin to wait, ``lasts`` the rows whose changes they end as, ``exits`` the rows after
    which these leave (the number of rows: they stay). The changes that waited before have a stretch each, too.
    """

    def __init__(
        self,
        groups: RowGroups,
        waiting: NDArray[np.int64],
        waiting_times: NDArray[np.int64],
        times: NDArray[np.int64],
        expiries: NDArray[np.int64],
    ) -> None:
        segments = groups.segments
        count = len(times)
        order, codes = segments.order, segments.codes
        ends = np.append(segments.starts[1:], count)
        exits = np.maximum(order, np.searchsorted(expiries, times[order]))
        rank = codes * (count + 1) + order  # ascending: by key, then by row
        following = np.searchsorted(rank, codes * (count + 1) + exits, side="right")
        self.held_exits = np.searchsorted(expiries, waiting_times)
        starts = segments.starts.copy()
        starts[waiting] = np.searchsorted(rank, waiting * (count + 1) + self.held_exits, side="right")
        begins = starts[starts < ends]
        heads = np.flatnonzero(_reachable(begins, np.where(following < ends[codes], following, count), count))
        self.heads, self.lasts, self.exits = order[heads], order[following[heads] - 1], exits[heads]
        self._held_last = np.where(starts[waiting] > segments.starts[waiting], order[starts[waiting] - 1], -1)

    def held_lasts(self, count: int) -> NDArray[np.int64]:
        """Return the row whose change each waiting one has become, or its own number behind those of the rows."""
        return np.where(self._held_last >= 0, self._held_last, count + np.arange(len(self._held_last)))


def _reachable(begins: NDArray[np.int64], following: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Return the rows reached from the beginnings by following the pointers; ``count`` is the end.

    The length of the steps doubles from round to round.
    """
    pointers = np.append(following, count)
    reached = np.zeros(count + 1, np.bool_)
    reached[begins] = True
    while True:
        before = np.flatnonzero(reached[:count])
        if (pointers[before] == count).all():
            return reached[:count]
        reached[pointers[before]] = True
        pointers = pointers[pointers]


@dataclass(frozen=True)
class _Stretches:
    """All stretches of a batch, in which a key's change waits.

    Attributes:
        keys: The keys of the rows, then of the changes that waited before.
        puts: The change of each row, as if nothing waited for its key.
        held: The changes that waited before.
        first: The row that each stretch has its time from; held changes count behind the rows.
        last: The row whose change is its last.
        leaves: Whether it ends within the batch.
    """

    keys: pa.Array
    puts: ChangeColumns
    held: Held
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    leaves: NDArray[np.bool_]

    def write(self, view: ChangeBufferView, expiry: int) -> None:
        """Write the contents of the buffer after the batch; all up to the buffer time ``expiry`` has left."""
        keys, puts, held = self.keys, self.puts, self.held
        first, last, leaves = self.first, self.last, self.leaves
        count = len(puts)
        was_held = first >= count
        gone = first[was_held & leaves] - count
        stays = ~leaves & (last < count)
        fresh = stays & ~was_held
        times = np.concatenate([puts.times, held.changes.times])
        begun, ended = first[stays], last[stays]
        now = puts.take(ended)
        priors = pa.concat_arrays([puts.olds, held.changes.priors]).take(pa.array(begun))
        now = replace(now, times=times[begun], priors=priors)
        now_keys = keys.take(pa.array(ended))
        gone_keys = held.keys.take(pa.array(gone))
        view.write(
            zip(held.changes.times[gone].tolist(), _bytes(gone_keys), strict=True),
            zip(times[first[fresh]].tolist(), _bytes(keys.take(pa.array(last[fresh]))), strict=True),
            _bytes(now_keys),
            _bytes(now.pack()),
        )
        replaced = first[stays & was_held] - count
        over = np.concatenate([gone, replaced])
        freed = held.changes.take(over).sizes(held.keys.take(pa.array(over))).sum() if len(over) else 0
        size = int(now.sizes(now_keys).sum() - freed)
        low = min([max(view.low, expiry + 1), *times[first[fresh]].tolist()])
        view.count(int(fresh.sum()) - len(gone), size, low)


def _bytes(data: pa.Array) -> list[bytes]:
    return [one or b"" for one in to_bytes_list(data)]
