"""Reading single values of all rows at once: numbers, texts, times.

Texts are not copied: a view points to them where they are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.errors import SerializationError
from penstock.serde.buffers import from_fixed_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LOGICAL",
    "PADDING",
    "PRIMITIVES",
    "AvroCursor",
    "Reader",
    "Unsupported",
    "bad",
    "decimal",
    "fixed",
    "series",
    "text",
]

PADDING = 16  # bytes after the last row, so that words may be read at its end
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_S = int((dt.datetime(1, 1, 2, tzinfo=dt.UTC) - _EPOCH).total_seconds())  # the range of Python's datetime
_LAST_S = int((dt.datetime(9999, 12, 30, tzinfo=dt.UTC) - _EPOCH).total_seconds())
_DAY_S = 86_400


class Unsupported(Exception):  # noqa: N818 - no error: another way is taken
    """Raised for schemas, or rows, that are left to the reader of single rows."""


class AvroCursor:
    """The position up to which each row has been read."""

    __slots__ = ("body", "ends", "positions")

    def __init__(self, body: NDArray[np.uint8], positions: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.body = body
        self.positions = positions
        self.ends = ends

    def at(self, rows: NDArray[np.int64]) -> AvroCursor:
        return AvroCursor(self.body, self.positions[rows], self.ends[rows])

    def advance(self, lengths: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Skip so many bytes in every row, and return their starts."""
        starts = self.positions
        self.positions = starts + lengths
        if (self.positions > self.ends).any():
            raise bad("a value that is cut short")
        return starts

    def words(self, starts: NDArray[np.int64], kind: str) -> NDArray[Any]:
        """Return the number that begins at each start."""
        size = np.dtype(kind).itemsize
        windows: NDArray[Any] = np.ndarray((len(self.body) - size + 1,), kind, self.body, strides=(1,))
        return windows[starts]

    def longs(self) -> NDArray[np.int64]:
        """Read a varint of every row."""
        first = self.body[self.advance(1)]
        numbers = (first & 0x7F).astype(np.uint64)
        more = np.flatnonzero(first & 0x80)
        shift = 7
        while len(more):
            if shift > 63:
                raise bad("a number of more than 64 bits")
            starts = self.positions[more]
            if (starts >= self.ends[more]).any():
                raise bad("a number that is cut short")
            byte = self.body[starts]
            numbers[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.positions[more] = starts + 1
            more = more[byte >= 0x80]
            shift += 7
        return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)

    def ints(self) -> NDArray[np.int32]:
        numbers = self.longs()
        narrow = numbers.astype(np.int32)
        if (narrow != numbers).any():
            raise bad("an int of more than 32 bits")
        return narrow

    def lengths(self) -> NDArray[np.int64]:
        numbers = self.longs()
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) > len(self.body)):
            raise bad("a length that cannot be")
        return numbers


def bad(what: str) -> SerializationError:
    """Return the error of some row; the rows are read again one by one to find it."""
    return SerializationError(f"a row holds {what}")


Reader = Callable[[AvroCursor], pl.Series]


def fixed(cursor: AvroCursor, size: int) -> pl.Series:
    """Read bytes of one width."""
    starts = cursor.advance(size)
    return series(from_fixed_width(cursor.body[starts[:, None] + np.arange(size)]))


def decimal(cursor: AvroCursor, lengths: NDArray[np.int64], schema: Any) -> pl.Series:
    """Read big-endian bytes as a decimal of 128 bits; those of more than eight bytes are left to the other reader."""
    starts = cursor.advance(lengths)
    if schema["precision"] > 38 or (len(lengths) and (int(lengths.max()) > 8 or int(lengths.min()) < 1)):
        raise Unsupported
    # The eight bytes that end where the number ends; a shift takes away what stands before it, and keeps the sign.
    at = np.maximum(starts[:, None] + lengths[:, None] - 8 + np.arange(8), 0)
    whole = np.ascontiguousarray(cursor.body[at]).view(">i8").ravel().astype(np.int64)
    shift = (8 - lengths) * 8
    numbers = np.empty((len(lengths), 2), np.int64)
    numbers[:, 0] = (whole << shift) >> shift
    numbers[:, 1] = numbers[:, 0] >> 63
    limit = 10 ** schema["precision"]
    if limit < 1 << 63 and (np.abs(numbers[:, 0]) >= limit).any():
        raise bad("a decimal of more digits than its schema allows")
    kind = pa.decimal128(schema["precision"], schema.get("scale", 0))
    return series(pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(numbers)]))


def _bytes(cursor: AvroCursor) -> pl.Series:
    return series(_views(cursor, pa.binary_view()))


def text(cursor: AvroCursor) -> pl.Series:
    texts = _views(cursor, pa.string_view())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise bad("text that is not UTF-8") from error
    return series(texts)


def _views(cursor: AvroCursor, kind: pa.DataType) -> pa.Array:
    """Return length and place of each text; up to twelve bytes stand in the view itself."""
    lengths = cursor.lengths()
    starts = cursor.advance(lengths)
    views = np.empty((len(lengths), 4), np.uint32)
    views[:, 0] = lengths
    short = lengths <= 12
    for word in range(3):
        held = np.clip(lengths - 4 * word, 0, 4).astype(np.uint64)
        mask = ((np.uint64(1) << (held * np.uint64(8))) - np.uint64(1)).astype(np.uint32)
        at = np.minimum(starts + 4 * word, len(cursor.body) - 4)
        views[:, 1 + word] = cursor.words(at, "<u4") & mask
    if not short.all():
        views[~short, 2] = 0
        views[~short, 3] = starts[~short]
    return pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(views), pa.py_buffer(cursor.body)])


def _boolean(cursor: AvroCursor) -> pl.Series:
    flags = cursor.body[cursor.advance(1)]
    if (flags > 1).any():
        raise bad("a boolean that is neither 0 nor 1")
    return pl.Series("", flags.astype(np.bool_))


def _float(kind: str) -> Reader:
    size = np.dtype(kind).itemsize
    return lambda cursor: pl.Series("", cursor.words(cursor.advance(size), kind).astype(kind[1:]))


def _time(unit_per_s: int, dtype: Any) -> Reader:
    """Return a reader of points of time that Python's datetime can hold."""

    def read(cursor: AvroCursor) -> pl.Series:
        return pl.Series("", _between(cursor.longs(), _FIRST_S * unit_per_s, _LAST_S * unit_per_s)).cast(dtype)

    return read


def _time_of_day(unit_per_s: int) -> Reader:
    def read(cursor: AvroCursor) -> pl.Series:
        numbers = _between(cursor.longs(), 0, _DAY_S * unit_per_s - 1)
        return pl.Series("", numbers * (1_000_000_000 // unit_per_s)).cast(pl.Time)

    return read


def _date(cursor: AvroCursor) -> pl.Series:
    return pl.Series("", _between(cursor.ints(), _FIRST_S // _DAY_S, _LAST_S // _DAY_S)).cast(pl.Date)


def _between(numbers: NDArray[Any], low: int, high: int) -> NDArray[Any]:
    if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) > high):
        raise Unsupported
    return numbers


def _null(cursor: AvroCursor) -> pl.Series:
    return pl.Series("", [None] * len(cursor.positions), pl.Null)


def series(array: pa.Array) -> pl.Series:
    """Return the same values as Polars has them."""
    return pl.Series("", pl.from_arrow(array))


PRIMITIVES: dict[str, Reader] = {
    "null": _null,
    "boolean": _boolean,
    "int": lambda cursor: pl.Series("", cursor.ints()),
    "long": lambda cursor: pl.Series("", cursor.longs()),
    "float": _float("<f4"),
    "double": _float("<f8"),
    "bytes": _bytes,
    "string": text,
}
LOGICAL: dict[tuple[str, str | None], Reader] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time_of_day(1_000),
    ("long", "time-micros"): _time_of_day(1_000_000),
    ("long", "timestamp-millis"): _time(1_000, pl.Datetime("ms", "UTC")),
    ("long", "timestamp-micros"): _time(1_000_000, pl.Datetime("us", "UTC")),
    ("long", "local-timestamp-millis"): _time(1_000, pl.Datetime("ms")),
    ("long", "local-timestamp-micros"): _time(1_000_000, pl.Datetime("us")),
}
