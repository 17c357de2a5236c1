"""The bounds and the contents of a suppress buffer, and the changes of a batch to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.state.views.change_columns import ChangeColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.topology.operations.tables import Suppress

__all__ = ["BufferBounds", "Held", "BufferChanges"]


class BufferBounds(NamedTuple):
    """The records and bytes that a buffer may hold, and the reaction of a full one."""

    records: int | None
    size: int | None
    emit_early: bool

    @classmethod
    def of(cls, operation: Suppress) -> BufferBounds:
        return cls(operation.max_records, operation.max_bytes, operation.emit_early)

    def exceeded(self, records: int, size: int) -> bool:
        return (self.records is not None and records > self.records) or (self.size is not None and size > self.size)


@dataclass(frozen=True)
class Held:
    """The changes that waited before the batch, of the batch's keys."""

    keys: pa.Array
    changes: ChangeColumns


@dataclass(frozen=True)
class BufferChanges:
    """The changes of a batch to the buffer.

    Attributes:
        began: Rows that began to wait.
        left_rows: For each change that left, the row after which it did; in the order of leaving.
        left_numbers: Its number among those that left after that row.
        left_keys: Its key.
        left: The change.
        held: The changes that waited before the batch.
    """

    began: NDArray[np.int64]
    left_rows: NDArray[np.int64]
    left_numbers: NDArray[np.int64]
    left_keys: pa.Array
    left: ChangeColumns
    held: Held
