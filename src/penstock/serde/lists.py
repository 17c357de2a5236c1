"""Kafka's ListSerde: a list of values of one type.

0, number of nulls, their positions, number of values, the values that are not null   (values of fixed width)
1, number of values, then for each its length (-1: null) and its bytes                (all others)
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.serde.base import Serde
from penstock.serde.numbers import NumberSerde
from penstock.serde.rowwise import BaseSerde
from penstock.serde.text import UuidSerde

__all__ = ["ListSerde"]

_INT = struct.Struct(">i")


class ListSerde(BaseSerde):
    """Kafka's ``ListSerde`` of an ``ArrayList``."""

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner
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
            rows, end = (self._fixed if data[0] == 0 else self._variable)(data)
        except (struct.error, IndexError) as error:
            self.reject(data, "a list in Kafka's format", error)
        if end != len(data) or data[0] > 1:
            self.reject(data, "a list in Kafka's format")
        return [self.inner.deserialize(row) for row in rows]

    def _fixed(self, data: bytes) -> tuple[list[bytes | None], int]:
        (null_count,) = _INT.unpack_from(data, 1)
        nulls = set(struct.unpack_from(f">{max(null_count, 0)}i", data, 5))
        (count,) = _INT.unpack_from(data, 5 + 4 * len(nulls))
        position = 9 + 4 * len(nulls)
        rows: list[bytes | None] = []
        if count * min(self._width, 1) > len(data) + len(nulls):
            return rows, -1
        for i in range(count):
            if i in nulls:
                rows.append(None)
            else:
                rows.append(data[position : position + self._width])
                position += self._width
        return rows, position

    def _variable(self, data: bytes) -> tuple[list[bytes | None], int]:
        (count,) = _INT.unpack_from(data, 1)
        position = 5
        rows: list[bytes | None] = []
        for _ in range(count):
            (length,) = _INT.unpack_from(data, position)
            position += 4
            if length < 0:
                rows.append(None)
            else:
                rows.append(data[position : position + length])
                position += length
        return rows, position
