"""The bytes of values with schemas: frames of ids, paths of Protobuf messages, bounds of Avro values.

Connect's converters share them with the serdes, and a worker of connectors does not load Polars, as serdes do.

fastavro recurses in C, and items of no bytes cost it memory. Most schemas bound both: they do not contain themselves,
and their repeated items take at least a byte each. Values of the others are checked first, without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.base.escapes import show
from penstock.base.json_depth import MOST_DEPTH
from penstock.base.varints import INT_BYTES, read_signed, signed
from penstock.errors import SerializationError
from penstock.serde.formats.avro import ParsedSchema

__all__ = [
    "BY_GUID",
    "BY_ID",
    "check_value",
    "frame",
    "index_bytes",
    "indexes_of",
    "is_bounded",
    "is_plain",
    "plain_bytes",
    "plain_value",
    "read_frame",
    "read_indexes",
    "skip_indexes",
]

BY_ID, BY_GUID = 0, 1


def frame(schema_id: int | str) -> bytes:
    """Return the frame of an id (number) or GUID (text)."""
    if isinstance(schema_id, int):
        return b"\x00" + schema_id.to_bytes(4, "big")
    return b"\x01" + UUID(schema_id).bytes


def read_frame(data: bytes, serde: str) -> tuple[int | str, int]:
    """Return the id or GUID, and the start of the value.

    Raises:
        SerializationError: There is no frame.
    """
    if len(data) >= 5 and data[0] == BY_ID:
        return int.from_bytes(data[1:5], "big"), 5
    if len(data) >= 17 and data[0] == BY_GUID:
        return str(UUID(bytes=data[1:17])), 17
    raise SerializationError(
        f"the {serde} serde reads a magic byte, a schema id and a value, not {len(data)} bytes {show(data)}"
        f"{_guess(data)}",
        hint="Give the topic the serde it was written with, or set deserialization.exception.handler.",
        serde=serde,
    )


def _guess(data: bytes) -> str:
    """Return a guess of what such bytes are."""
    if data[:1] in (b"{", b"["):
        return ": this looks like plain JSON, written without a registry (Serdes.json())"
    if data[:1] in (b"\x00", b"\x01"):
        return ": it is cut short"
    if data and data.isascii():
        return ": this looks like plain text (Serdes.string())"
    return f": it begins with byte {data[0]}, not 0 or 1" if data else ": there are no bytes"


def indexes_of(descriptor: Any) -> list[int]:
    """Return the message's place in its file: its number, or those of the messages around it and its own."""
    if descriptor.containing_type is None:
        return [list(descriptor.file.message_types_by_name.values()).index(descriptor)]
    around = descriptor.containing_type
    return [*indexes_of(around), [inner.name for inner in around.nested_types].index(descriptor.name)]


def index_bytes(indexes: list[int]) -> bytes:
    """Return zigzag varints: how many, then each; the usual [0] is one zero."""
    return b"\x00" if indexes == [0] else b"".join(map(signed, (len(indexes), *indexes)))


def skip_indexes(data: bytes, start: int) -> int:
    """Return the end of the path; -1 if it is malformed."""
    try:
        count, at = read_signed(data, start, INT_BYTES)
        if not 0 <= count <= len(data):
            return -1
        for _ in range(count):
            _, at = read_signed(data, at, INT_BYTES)
    except (IndexError, ValueError):
        return -1
    return at


def read_indexes(path: bytes) -> list[int]:
    """Return the numbers of a path, whose end `skip_indexes` has found."""
    count, at = read_signed(path, 0, INT_BYTES)
    indexes = []
    for _ in range(count):
        number, at = read_signed(path, at, INT_BYTES)
        indexes.append(number)
    return indexes or [0]


def is_plain(schema: Any) -> bool:
    """Return whether a schema is that of bytes, with or without a logical type."""
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def plain_bytes(value: Any, schema: Any) -> bytes:
    """Return the bytes of a value: itself, or the unscaled number of a decimal.

    Raises:
        TypeError: It is neither bytes nor a decimal, where the schema has decimals.
        ValueError: The decimal has more digits behind the point, or in all, than the schema.

    >>> plain_bytes(Decimal("12.30"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}).hex()
    '04ce'
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Decimal) or not _is_decimal(schema):
        raise TypeError(f"{type(value).__name__} instead of bytes")
    sign, digits, exponent = value.as_tuple()
    scale, precision = schema.get("scale", 0), schema["precision"]
    zeros = scale + exponent if isinstance(exponent, int) else -1
    wrong = f"{value} is not a decimal of {precision} digits, {scale} of them after the point"
    if not 0 <= zeros <= precision + scale:
        raise ValueError(wrong)
    number = int("".join(map(str, digits))) * 10**zeros * (-1 if sign else 1)
    if abs(number) >= 10**precision:
        raise ValueError(wrong)
    encoded: bytes = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    return encoded


def plain_value(data: bytes, schema: Any) -> Any:
    """Return the value of bytes: themselves, or a decimal.

    >>> plain_value(bytes.fromhex("04ce"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    Decimal('12.30')
    """
    if not _is_decimal(schema):
        return data
    number = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -schema.get("scale", 0)))


def _is_decimal(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("logicalType") == "decimal"


_MOST_EMPTY_ITEMS = 10_000  # of one array
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MOST_VARINT = 10


def is_bounded(parsed: ParsedSchema) -> bool:
    """Return whether the bytes of a value bound its depth and its size."""
    return _bounded(parsed.schema, parsed, ())


def _bounded(schema: Any, parsed: ParsedSchema, above: tuple[str, ...]) -> bool:
    kind, resolved = parsed.type_of(schema)
    if kind == "union":
        return all(_bounded(branch, parsed, above) for branch in resolved)
    if kind == "record":
        if resolved["name"] in above:
            return False
        return all(_bounded(field["type"], parsed, (*above, resolved["name"])) for field in resolved["fields"])
    if kind == "array":
        return _takes_bytes(resolved["items"], parsed) and _bounded(resolved["items"], parsed, above)
    if kind == "map":
        return _bounded(resolved["values"], parsed, above)
    return True


def _takes_bytes(schema: Any, parsed: ParsedSchema) -> bool:
    """Return whether each value takes at least a byte; called only for schemas that do not contain themselves."""
    kind, resolved = parsed.type_of(schema)
    if kind == "record":
        return any(parsed.type_of(field["type"])[0] not in ("record", "null", "fixed") for field in resolved["fields"])
    return kind != "null" and not (kind == "fixed" and resolved["size"] == 0)


def check_value(data: bytes, start: int, parsed: ParsedSchema) -> None:
    """Go through a value without building it.

    Raises:
        ValueError: It is nested too deep, repeats too many items of no bytes, or is cut short.
    """
    walk = _Walk(data, start, parsed)
    waiting: list[Iterator[Any]] = [iter((parsed.schema,))]
    while waiting:
        schema = next(waiting[-1], walk)
        if schema is walk:  # nothing is left on this level
            waiting.pop()
            continue
        inner = walk.step(schema)
        if inner is not None:
            waiting.append(inner)
            if len(waiting) > MOST_DEPTH:
                raise ValueError(f"a value nested deeper than {MOST_DEPTH}")


class _Walk:
    """A place in the bytes of a value."""

    def __init__(self, data: bytes, at: int, parsed: ParsedSchema) -> None:
        self._data = data
        self._at = at
        self._parsed = parsed

    def step(self, schema: Any) -> Iterator[Any] | None:
        """Pass a value, or return the schemas of the values in it."""
        kind, resolved = self._parsed.type_of(schema)
        if kind == "record":
            return (field["type"] for field in resolved["fields"])
        if kind == "union":
            number = self._long()
            if not 0 <= number < len(resolved):
                raise ValueError("a union branch that its schema lacks")
            return iter((resolved[number],))
        if kind == "array":
            return self._items((resolved["items"],))
        if kind == "map":
            return self._items(("string", resolved["values"]))
        if kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("string", "bytes"):
            self._skip(self._long())
        else:
            self._skip(resolved["size"] if kind == "fixed" else _WIDTHS[kind])
        return None

    def _items(self, schemas: tuple[Any, ...]) -> Iterator[Any]:
        empty = 0
        while count := self._long():
            if count < 0:  # the block's size follows
                count = -count
                self._long()
            for _ in range(count):
                before = self._at
                yield from schemas
                empty += self._at == before
                if empty > _MOST_EMPTY_ITEMS:
                    raise ValueError(f"more than {_MOST_EMPTY_ITEMS:,} items of no bytes")

    def _long(self) -> int:
        number = 0
        for shift in range(0, 7 * _MOST_VARINT, 7):
            byte = self._data[self._at : self._at + 1]
            if not byte:
                break
            self._at += 1
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise ValueError("a number that does not end")

    def _skip(self, length: int) -> None:
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError("a value that is cut short")
        self._at += length
