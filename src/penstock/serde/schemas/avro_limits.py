"""The bounds of an Avro value before a reader takes it: fastavro recurses in C, and items of no bytes cost it memory.

Most schemas bound both: they do not contain themselves, and their repeated items take at least a byte each. Values of
the others are checked first, without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.base.json_depth import MOST_DEPTH
from penstock.serde.formats.avro import ParsedSchema

__all__ = ["check_value", "is_bounded"]

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
