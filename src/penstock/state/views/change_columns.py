"""Many buffered changes as columns: the same bytes as `BufferedChange`, without a loop per change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.late_polars import pl
from penstock.serde.column import bytes_column, from_fixed_width, join, large_binary, series_of, to_bytes_list
from penstock.state.views.change_buffer import (
    FIXED,
    OVERHEAD,
    SAME,
    BufferedChange,
    Headers,
    pack_headers,
    unpack_headers,
)
from penstock.state.views.keyvalue import unframe

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ChangeColumns", "concat_changes", "lengths"]

_NUMBERS = ("time", "timestamp", "offset")
_LENGTHS = ("prior", "old", "new", "topic")
_FIXED = np.dtype([(name, ">i8") for name in _NUMBERS] + [("partition", ">i4")] + [(name, ">i4") for name in _LENGTHS])
assert _FIXED.itemsize == FIXED.size  # noqa: S101 - one layout, written twice


def lengths(data: pa.Array) -> NDArray[np.int64]:
    """Return the length of each row; -1 for null."""
    row_lengths: NDArray[np.int64] = (
        pc.binary_length(data).cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    )
    return row_lengths


@dataclass(frozen=True)
class ChangeColumns:
    """Changes that wait. ``headers`` is None when none has any."""

    times: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    offsets: NDArray[np.int64]
    partitions: NDArray[np.int64]
    topics: pa.Array
    priors: pa.Array
    olds: pa.Array
    news: pa.Array
    headers: Sequence[Headers] | None

    def __len__(self) -> int:
        return len(self.times)

    def take(self, index: NDArray[np.int64]) -> ChangeColumns:
        """Return the changes at these positions."""
        at = pa.array(index)
        return ChangeColumns(
            self.times[index],
            self.timestamps[index],
            self.offsets[index],
            self.partitions[index],
            self.topics.take(at),
            self.priors.take(at),
            self.olds.take(at),
            self.news.take(at),
            None if self.headers is None else [self.headers[i] for i in index.tolist()],
        )

    def sizes(self, keys: pa.Array) -> NDArray[np.int64]:
        """Return the bytes that Kafka counts for each change under its key."""
        old_is_prior = self.old_is_prior()
        size = OVERHEAD + sum(np.maximum(lengths(each), 0) for each in (keys, self.topics, self.priors, self.news))
        size = size + np.where(old_is_prior, 0, np.maximum(lengths(self.olds), 0))
        if self.headers is not None:
            size = size + [sum(len(name) + len(value or b"") for name, value in one) for one in self.headers]
        return np.asarray(size, np.int64)

    def pack(self) -> pa.Array:
        """Return the changes as they are stored."""
        same = self.old_is_prior()
        fixed = np.zeros(len(self), _FIXED)
        fixed["time"], fixed["timestamp"] = self.times, self.timestamps
        fixed["offset"], fixed["partition"] = self.offsets, self.partitions
        parts = {"prior": self.priors, "old": self.olds, "new": self.news, "topic": self.topics}
        for name, data in parts.items():
            fixed[name] = lengths(data)
        fixed["old"][same] = SAME
        parts["old"] = pc.if_else(pa.array(~same), self.olds, pa.scalar(b"", pa.large_binary()))
        pieces = [data.fill_null(b"") for data in parts.values()]
        if self.headers is not None:
            pieces.append(bytes_column([pack_headers(one) for one in self.headers]))
        return join(from_fixed_width(fixed.view(np.uint8).reshape(len(self), _FIXED.itemsize)), *pieces)

    def old_is_prior(self) -> NDArray[np.bool_]:
        same = pc.equal(self.olds, self.priors)
        return np.asarray(pc.coalesce(same, pa.scalar(False)))  # noqa: FBT003 - Arrow's way

    @classmethod
    def of(cls, changes: Sequence[BufferedChange]) -> ChangeColumns:
        """Return changes one by one as columns."""
        headers = [one.headers for one in changes]
        return cls(
            np.array([one.time for one in changes], np.int64),
            np.array([one.timestamp for one in changes], np.int64),
            np.array([one.offset for one in changes], np.int64),
            np.array([one.partition for one in changes], np.int64),
            bytes_column([one.topic for one in changes]),
            bytes_column([one.prior for one in changes]),
            bytes_column([one.old for one in changes]),
            bytes_column([one.new for one in changes]),
            headers if any(headers) else None,
        )

    @classmethod
    def unpack(cls, data: pa.Array) -> ChangeColumns:
        """Return the changes in stored rows; no row is null."""
        body, prefix, _ = unframe(large_binary(data), before=_FIXED.itemsize)
        fixed = np.ascontiguousarray(prefix).view(_FIXED).reshape(len(data))
        rest = pl.DataFrame({"body": series_of(body)})
        at = np.zeros(len(data), np.int64)
        columns: dict[str, pa.Array] = {}
        for name in _LENGTHS:
            length = fixed[name].astype(np.int64)
            there = np.maximum(length, 0)
            columns[name] = _cut(rest, at, there, length >= 0)
            if name == "old":
                columns[name] = pc.if_else(pa.array(length == SAME), columns["prior"], columns[name])
            at = at + there
        tails = to_bytes_list(_cut(rest, at, lengths(body) - at, np.ones(len(data), np.bool_)))
        return cls(
            fixed["time"].astype(np.int64),
            fixed["timestamp"].astype(np.int64),
            fixed["offset"].astype(np.int64),
            fixed["partition"].astype(np.int64),
            columns["topic"],
            columns["prior"],
            columns["old"],
            columns["new"],
            [unpack_headers(tail or b"") for tail in tails] if any(tails) else None,
        )


def concat_changes(one: ChangeColumns, two: ChangeColumns) -> ChangeColumns:
    """Return all changes of both."""
    if not len(two):
        return one
    headers = None
    if one.headers is not None or two.headers is not None:
        headers = [h for each in (one, two) for h in (each.headers or [()] * len(each))]
    return ChangeColumns(
        np.concatenate([one.times, two.times]),
        np.concatenate([one.timestamps, two.timestamps]),
        np.concatenate([one.offsets, two.offsets]),
        np.concatenate([one.partitions, two.partitions]),
        pa.concat_arrays([one.topics, two.topics]),
        pa.concat_arrays([one.priors, two.priors]),
        pa.concat_arrays([one.olds, two.olds]),
        pa.concat_arrays([one.news, two.news]),
        headers,
    )


def _cut(rest: pl.DataFrame, at: NDArray[np.int64], length: NDArray[np.int64], there: NDArray[np.bool_]) -> pa.Array:
    """Return so many bytes of each body from a position on; null where there is nothing."""
    columns = rest.with_columns(at=pl.Series(at), length=pl.Series(length), there=pl.Series(there))
    piece = pl.col("body").bin.slice(pl.col("at"), pl.col("length"))
    return large_binary(columns.select(pl.when(pl.col("there")).then(piece).alias("cut")).to_series().to_arrow())
