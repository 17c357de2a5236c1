"""Grouping the rows of a batch by key, so that state is read and written once per key.

Two keys are the same when their bytes are, as in Kafka; comparing values is only a shortcut where it says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.serde.column import Column
from penstock.serde.windowed import WindowedColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.serde.base import Serde

__all__ = ["Groups", "Segments", "group_keys", "group_windows"]

_PLAIN_TYPES = ({str}, {int}, {bytes}, {bool}, {UUID})


@dataclass(frozen=True)
class Groups:
    """Rows by key: ``codes`` numbers each row's group, groups count up in order of first appearance."""

    codes: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of_codes(cls, codes: NDArray[np.int64]) -> Groups:
        """Groups of codes that already count up from 0 in order of first appearance."""
        highest = np.maximum.accumulate(codes) if len(codes) else codes
        return cls(codes, np.flatnonzero(np.diff(highest, prepend=-1) > 0))

    def __len__(self) -> int:
        return len(self.first)

    def last_rows(self) -> NDArray[np.int64]:
        """The last row of each group."""
        last = np.full(len(self), -1, np.int64)
        last[self.codes] = np.arange(len(self.codes))
        return last

    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each group."""
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
    """Rows sorted by group: ``order`` says where each came from, ``starts`` where each group begins."""

    order: NDArray[np.int64]
    codes: NDArray[np.int64]
    starts: NDArray[np.int64]

    def scatter(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Values that stand in sorted order, put back into the order of the rows."""
        out = np.empty_like(values)
        out[self.order] = values
        return out

    def previous_rows(self) -> NDArray[np.int64]:
        """For each row the row before it in its group, -1 for the first."""
        before = np.empty_like(self.order)
        before[1:] = self.order[:-1]
        before[self.starts] = -1
        return self.scatter(before)

    def occurrence(self) -> NDArray[np.int64]:
        """For each row how many rows of its group come before it."""
        return self.scatter(np.arange(len(self.order)) - self.starts[self.codes])

    def running_sum(self, values: NDArray[np.int64], initial: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum over the group's rows up to each row, from the group's initial value; integers only."""
        sums = np.cumsum(values[self.order])
        base = np.concatenate([np.zeros(1, np.int64), sums])[self.starts]
        return self.scatter(sums + (initial - base)[self.codes])

    def running_max(self, values: NDArray[np.int64], initial: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """As `running_sum`, the largest; None when the numbers are too far apart for the method."""
        low = min(int(values.min()), int(initial.min()))
        reach = max(int(values.max()), int(initial.max())) - low + 1
        if reach * (len(self.starts) + 1) >= 1 << 62:
            return None
        lifted = values[self.order] - low
        lifted[self.starts] = np.maximum(lifted[self.starts], initial - low)
        shift = self.codes * reach  # each group's numbers lie above all of the group before
        return self.scatter(np.maximum.accumulate(lifted + shift) - shift + low)


def group_keys(keys: Column, serde: Serde[Any]) -> Groups:
    """Groups rows by key; no key is null. ``serde`` gives the bytes of keys that Python would compare differently."""
    if isinstance(keys, WindowedColumn):
        return _group_windows(keys, serde)
    if keys.is_columnar:
        dtype = keys.series().dtype
        if dtype in (pl.String, pl.Binary, pl.Boolean) or dtype.is_integer():
            return _group_array(keys.series().to_arrow())
    items = keys.items()
    if set(map(type, items)) in _PLAIN_TYPES:
        numbers = dict(zip(dict.fromkeys(items), count(), strict=False))
        return Groups.of_codes(np.fromiter(map(numbers.__getitem__, items), np.int64, len(items)))
    return _group_array(serde.encode(keys))


def _group_array(array: pa.Array) -> Groups:
    codes = array.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return Groups.of_codes(codes.astype(np.int64))


def _group_windows(keys: WindowedColumn, serde: Serde[Any]) -> Groups:
    windowed = serde.name.startswith(("windowed<", "session<"))  # that of a window store is the inner one already
    codes = group_keys(keys.keys, getattr(serde, "inner", serde) if windowed else serde).codes
    lengths = keys.ends - keys.starts
    same_length = len(lengths) > 0 and lengths.min() == lengths.max()
    return group_windows(codes, keys.starts, None if same_length else keys.ends)


def group_windows(codes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64] | None) -> Groups:
    """Groups rows by a number (of the key, say), a start, and an end where equal starts may have different ends."""
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
