"""One side of a join of two streams: its store, and its rows of the present batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.runtime.joins.pairs import Candidates
from penstock.runtime.rows import Rows
from penstock.serde.column import Column, to_bytes_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.state.views.window_rows import WindowRows

__all__ = ["Arrived", "JoinSide", "codes_of", "side_of"]

_NO_INDEX = np.empty(0, np.int64)


class JoinSide:
    """One side of a join, shared by the node that keeps the rows and the nodes that look them up."""

    def __init__(self, node: str, store: str, context: TaskContext) -> None:
        self.node = node
        self._store = store
        self._context = context
        self._rows = Rows.empty()

    @property
    def store(self) -> Any:
        """The window store of this side's rows."""
        return self._context.store(self._store)

    def collect(self, rows: Rows) -> None:
        """Note the rows of the batch; they are put into the store once they have been joined."""
        self._rows = rows
        self._context.on_take_back(self.drain)

    def drain(self) -> Rows:
        """Return the noted rows, once."""
        rows, self._rows = self._rows, Rows.empty()
        return rows

    def put(self, arrived: Arrived) -> None:
        """Put the rows that have a key into the store; of a single record its node does that, behind the join."""
        if not self._context.by_record:
            self.put_rows(arrived.rows)

    def put_rows(self, rows: Rows) -> None:
        """Put the rows that have a key into the store."""
        null = rows.keys.null_mask()
        if not null.all():
            rows = rows.filter(~null)
            self.store.put_columns(rows.keys, rows.timestamps, rows.values, rows.timestamps)


@dataclass(frozen=True)
class Arrived:
    """A side's rows of the batch. ``valid`` are the positions of those with key and value, ``keys`` their bytes."""

    rows: Rows
    ranks: NDArray[np.int64]
    null_keys: NDArray[np.bool_]
    null_values: NDArray[np.bool_]
    valid: NDArray[np.int64]
    keys: pa.Array

    @classmethod
    def of(cls, rows: Rows, ranks: NDArray[np.int64], side: JoinSide) -> Arrived:
        null_keys, null_values = rows.keys.null_mask(), rows.values.null_mask()
        valid = np.flatnonzero(~(null_keys | null_values))
        keys = rows.keys if len(valid) == len(rows) else rows.keys.take(valid)
        return cls(rows, ranks, null_keys, null_values, valid, side.store.spec.key_serde.encode(keys))

    @property
    def times(self) -> NDArray[np.int64]:
        """The times of the valid rows."""
        return self.rows.timestamps[self.valid]

    def observed_before(self, ranks: NDArray[np.int64], side: JoinSide) -> NDArray[np.int64]:
        """Return the stream time of this side's store as rows at these ranks see it."""
        view = side.store
        before = view.observed_stream_time
        # Stores on disk do not look at records without a value; those in memory do, though they keep none.
        put = self.valid if view.spec.persistent else np.flatnonzero(~self.null_keys)
        if not len(put):
            return np.full(len(ranks), before, np.int64)
        observed = np.maximum.accumulate(np.maximum(self.rows.timestamps[put], before))
        return np.concatenate([[before], observed])[np.searchsorted(self.ranks[put], ranks)]

    def candidates(self, stored: WindowRows, stored_codes: NDArray[np.int64], codes: NDArray[np.int64]) -> Candidates:
        """Return the rows that the other side can find: stored rows, then the batch's."""
        return Candidates(
            np.concatenate([stored_codes, codes]),
            np.concatenate([stored.starts, self.times]),
            np.concatenate([np.full(len(stored), -1, np.int64), self.ranks[self.valid]]),
        )

    def values_of(self, stored: WindowRows, found: NDArray[np.int64]) -> Column:
        """Return the values of rows that were found: positions in `candidates`."""
        old = found < len(stored)
        if not old.any():
            return self.rows.values.take(self.valid[found - len(stored)])
        from_store = stored.decode(found[old])
        if old.all():
            return from_store
        both = Column.concat([from_store, self.rows.values.take(self.valid[found[~old] - len(stored)])])
        index = np.empty(len(found), np.int64)
        index[old] = np.arange(len(from_store))
        index[~old] = np.arange(len(from_store), len(found))
        return both.take(index)


def codes_of(*keys: pa.Array) -> list[NDArray[np.int64]]:
    """Return a number for each distinct key, across all arrays."""
    together = pa.concat_arrays([k.cast(pa.large_binary()) for k in keys])
    codes = together.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.split(codes, np.cumsum([len(k) for k in keys])[:-1])


def fetch(side: JoinSide, keys: pa.Array, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> WindowRows:
    """Fetch the side's stored rows that rows with these keys may match."""
    distinct = to_bytes_list(keys.unique()) if len(keys) else []
    low, high = (int(lows.min()), int(highs.max())) if len(lows) else (0, -1)
    rows: WindowRows = side.store.fetch_rows(distinct, low, high)
    return rows


def side_of(node: str, store: str, context: TaskContext) -> JoinSide:
    """Return the one `JoinSide` of a windowed node."""
    return context.shared(f"join-side/{node}", lambda: JoinSide(node, store, context))
