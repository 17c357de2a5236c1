"""Groups of the rows of a batch by key, and the changes of a batch to a table by group.

State is read and written once per key. Two keys are the same when their bytes are, as in Kafka; comparing values is
only a shortcut where it says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.runtime.rows import Rows
    from penstock.serde.base import Serde

__all__ = ["FoldResult", "GroupFold", "RowGroups", "Segments", "group_keys", "group_windows"]

_FEW = 64
_PLAIN_TYPES = ({str}, {int}, {bytes}, {bool}, {UUID})


@dataclass(frozen=True)
class RowGroups:
    """Rows by key: ``codes`` numbers each row's group, groups count up in order of first appearance."""

    codes: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of_codes(cls, codes: NDArray[np.int64]) -> RowGroups:
        """Return the groups of codes that already count up from 0 in order of first appearance."""
        highest = np.maximum.accumulate(codes) if len(codes) else codes
        return cls(codes, np.flatnonzero(np.diff(highest, prepend=-1) > 0))

    def __len__(self) -> int:
        return len(self.first)

    def last_rows(self) -> NDArray[np.int64]:
        """Return the last row of each group."""
        if len(self.codes) == len(self):  # each row is a group
            return self.first
        last = np.full(len(self), -1, np.int64)
        last[self.codes] = np.arange(len(self.codes))
        return last

    def counts(self) -> NDArray[np.int64]:
        """Return the number of rows of each group."""
        return np.bincount(self.codes, minlength=len(self))

    @cached_property
    def segments(self) -> Segments:
        """The rows sorted by group, those of one group in their own order."""
        order = np.argsort(self.codes, kind="stable")
        starts = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.counts(), out=starts[1:])
        return Segments(order, self.codes[order], starts[:-1])


@dataclass(frozen=True)
class Segments:
    """Rows sorted by group: ``order`` are their positions before, ``starts`` the beginnings of the groups."""

    order: NDArray[np.int64]
    codes: NDArray[np.int64]
    starts: NDArray[np.int64]

    def scatter(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return values that stand in sorted order, put back into the order of the rows."""
        out = np.empty_like(values)
        out[self.order] = values
        return out

    def previous_rows(self) -> NDArray[np.int64]:
        """Return for each row the row before it in its group, -1 for the first."""
        before = np.empty_like(self.order)
        before[1:] = self.order[:-1]
        before[self.starts] = -1
        return self.scatter(before)

    def occurrence(self) -> NDArray[np.int64]:
        """Return for each row how many rows of its group come before it."""
        return self.scatter(np.arange(len(self.order)) - self.starts[self.codes])

    def running_sum(self, values: NDArray[np.int64], initial: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over the group's rows up to each row, from the group's initial value; integers only."""
        sums = np.cumsum(values[self.order])
        base = np.concatenate([np.zeros(1, np.int64), sums])[self.starts]
        return self.scatter(sums + (initial - base)[self.codes])

    def running_max(self, values: NDArray[np.int64], initial: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the same for the largest; None when the numbers are too far apart for the method."""
        low = min(int(values.min()), int(initial.min()))
        reach = max(int(values.max()), int(initial.max())) - low + 1
        if reach * (len(self.starts) + 1) >= 1 << 62:
            return None
        lifted = values[self.order] - low
        lifted[self.starts] = np.maximum(lifted[self.starts], initial - low)
        shift = self.codes * reach  # each group's numbers lie above all of the group before
        return self.scatter(np.maximum.accumulate(lifted + shift) - shift + low)


def group_keys(keys: Column, serde: Serde[Any]) -> RowGroups:
    """Group rows by key; no key is null. ``serde`` encodes keys that Python would compare differently."""
    if isinstance(keys, WindowedColumn):
        return _group_windows(keys, serde)
    if isinstance(keys, RowColumn):
        return _group_array(serde.encode(keys))
    if keys.is_columnar:
        dtype = keys.series().dtype
        if dtype in (pl.String, pl.Binary, pl.Boolean) or dtype.is_integer():
            return _few_groups(keys.items()) if len(keys) <= _FEW else _group_array(keys.series().to_arrow())
    items = keys.items()
    if set(map(type, items)) in _PLAIN_TYPES:
        if len(items) <= _FEW:
            return _few_groups(items)
        numbers = dict(zip(dict.fromkeys(items), count(), strict=False))
        return RowGroups.of_codes(np.fromiter(map(numbers.__getitem__, items), np.int64, len(items)))
    return _group_array(serde.encode(keys))


def _few_groups(items: Sequence[Any]) -> RowGroups:
    """Group a few items that can be keys of a dict, without the time that NumPy's functions take to begin."""
    if len(items) == 1:
        return _ONE_ROW
    numbers: dict[Any, int] = {}
    firsts: list[int] = []
    codes = []
    for at, item in enumerate(items):
        codes.append(numbers.setdefault(item, len(numbers)))
        if len(numbers) > len(firsts):
            firsts.append(at)
    return RowGroups(np.array(codes, np.int64), np.array(firsts, np.int64))


def _group_array(array: pa.Array) -> RowGroups:
    codes = array.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return RowGroups.of_codes(codes.astype(np.int64))


def _group_windows(keys: WindowedColumn, serde: Serde[Any]) -> RowGroups:
    windowed = serde.name.startswith(("windowed<", "session<"))  # that of a window store is the inner one already
    codes = group_keys(keys.keys, getattr(serde, "inner", serde) if windowed else serde).codes
    lengths = keys.ends - keys.starts
    same_length = len(lengths) > 0 and lengths.min() == lengths.max()
    return group_windows(codes, keys.starts, None if same_length else keys.ends)


def group_windows(codes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64] | None) -> RowGroups:
    """Group rows by a number (of the key, say), a start, and an end where equal starts may have different ends."""
    if len(codes) <= _FEW:
        windows = (starts,) if ends is None else (starts, ends)
        return _few_groups(list(zip(codes.tolist(), *(each.tolist() for each in windows), strict=True)))
    for times in (starts,) if ends is None else (starts, ends):
        if not len(times):
            break
        low = times.min()
        reach, numbers = int(times.max()) - int(low) + 1, times - low
        if reach * (int(codes.max()) + 1) >= 1 << 62:
            distinct, numbers = np.unique(times, return_inverse=True)
            reach = len(distinct)
            codes = np.unique(codes, return_inverse=True)[1]
        codes = codes * reach + numbers
    return _group_array(pa.array(codes))


@dataclass(frozen=True)
class FoldResult:
    """The changes of a batch to a table, row by row and group by group.

    Attributes:
        final: The value of each group after the batch.
        final_stamps: The timestamps of the groups' values after the batch.
        last: The last row that changed each group; -1 when none did.
        changed_rows: The rows that made a change; None when all did.
        news: The new value of each such row. Rows' values may be left out (None) when no reader needs them.
        olds: The old value of each such row.
        stamps: The result's timestamp of each such row.
    """

    final: Column
    final_stamps: NDArray[np.int64]
    last: NDArray[np.int64]
    changed_rows: NDArray[np.int64] | None = None
    news: Column | None = None
    olds: Column | None = None
    stamps: NDArray[np.int64] | None = None


_ONE_ROW = RowGroups(np.zeros(1, np.int64), np.zeros(1, np.int64))


class GroupFold(Protocol):
    """A function that folds rows by key into the values and timestamps that their groups had before."""

    def __call__(self, rows: Rows, groups: RowGroups, before: tuple[Column, NDArray[np.int64]], /) -> FoldResult: ...
