"""What a source copies from partitions of another log to topics, as it is: no key, value or header is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import pyarrow as pa

from penstock.connect.data import SourceRecord
from penstock.log.base import TopicPartition
from penstock.log.stored import StoredRecords

__all__ = ["CopiedBatch", "Copy"]


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Consecutive records for a partition.

    Attributes:
        tp: The partition that they are written to.
        records: Record batches as another log has stored them, or columns (RECORD_SCHEMA).
        count: The number of records.
        source_partition: The part of the source that they come from.
        source_offset: The position to go on from after the last of them.
        columns: Reads them as columns, also if they are record batches.
        record: Makes a record of a row of the columns.
        written: Called with the offset of the first copy once they are written; -1: it is not known.
    """

    tp: TopicPartition
    records: StoredRecords | pa.RecordBatch
    count: int
    source_partition: Mapping[str, Any]
    source_offset: Mapping[str, Any]
    columns: Callable[[], pa.RecordBatch]
    record: Callable[[Mapping[str, Any]], SourceRecord]
    written: Callable[[int], None]

    @property
    def topic(self) -> str:
        """The topic that they are written to."""
        return self.tp.topic

    def records_made(self) -> Iterator[SourceRecord]:
        """Make the records, one after another."""
        return map(self.record, self.columns().to_pylist())


class CopiedBatch(Sequence[SourceRecord]):
    """The records of a poll that are copied; as a sequence it makes the records, for those who ask for them.

    Args:
        copies: The copies.
        more: Whether the next poll returns records at once: then a transaction may hold both.
    """

    __slots__ = ("_converted", "copies", "more")

    def __init__(self, copies: Sequence[Copy], *, more: bool = False) -> None:
        self.copies = copies
        self.more = more
        self._converted: list[SourceRecord] | None = None

    def __len__(self) -> int:
        return sum(copy.count for copy in self.copies)

    @overload
    def __getitem__(self, row: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, row: slice) -> list[SourceRecord]: ...
    def __getitem__(self, row: int | slice) -> SourceRecord | list[SourceRecord]:
        return self._records()[row]

    def __iter__(self) -> Iterator[SourceRecord]:
        return iter(self._records())

    def _records(self) -> list[SourceRecord]:
        if self._converted is None:
            self._converted = [record for copy in self.copies for record in copy.records_made()]
        return self._converted
