"""The interface of serdes, and their base: identity by name, column methods row by row, errors that name the row."""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from penstock.base.escapes import show
from penstock.base.late_polars import pl
from penstock.errors import SerializationError
from penstock.serde.column import Column, bytes_column, large_binary, to_bytes_list

__all__ = [
    "FEW",
    "BaseSerde",
    "Serde",
    "are_alike",
    "as_exception",
    "decode_rows",
    "encode_one",
    "encode_only",
    "encode_rows",
    "parts_of",
    "qualified_name",
    "returned_bytes",
    "show",
    "undecodable",
    "with_parts",
]

T = TypeVar("T")


@runtime_checkable
class Serde(Protocol[T]):
    """Kafka's ``Serde``: null stays null in both directions.

    The column methods must return the results of the single ones, row by row; ``decode`` and ``encode`` raise
    SerializationError if any row fails, and the caller then goes row by row to find it.
    Bytes columns are Arrow ``large_binary``. Equal serdes compare and hash equal, and all of them pickle.
    """

    @property
    def name(self) -> str:
        """A stable name with parameters, e.g. ``string``, ``list<long>``, ``windowed<string>``."""
        ...

    def serialize(self, value: T | None) -> bytes | None:
        """Encode one value."""
        ...

    def deserialize(self, data: bytes | None) -> T | None:
        """Decode the bytes of one value."""
        ...

    def encode(self, column: Column) -> pa.Array:
        """Encode a column of values to ``large_binary``."""
        ...

    def decode(self, data: pa.Array) -> Column:
        """Decode a column of bytes to values."""
        ...


def undecodable() -> tuple[type[BaseException], ...]:
    """Return what a serde may raise: a user's anything, and a panic in Rust is not an Exception."""
    return Exception, pl.exceptions.PanicException


def qualified_name(kind: type) -> str:
    """Return a class's module and name; a script has the same however it is started, as a program or as a module."""
    module = kind.__module__
    main = sys.modules.get("__main__")
    if module == "__main__" and main is not None:
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{kind.__qualname__}"


class BaseSerde(ABC):
    """The base of serdes, those of your own too: implement ``serialize`` and ``deserialize``.

    >>> class Pair(BaseSerde):
    ...     def serialize(self, value):
    ...         return None if value is None else "|".join(value).encode()
    ...     def deserialize(self, data):
    ...         return None if data is None else tuple(data.decode().split("|"))
    >>> Pair().serialize(("a", "b"))
    b'a|b'

    Two serdes are equal if their classes and names are; one with parameters has them in its ``name``. Override
    ``encode`` and ``decode`` where columns can be converted faster than row by row.
    """

    few_by_row = True  # whether a few values take less time one by one than by `encode`

    @property
    def name(self) -> str:
        """The name that the stored plan knows the serde by; by default that of the class."""
        return qualified_name(type(self))

    @abstractmethod
    def serialize(self, value: Any) -> bytes | None:
        """Encode one value; raise any exception for one that does not fit."""

    @abstractmethod
    def deserialize(self, data: bytes | None) -> Any:
        """Decode the bytes of one value; raise any exception for bytes that do not fit."""

    def encode(self, column: Column) -> pa.Array:
        """Encode a column, row by row."""
        return bytes_column(self.serialize_rows(column.items()))

    def decode(self, data: pa.Array) -> Column:
        """Decode a column, row by row."""
        return Column.of_items(self.deserialize_rows(large_binary(data).to_pylist()))

    def encode_few(self, column: Column) -> list[bytes | None]:
        """Encode a column of few rows, if `few_by_row`."""
        return self.serialize_rows(column.items())

    def decode_rows(self, rows: list[bytes | None]) -> Column:
        """Decode a list of rows as `decode` does a column of them; override it where few rows need no column."""
        return self.decode(bytes_column(rows))

    def serialize_rows(self, items: Sequence[Any]) -> list[bytes | None]:
        """Serialize row by row; the error of a bad row carries its number as ``row``."""
        rows: list[bytes | None] = []
        serialize = self.serialize
        try:
            for item in items:
                rows.append(serialize(item))  # noqa: PERF401 - its length says which row failed
        except SerializationError as error:
            raise self.at_row(error, len(rows)) from error
        return rows

    def deserialize_rows(self, rows: Sequence[bytes | None]) -> list[Any]:
        """Deserialize row by row; the error of a bad row carries its number as ``row``."""
        items: list[Any] = []
        deserialize = self.deserialize
        try:
            for row in rows:
                items.append(deserialize(row))  # noqa: PERF401 - its length says which row failed
        except SerializationError as error:
            raise self.at_row(error, len(items)) from error
        return items

    def at_row(self, error: SerializationError, row: int) -> SerializationError:
        """Return the same error with the number of its row."""
        return SerializationError(f"row {row}: {error.message}", hint=error.hint, **{**error.facts, "row": row})

    def refuse(
        self, value: object, expected: str, cause: BaseException | None = None, *, wrong_type: bool | None = None
    ) -> NoReturn:
        """Raise the error for a value that this serde cannot write; without a cause it is of a wrong type."""
        raise SerializationError(
            f"the {self.name} serde writes {expected}, not {type(value).__name__} {show(value)}",
            hint="Give the operator a serde that fits its values (Consumed, Grouped, Produced, Materialized).",
            serde=self.name,
            wrong_type=cause is None if wrong_type is None else wrong_type,
        ) from cause

    def reject(self, data: bytes, expected: str, cause: BaseException | None = None) -> NoReturn:
        """Raise the error for bytes that this serde cannot read."""
        raise SerializationError(
            f"the {self.name} serde reads {expected}, not {len(data)} bytes {show(data)}",
            hint="Give the topic the serde it was written with, or set deserialization.exception.handler.",
            serde=self.name,
        ) from cause

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BaseSerde) and self.name == other.name

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return f"<serde {self.name}>"


def as_exception(error: BaseException) -> Exception:
    """Return the error itself, or an exception that handlers can take in place of a panic."""
    return error if isinstance(error, Exception) else SerializationError(f"{type(error).__name__}: {error}")


def parts_of(serde: Any) -> Iterator[Any]:
    """Yield a serde and all that it, and the serdes in it, hold."""
    left, seen = [serde], set()
    while left:
        part = left.pop()
        yield part
        if isinstance(part, BaseSerde) and id(part) not in seen:
            seen.add(id(part))
            left += vars(part).values()


def with_parts(serde: Any, predicate: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """Return the serde with its wanted parts changed; the very one if it has none."""
    if predicate(serde):
        return change(serde)
    if not any(map(predicate, parts_of(serde))):
        return serde
    serde_copy = copy.copy(serde)
    for name, inner in vars(serde).items():
        setattr(serde_copy, name, with_parts(inner, predicate, change))
    return serde_copy


def returned_bytes(serde: BaseSerde, data: Any) -> bytes | None:
    """Return what a user's ``serialize`` has returned, as bytes.

    Raises:
        SerializationError: It is something else.
    """
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        serde.refuse(data, "what serialize() returns, which has to be bytes or None")
    return data if data is None or type(data) is bytes else bytes(data)


def are_alike(one: Any, two: Any) -> bool:
    """Return whether two of a user's objects are equal, or of one class with equal attributes."""
    return (
        one is two
        or one == two
        or (type(one) is type(two) and getattr(one, "__dict__", 0) == getattr(two, "__dict__", 1))
    )


FEW = 24
_ENCODE_FEW = BaseSerde.encode_few
_BYTES = {bytes, type(None)}


def encode_rows(serde: Serde[Any], column: Column) -> list[bytes | None]:
    """Return the bytes of a column as ``serde.encode`` does."""
    if len(column) <= FEW and getattr(serde, "few_by_row", False) and isinstance(serde, BaseSerde):
        rows = serde.encode_few(column)
        if _BYTES.issuperset(map(type, rows)):
            return rows
    return to_bytes_list(serde.encode(column))


def encode_only(serde: Serde[Any], column: Column) -> bytes | None:
    """Return the bytes of the only row of a column as ``serde.encode`` does."""
    if type(column) is Column and getattr(type(serde), "encode_few", None) is _ENCODE_FEW and serde.few_by_row:  # type: ignore[attr-defined]
        return _encode_plain(serde, column.items()[0])
    return encode_rows(serde, column)[0]


def _encode_plain(serde: Serde[Any], value: Any) -> bytes | None:
    """Return the bytes of one value, whose serde encodes few values row by row."""
    try:
        data = serde.serialize(value)
    except SerializationError:
        data = ...  # type: ignore[assignment] # the error names the row, below
    if data is None or type(data) is bytes:
        return data
    return encode_rows(serde, Column.of_items([value]))[0]


def encode_one(serde: Serde[Any], value: Any) -> bytes | None:
    """Return the bytes of one value as ``serde.encode`` does: those of a user may come as a bytearray or a text."""
    data: Any = serde.serialize(value)
    return data if data is None or type(data) is bytes else to_bytes_list(bytes_column([data]))[0]


def row_encoder(serde: Serde[Any]) -> Callable[[Any], bytes | None]:
    """Return the function from one value to the bytes that ``serde.encode`` makes of it."""
    if not (isinstance(serde, BaseSerde) and serde.few_by_row):
        return lambda value: encode_only(serde, Column.of_items([value]))
    return partial(_encode_plain, serde)


def row_decoder(serde: Serde[Any]) -> Callable[[bytes | None], Any]:
    """Return the function from the bytes of one value to what ``serde.decode`` makes of them."""
    if not (isinstance(serde, BaseSerde) and serde.few_by_row):
        return lambda data: decode_rows(serde, [data]).items()[0]
    deserialize = serde.deserialize

    def decode(data: bytes | None) -> Any:
        try:
            return deserialize(data)
        except SerializationError:
            return decode_rows(serde, [data]).items()[0]  # raises, and names the row

    return decode


def decode_rows(serde: Serde[Any], rows: Sequence[bytes | None]) -> Column:
    """Return the values of rows as ``serde.decode`` does."""
    if len(rows) <= FEW and isinstance(serde, BaseSerde):
        return serde.decode_rows(list(rows))
    return serde.decode(bytes_column(rows))
