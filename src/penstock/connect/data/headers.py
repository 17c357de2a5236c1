"""Headers of Connect's records: names with a schema and a value, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.serde.data.schema import DataError, Schema
from penstock.serde.data.values import Struct, fits, java_text

__all__ = ["Header", "Headers"]


@dataclass(frozen=True, slots=True)
class Header:
    """One header. A struct's own schema is the header's, if no other is given."""

    key: str
    value: Any = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.schema is None and isinstance(self.value, Struct):
            object.__setattr__(self, "schema", self.value.schema)

    def __str__(self) -> str:
        schema = "null" if self.schema is None else str(self.schema)
        return f"ConnectHeader(key={self.key}, value={java_text(self.value, self.schema)}, schema={schema})"


class Headers:
    """The headers of a record: never changed in place, each method makes new ones. Kafka's ``ConnectHeaders``.

    Example:
        >>> headers = Headers().add("a", 1).add("b", 2).add("a", 3)
        >>> headers.last("a").value, [header.value for header in headers.without(["a"])]
        (3, [2])
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self._headers = tuple(headers)

    def add(self, key: str, value: Any = None, schema: Schema | None = None) -> Headers:
        """Return the headers with one more at the end.

        Raises:
            DataError: The value does not fit its schema.
        """
        if schema is not None:
            if value is None and not schema.optional:
                raise DataError(f"A null value requires an optional schema but was {schema}")
            if value is not None and not fits(schema, value):
                raise DataError(f"The value {java_text(value)} is not compatible with the schema {schema}")
        return Headers((*self._headers, Header(key, value, schema)))

    def without(self, keys: Iterable[str]) -> Headers:
        """Return the headers that have none of these names."""
        dropped = frozenset(keys)
        return Headers(header for header in self._headers if header.key not in dropped)

    def changed(self, change: Callable[[Header], Header | None]) -> Headers:
        """Return each header as a function makes it; None drops it."""
        headers = (change(header) for header in self._headers)
        return Headers(header for header in headers if header is not None)

    def last(self, key: str) -> Header | None:
        """Return the last header of a name."""
        return next((header for header in reversed(self._headers) if header.key == key), None)

    def all(self, key: str) -> list[Header]:
        """Return all headers of a name, in order."""
        return [header for header in self._headers if header.key == key]

    def __iter__(self) -> Iterator[Header]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._headers == other._headers

    def __hash__(self) -> int:
        return hash(tuple(header.key for header in self._headers))

    def __repr__(self) -> str:
        shown = f"[{', '.join(map(str, self._headers))}]" if self._headers else ""
        return f"ConnectHeaders(headers={shown})"
