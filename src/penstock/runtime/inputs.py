"""The records of one batch, decoded, in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.runtime.record import Headers, RecordContext, TopicBatch, record_context
from penstock.runtime.row_order import Place
from penstock.runtime.rows import FEW, Rows
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DecodedRecords", "TaskInput"]


@dataclass(slots=True)
class DecodedRecords:
    """The decoded records of one TopicBatch; ``rows`` are their positions in it (None: all)."""

    source: str
    batch: TopicBatch
    rows: NDArray[np.int64] | None
    timestamps: NDArray[np.int64]
    keys: Column
    values: Column
    headers: list[Headers] | None
    olds: Column | None = None  # of a regrouped table's changes

    def __len__(self) -> int:
        return len(self.timestamps)


_NO_TIMES = np.empty(0, np.int64)
_FIRST = np.zeros(1, np.int64)  # the position of a record that is alone; nobody changes it


class TaskInput:
    """All pieces of a batch in processing order.

    Within a partition that is offset order. Between partitions the one whose head has the smallest timestamp goes first
    (ties: topic, then partition): a record waits for all before it, so that is the order of the running maxima.
    """

    def __init__(
        self, pieces: Sequence[DecodedRecords], *, ordered: bool, names: Mapping[str, str] | None = None
    ) -> None:
        self._pieces = pieces
        self._names = names or {}  # of internal topics, as the cluster knows them
        self.length = sum(map(len, pieces))
        if len(pieces) <= 1:
            self._order: NDArray[np.int64] | None = None
            self.timestamps = pieces[0].timestamps if pieces else _NO_TIMES
        else:
            stamps = np.concatenate([p.timestamps for p in pieces])
            self._order = self._placed() if ordered else self._merged()
            self.timestamps = stamps if self._order is None else stamps[self._order]
        self._records: dict[int, RecordContext] = {}

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each piece begins among all, and their end."""
        return np.cumsum([0, *map(len, self._pieces)])

    def _placed(self) -> NDArray[np.int64] | None:
        """Return the order that the batches know, if they do; else they follow one another."""
        places: list[NDArray[np.int64]] = []
        for piece in self._pieces:
            if piece.batch.places is None:
                return None
            places.append(piece.batch.places if piece.rows is None else piece.batch.places[piece.rows])
        return np.argsort(np.concatenate(places))

    def _merged(self) -> NDArray[np.int64]:
        ranks = {at: rank for rank, at in enumerate(sorted({(p.batch.topic, p.batch.partition) for p in self._pieces}))}
        rank = np.concatenate(
            [np.full(len(p), ranks[p.batch.topic, p.batch.partition], np.int64) for p in self._pieces]
        )
        newest: dict[int, int] = {}
        maxima = []
        for piece in self._pieces:
            at = ranks[piece.batch.topic, piece.batch.partition]
            running = np.maximum.accumulate(np.concatenate([[newest.get(at, -1)], piece.timestamps]))[1:]
            if len(running):
                newest[at] = int(running[-1])
            maxima.append(running)
        return np.lexsort((rank, np.concatenate(maxima)))

    def rows(self) -> list[tuple[str, Rows]]:
        """Return (source node, its rows) for each source node that has any."""
        if len(self._pieces) == 1 and self.length:
            positions = _FIRST if self.length == 1 else np.arange(self.length)
            return [(self._pieces[0].source, _rows_of(self._pieces[0], positions))]
        if self._order is None:
            positions = np.arange(self.length)
        else:
            positions = np.empty(self.length, np.int64)
            positions[self._order] = np.arange(self.length)
        by_source: dict[str, list[Rows]] = {}
        for number, piece in enumerate(self._pieces):
            if len(piece):
                rows = _rows_of(piece, positions[self._starts[number] : self._starts[number + 1]])
                by_source.setdefault(piece.source, []).append(rows)
        return [(source, Rows.merge(parts)) for source, parts in by_source.items()]

    def sources(self, positions: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return topic (bytes; null without a record), partition and offset of the records at these positions."""
        if len(positions) <= FEW:
            records = [self.record(position) for position in positions.tolist()]
            names = [None if each.topic is None else each.topic.encode() for each in records]
            partitions = np.array([each.partition for each in records], np.int64)
            offsets = np.array([each.offset for each in records], np.int64)
            return pa.array(names, pa.large_binary()), partitions, offsets
        known = positions < self.length
        at = np.where(known, positions, 0)
        if self._order is not None:
            at = self._order[at]
        number = np.searchsorted(self._starts, at, side="right") - 1
        partitions, offsets = np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
        for which, piece in enumerate(self._pieces):
            mine = np.flatnonzero(known & (number == which))
            rows = at[mine] - self._starts[which]
            partitions[mine] = piece.batch.partition
            offsets[mine] = piece.batch.records.column("offset").to_numpy(zero_copy_only=False)[
                rows if piece.rows is None else piece.rows[rows]
            ]
        topics_of = [self._names.get(p.batch.topic, p.batch.topic).encode() for p in self._pieces]
        topics = pa.array(topics_of, pa.large_binary())
        return topics.take(pa.array(number, pa.int64(), mask=~known)), partitions, offsets

    def record(self, position: int) -> RecordContext:
        """Return the source record of an input position."""
        if position >= self.length:
            return RecordContext(None, -1, -1, -1, ())
        found = self._records.get(position)
        if found is None:
            at = position if self._order is None else int(self._order[position])
            number = int(np.searchsorted(self._starts, at, side="right")) - 1
            piece, row = self._pieces[number], at - int(self._starts[number])
            found = record_context(piece.batch, row if piece.rows is None else int(piece.rows[row]))
            found = found._replace(topic=self._names.get(piece.batch.topic, piece.batch.topic))
            self._records[position] = found
        return found


def _rows_of(piece: DecodedRecords, positions: NDArray[np.int64]) -> Rows:
    place = Place.of_inputs(positions)
    return Rows(place, piece.timestamps, piece.keys, piece.values, piece.headers, piece.olds)
