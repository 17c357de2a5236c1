"""Rows that travel between operators: one batch of a stream, or of a table's changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.row_order import Place
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.record import Headers, RecordContext

__all__ = ["FEW", "Rows"]

FEW = 64  # up to so many rows, going value by value costs less than setting up columns (measured with w3)


@dataclass(slots=True)
class Rows:
    """Columns of equal length in order of place; nobody changes them.

    ``olds`` is None for a stream; for a table the old values (all null when the node does not send old values), and
    ``values`` the new ones. ``headers`` is None when no row has any. ``timestamps`` are int64 milliseconds.
    The record that caused a row (topic, partition, offset) is found by ``place.inputs`` in the task's input.
    ``latest`` marks a table's changes that are the newest version of their key; None: all are, as always unless a
    versioned store takes out-of-order records (Kafka's ``Change.isLatest``).
    ``origins`` has the source records of rows that waited in a buffer, where they are not those of the place.
    """

    place: Place
    timestamps: NDArray[np.int64]
    keys: Column
    values: Column
    headers: list[Headers] | None = None
    olds: Column | None = None
    latest: NDArray[np.bool_] | None = None
    origins: list[RecordContext | None] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows at these positions."""
        return Rows(
            self.place.take(index),
            self.timestamps[index],
            self.keys.take(index),
            self.values.take(index),
            None if self.headers is None else [self.headers[i] for i in index.tolist()],
            None if self.olds is None else self.olds.take(index),
            None if self.latest is None else self.latest[index],
            None if self.origins is None else [self.origins[i] for i in index.tolist()],
        )

    def filter(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the rows where the mask is true; self when all are."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def with_values(self, values: Column) -> Rows:
        return Rows(self.place, self.timestamps, self.keys, values, self.headers, self.olds, self.latest, self.origins)

    def with_keys(self, keys: Column) -> Rows:
        return Rows(self.place, self.timestamps, keys, self.values, self.headers, self.olds, self.latest, self.origins)

    def with_pairs(self, keys: Column, values: Column) -> Rows:
        return Rows(self.place, self.timestamps, keys, values, self.headers, self.olds, self.latest, self.origins)

    def with_place(self, place: Place) -> Rows:
        return Rows(place, self.timestamps, self.keys, self.values, self.headers, self.olds, self.latest, self.origins)

    def origin(self, row: int) -> RecordContext | None:
        """Return the source record of a row that waited in a buffer; None: it is found by the row's place."""
        return None if self.origins is None else self.origins[row]

    def without_changes(self) -> Rows:
        """Return none of the rows, as the changes of a table."""
        return replace(self.take(_NONE.timestamps), olds=_NONE.keys)

    @staticmethod
    def empty() -> Rows:
        """Return no rows."""
        return _NONE

    @staticmethod
    def merge(batches: Sequence[Rows]) -> Rows:
        """Return all rows of the batches in depth-first order."""
        batches = [b for b in batches if len(b)] or list(batches[:1])
        if len(batches) == 1:
            return batches[0]
        headers: list[Headers] | None = None
        if any(b.headers is not None for b in batches):
            headers = [h for b in batches for h in (b.headers if b.headers is not None else [()] * len(b))]
        olds = [b.olds for b in batches if b.olds is not None]
        latest: NDArray[np.bool_] | None = None
        if any(b.latest is not None for b in batches):
            latest = np.concatenate([np.ones(len(b), np.bool_) if b.latest is None else b.latest for b in batches])
        origins: list[RecordContext | None] | None = None
        if any(b.origins is not None for b in batches):
            origins = [o for b in batches for o in (b.origins if b.origins is not None else [None] * len(b))]
        merged = Rows(
            Place.concat([b.place for b in batches]),
            np.concatenate([b.timestamps for b in batches]),
            Column.concat([b.keys for b in batches]),
            Column.concat([b.values for b in batches]),
            headers,
            Column.concat(olds) if olds else None,
            latest,
            origins,
        )
        return merged.take(merged.place.order())


_NONE = Rows(Place((np.empty(0, np.int64),), 0), np.empty(0, np.int64), Column.nulls(0), Column.nulls(0))
