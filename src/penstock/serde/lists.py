"""Kafka's ListSerde: a list of values of one type.

0, number of nulls, their positions, number of values, the values that are not null   (values of fixed width)
1, number of values, then for each its length (-1: null) and its bytes                (all others)
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.serde.base import Serde
from penstock.serde.headers import HeadersSerde
from penstock.serde.numbers import NumberSerde
from penstock.serde.rowwise import BaseSerde
from penstock.serde.text import UuidSerde

__all__ = ["ListSerde"]

_INT = struct.Struct(">i")
_FIXED_HEAD = 9  # kind, number of nulls, number of values
_VARIABLE_HEAD = 5


class ListSerde(BaseSerde):
    """Kafka's ``ListSerde`` of an ``ArrayList``."""

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner.inside() if isinstance(inner, HeadersSerde) else inner
        self._width = inner.width if isinstance(inner, NumberSerde | UuidSerde) else 0

    @property
    def name(self) -> str:
        return f"list<{self.inner.name}>"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            self.refuse(value, "lists")
        rows = [self.inner.serialize(item) for item in value]
        if self._width:
            nulls = [i for i, row in enumerate(rows) if row is None]
            head = struct.pack(f">b{len(nulls) + 2}i", 0, len(nulls), *nulls, len(rows))
            return head + b"".join(row for row in rows if row is not None)
        out = [b"\x01", _INT.pack(len(rows))]
        for row in rows:
            out.extend((_INT.pack(-1),) if row is None else (_INT.pack(len(row)), row))
        return b"".join(out)

    def deserialize(self, data: bytes | None) -> list[Any] | None:
        if data is None:
            return None
        try:
            rows = (self._fixed if self._width and data[:1] == b"\0" else self._variable)(data)
        except (struct.error, ValueError) as error:
            self.reject(data, "a list in Kafka's format", error)
        return [self.inner.deserialize(row) for row in rows]

    def _fixed(self, data: bytes) -> list[bytes | None]:
        (null_count,) = _INT.unpack_from(data, 1)
        if not 0 <= 4 * null_count <= len(data) - _FIXED_HEAD:
            raise ValueError("a number of nulls that cannot be")
        nulls = set(struct.unpack_from(f">{null_count}i", data, 5))
        (count,) = _INT.unpack_from(data, 5 + 4 * null_count)
        position = _FIXED_HEAD + 4 * null_count
        if len(nulls) != null_count or (count - null_count) * self._width != len(data) - position:
            raise ValueError("a number of values that does not fill it")
        if nulls and not (min(nulls) >= 0 and max(nulls) < count):
            raise ValueError("nulls outside of the list")
        rows: list[bytes | None] = []
        for i in range(count):
            if i in nulls:
                rows.append(None)
            else:
                rows.append(data[position : position + self._width])
                position += self._width
        return rows

    def _variable(self, data: bytes) -> list[bytes | None]:
        (count,) = _INT.unpack_from(data, 1)
        if data[0] != 1 or not 0 <= 4 * count <= len(data) - _VARIABLE_HEAD:
            raise ValueError("a number of values that cannot be")
        position = _VARIABLE_HEAD
        rows: list[bytes | None] = []
        for _ in range(count):
            (length,) = _INT.unpack_from(data, position)
            position += 4
            if length < -1 or position + length > len(data):
                raise ValueError("a value that is longer than the list")
            rows.append(None if length < 0 else data[position : position + length])
            position += max(length, 0)
        if position != len(data):
            raise ValueError("bytes after the list")
        return rows
