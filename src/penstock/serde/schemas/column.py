"""Encoded values, decoded into the form that is asked for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa

from penstock.serde.column import Column

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Decoder", "EncodedColumn"]


class Decoder(Protocol):
    """The decoder of bytes to Python values or a series."""

    @property
    def reads(self) -> Hashable:
        """A key that is equal for decoders with the same values of the same bytes."""
        ...

    def deserialize_rows(self, rows: Sequence[bytes | None]) -> list[Any]: ...

    def read_series(self, data: pa.Array) -> pl.Series | None:
        """Return the values as one series; None if they have no column type."""
        ...

    def series_of(self, items: list[Any]) -> pl.Series | None:
        """Return the series of decoded values; None: decode the bytes."""
        ...


class EncodedColumn(Column):
    """A column that still has its bytes: ``items()`` and ``series()`` each read them when first asked for.

    So a map, a UUID or a Protobuf message is the same Python object by the row and by the column, and a serde that
    writes with the schema that a value was read with can hand on the bytes.
    """

    __slots__ = ("decoder", "raw")

    def __init__(
        self, raw: pa.Array, decoder: Decoder, items: list[Any] | None = None, series: pl.Series | None = None
    ) -> None:
        super().__init__(items, series)
        self.raw = raw
        self.decoder = decoder

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def has_items(self) -> bool:
        """Whether the Python values are there."""
        return self._items is not None

    def items(self) -> list[Any]:
        if self._items is None:
            self._items = self.decoder.deserialize_rows(self.raw.to_pylist())
        return self._items

    def series(self) -> pl.Series:
        if self._series is None:
            self._series = None if self._items is None else self.decoder.series_of(self._items)
            if self._series is None:
                self._series = self.decoder.read_series(self.raw)
        return super().series() if self._series is None else self._series

    def null_mask(self) -> NDArray[np.bool_]:
        return self.raw.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def take(self, index: NDArray[np.int64]) -> EncodedColumn:
        items = None if self._items is None else [self._items[i] for i in index.tolist()]
        series = None if self._series is None else self._series[index]
        return EncodedColumn(self.raw.take(pa.array(index)), self.decoder, items, series)

    def concat_same(self, columns: Sequence[Column]) -> Column:
        encoded = [column for column in columns if isinstance(column, EncodedColumn)]
        if len({column.decoder.reads for column in encoded}) != 1:
            return super().concat_same(columns)
        items, series = None, None
        if all(column.has_items for column in encoded):
            items = [item for column in encoded for item in column.items()]
        if all(column.is_columnar for column in encoded) and len({column.series().dtype for column in encoded}) == 1:
            series = pl.concat([column.series() for column in encoded])
        raw = pa.concat_arrays([column.raw for column in encoded])
        return EncodedColumn(raw, self.decoder, items, series)
