"""The types of a PostgreSQL database, as its catalog has them: those of domains, arrays and enums resolved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TYPE_QUERY", "PgType", "Types", "source_type"]

TYPE_QUERY = """SELECT t.typname::text, t.typtype::text, t.typbasetype::int8, t.typtypmod, t.typelem::int8,
  t.typcategory::text, t.typdelim::text, t.typnotnull, (SELECT array_to_string(array_agg(e.enumlabel ORDER BY
  e.enumsortorder), ',') FROM pg_enum e WHERE e.enumtypid = t.oid) FROM pg_type t WHERE t.oid = {}"""
_MOST_DOMAINS = 100
VECTORS = ("int2vector", "oidvector")  # written as 1 2 3


@dataclass(frozen=True, slots=True)
class PgType:
    """A type that values have: never a domain.

    Attributes:
        number: Its number (oid).
        name: Its name, such as ``int4``.
        kind: ``b`` for base types, ``e`` enums, ``c`` composites, ``r`` and ``m`` ranges, ``p`` pseudo types.
        modifier: Its modifier, such as a length; -1: none.
        element: The type of an array's elements; None: it is not an array.
        delimiter: What stands between the elements of an array of this type.
        labels: The labels of an enum, with commas between them.
        domain: The name of the domain that the column has; None: it has none.
    """

    number: int
    name: str
    kind: str = "b"
    modifier: int = -1
    element: PgType | None = None
    delimiter: str = ","
    labels: str | None = None
    domain: str | None = None


_LENGTHS = {
    "bool": "1", "int2": "5", "int4": "10", "int8": "19", "oid": "10", "float4": "8", "float8": "17", "date": "13",
    "char": "1", "name": "63", "interval": "49",
}  # fmt: skip
_MOST = str((1 << 31) - 1)
_CLOCKS = {"time": 8, "timetz": 14, "timestamp": 22, "timestamptz": 28}
_SERIALS = {"int2": "SMALLSERIAL", "int4": "SERIAL", "int8": "BIGSERIAL"}
_MICROS_DIGITS = 6
_VARIABLE_LENGTH = 131_089


def source_type(kind: PgType, snapshot: str | None = None) -> dict[str, str]:
    """Return the name, the length and the scale of a column's type, as Debezium's parameters have them.

    Args:
        kind: The type.
        snapshot: How a query sees the column: ``serial`` or ``plain``; None: it is the stream's.

    >>> source_type(PgType(1700, "numeric", modifier=(6 << 16 | 2) + 4))
    {'type': 'NUMERIC', 'length': '6', 'scale': '2'}
    """
    element = kind.element or kind
    name, modifier = element.name, element.modifier
    shown = (kind.domain or kind.name).upper()
    if snapshot == "serial" and name in _SERIALS:
        shown = _SERIALS[name]
    length, scale = _LENGTHS.get(name, _MOST), "0"
    if name == "numeric" and modifier < 0:
        return {"type": shown, "length": "0"} if snapshot else _sized(shown, str(_VARIABLE_LENGTH), "0")
    if name == "numeric":
        length, scale = str((modifier - 4) >> 16 & 0xFFFF), str((modifier - 4) & 0xFFFF)
    elif name in ("varchar", "bpchar") and modifier > 0:
        length = str(modifier - 4)
    elif name in ("bit", "varbit") and modifier > 0:
        length = str(modifier)
    elif name in _CLOCKS:
        digits = modifier if 0 <= modifier <= _MICROS_DIGITS else _MICROS_DIGITS
        length = str(_CLOCKS[name] + (digits + 1 if digits > 1 else 3 * digits))
        scale = str(digits)
    elif name == "interval":
        scale = str(_MICROS_DIGITS if modifier < 0 else min(modifier & 0xFFFF, _MICROS_DIGITS))
    elif name in ("float4", "float8"):
        scale = length
    return _sized(shown, length, scale)


def _sized(name: str, length: str, scale: str) -> dict[str, str]:
    return {"type": name, "length": length, "scale": scale}


class Types:
    """Looks types up, each once.

    Args:
        row: The row that a query of the catalog has; None: it has none.
    """

    def __init__(self, row: Callable[[str], Sequence[Any] | None]) -> None:
        self._row = row
        self._rows: dict[int, Sequence[Any] | None] = {}

    def forget(self) -> None:
        """Look all types up anew, as after a change of an enum."""
        self._rows.clear()

    def find(self, number: int, modifier: int = -1) -> PgType:
        """The type of a number and a modifier, as a column has them; one that is unknown has its number as its name."""
        domain: str | None = None
        for _ in range(_MOST_DOMAINS):
            row = self._found(number)
            if row is None:
                return PgType(number, str(number), modifier=modifier, domain=domain)
            name, kind, base, own_modifier, element, category, delimiter, _, labels = row
            if kind != "d":
                break
            domain = domain or name
            modifier = own_modifier if own_modifier >= 0 else modifier
            number = base
        is_array = category == "A" and element != 0 and name not in VECTORS
        inner = self.find(element, modifier) if is_array else None
        return PgType(number, name, kind, modifier, inner, inner.delimiter if inner else delimiter, labels, domain)

    def _found(self, number: int) -> Sequence[Any] | None:
        if number not in self._rows:
            self._rows[number] = self._row(TYPE_QUERY.format(number))
        return self._rows[number]
