"""Changes of a table as one value, as a regrouped table sends them through its repartition topic.

old value, 0
new value, 1
length of new value (zigzag varint), new value, old value, 2
the same three with one more byte before the last, 1 if the change is the latest of its key, else 0: then 3, 4, 5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.varints import INT_BYTES, read_signed, signed
from penstock.errors import SerializationError
from penstock.serde.base import BaseSerde, Serde, show
from penstock.serde.column import Column, bytes_column, join, large_binary, series_of, without_suffix

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ChangeSerde"]

Change = tuple[Any, Any]


class ChangeSerde(BaseSerde):
    """Kafka's ``ChangedSerializer`` and ``ChangedDeserializer``; a change is a pair of new and old value."""

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The serde's name, ``change<inner>``."""
        return f"change<{self.inner.name}>"

    def serialize(self, value: Change | None) -> bytes | None:
        """Encode one pair of new and old value."""
        if value is None:
            return None
        new, old = value
        return self._join(self.inner.serialize(new), self.inner.serialize(old))

    def deserialize(self, data: bytes | None) -> Change | None:
        """Decode the bytes of one change to its new and old value."""
        if data is None:
            return None
        new, old, _ = self._split(data)
        return self.inner.deserialize(new), self.inner.deserialize(old)

    def encode_changes(self, values: Column, olds: Column) -> pa.Array:
        """Return the bytes of all changes, ``values`` being the new ones.

        Raises:
            SerializationError: Both values of a change are null.
        """
        news, before = large_binary(self.inner.encode(values)), large_binary(self.inner.encode(olds))
        if before.null_count == len(before) and not news.null_count:
            return join(news, b"\x01")
        if news.null_count == len(news) and not before.null_count:
            return join(before, b"\x00")
        rows: list[bytes | None] = []
        try:
            for new, old in zip(news.to_pylist(), before.to_pylist(), strict=True):
                rows.append(self._join(new, old))
        except SerializationError as error:
            raise self.at_row(error, len(rows)) from error
        return bytes_column(rows)

    def decode_changes(self, data: pa.Array) -> tuple[Column, Column, NDArray[np.bool_]]:
        """Return new values, old values, and whether each change is the latest of its key; null rows have two."""
        data = large_binary(data)
        if len(data) and not data.null_count:
            flags = series_of(data).bin.slice(-1).unique().to_list()
            if flags in ([b"\x00"], [b"\x01"]):  # all deletions or all insertions
                column = self.inner.decode(without_suffix(data, 1))
                nulls = Column.nulls(len(data))
                pair = (nulls, column) if flags == [b"\x00"] else (column, nulls)
                return *pair, np.ones(len(data), np.bool_)
        news: list[bytes | None] = []
        olds: list[bytes | None] = []
        latest = np.ones(len(data), np.bool_)
        for row, change in enumerate(data.to_pylist()):
            try:
                new, old, latest[row] = (None, None, True) if change is None else self._split(change)
            except SerializationError as error:
                raise self.at_row(error, row) from error
            news.append(new)
            olds.append(old)
        return self.inner.decode(bytes_column(news)), self.inner.decode(bytes_column(olds)), latest

    def encode(self, column: Column) -> pa.Array:
        """Encode a column of pairs."""
        items = column.items()
        if None in items:
            return super().encode(column)
        return self.encode_changes(
            Column.of_items([new for new, _ in items]), Column.of_items([old for _, old in items])
        )

    def decode(self, data: pa.Array) -> Column:
        """Decode a column of changes to pairs of new and old value."""
        news, olds, _ = self.decode_changes(data)
        rows = zip(news.items(), olds.items(), large_binary(data).is_valid().to_pylist(), strict=True)
        return Column.of_items([(new, old) if there else None for new, old, there in rows])

    def _join(self, new: bytes | None, old: bytes | None) -> bytes:
        if new is None:
            if old is None:
                raise SerializationError("a change whose new and old values are both null", serde=self.name)
            return old + b"\x00"
        return new + b"\x01" if old is None else b"".join((signed(len(new)), new, old, b"\x02"))

    def _split(self, data: bytes) -> tuple[bytes | None, bytes | None, bool]:
        """Return new bytes, old bytes, and whether the change is the latest."""
        flag = data[-1] if data else -1
        if not 0 <= flag <= 5 or (flag >= 3 and (len(data) < 2 or data[-2] > 1)):
            self.reject(data, "a change, which ends with its kind (0 to 5)")
        latest = flag < 3 or data[-2] == 1
        body = data[:-1] if flag < 3 else data[:-2]
        if flag in {0, 3}:
            return None, body, latest
        if flag in {1, 4}:
            return body, None, latest
        try:
            length, start = read_signed(body, 0, INT_BYTES)
        except (IndexError, ValueError):
            length, start = -1, 0
        if length < 0 or start + length > len(body):
            raise SerializationError(f"a change that is cut short: {show(data)}", serde=self.name)
        return body[start : start + length], body[start + length :], latest
