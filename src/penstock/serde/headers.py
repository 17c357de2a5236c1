"""Serdes that read and write record headers: Kafka's ``Serializer.serialize(topic, headers, data)``.

Everything that works with serdes passes a value or bytes alone. A task keeps the headers of the record that it works on
in one place, `CurrentHeaders`, where the serdes of that task find them; all other serdes pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from penstock.base.java_names import with_java_names
from penstock.errors import SerializationError
from penstock.serde.rowwise import BaseSerde, are_alike, parts_of, qualified_name, returned_bytes, show, with_parts

__all__ = ["CurrentHeaders", "HeadersSerde", "RecordHeaders", "current_of", "in_task", "plain_headers", "uses_headers"]

Header = tuple[str, bytes | None]


@with_java_names
class RecordHeaders:
    """The headers of a record as a serde gets them, in order; Kafka's ``RecordHeaders``.

    What a serializer adds stays with the record.

    >>> headers = RecordHeaders([("trace", b"1")])
    >>> headers.add("trace", b"2").last("trace")
    b'2'
    >>> list(headers.remove("trace").add("type", b"order"))
    [('type', b'order')]
    """

    __slots__ = ("_pairs",)

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self._pairs: list[Header] = list(headers)

    def add(self, name: str, value: bytes | None) -> Self:
        """Add a header behind all others; a name may be there several times."""
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes | bytearray | memoryview)):
            raise SerializationError(
                f"a serde adds the header {show(name)} with the value {show(value)}",
                hint="The name of a header is a str, its value bytes or None.",
            )
        self._pairs.append((name, value if value is None else bytes(value)))
        return self

    def remove(self, name: str) -> Self:
        """Remove all headers of a name."""
        self._pairs = [pair for pair in self._pairs if pair[0] != name]
        return self

    def last(self, name: str) -> bytes | None:
        """Return the value of the last header of a name, None if there is none; Kafka's ``lastHeader``."""
        return next((value for key, value in reversed(self._pairs) if key == name), None)

    def values(self, name: str) -> list[bytes | None]:
        """Return the values of all headers of a name; Kafka's ``headers(key)``."""
        return [value for key, value in self._pairs if key == name]

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self._pairs)

    def __iter__(self) -> Iterator[Header]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return f"RecordHeaders({self._pairs!r})"


def plain_headers(headers: Any) -> tuple[Header, ...]:
    """Return headers as they are now, which nothing changes any more."""
    return headers if type(headers) is tuple else tuple(headers)


class CurrentHeaders:
    """The headers of the record that a task works on; Kafka's ``context.headers()``.

    Attributes:
        headers: What the serdes of the task read and add to.
    """

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers = RecordHeaders()

    @contextmanager
    def at(self, headers: RecordHeaders) -> Iterator[RecordHeaders]:
        """Work with these headers for a while."""
        before, self.headers = self.headers, headers
        try:
            yield headers
        finally:
            self.headers = before


class HeadersSerde(BaseSerde):
    """A user's object whose methods take topic, headers and data; one of the two may take the data alone.

    Null stays null: the methods are not called for it.

    Args:
        inner: The object.
        takes_headers: Whether ``serialize`` and ``deserialize`` take all three.
    """

    framing = "none"  # as serdes with a schema have it, which are bound to topics as well

    def __init__(self, inner: Any, takes_headers: tuple[bool, bool]) -> None:
        self.inner = inner
        self.topic: str | None = None
        self._takes_headers = takes_headers
        self._current: CurrentHeaders | None = None
        self._sees_headers = True
        self._name = getattr(inner, "name", None) or qualified_name(type(inner))

    @property
    def name(self) -> str:
        return self._name

    def for_topic(self, topic: str, part: str) -> HeadersSerde:
        """Return this serde for the keys or values of a topic, whose name its methods get."""
        inner = self.inner.for_topic(topic, part) if hasattr(self.inner, "for_topic") else self.inner
        return self._with(topic=topic, inner=inner)

    def configured(self, config: Mapping[str, Any]) -> HeadersSerde:
        """Return this serde with an application's settings, if the object takes any."""
        return self._with(inner=self.inner.configured(config)) if hasattr(self.inner, "configured") else self

    def inside(self) -> HeadersSerde:
        """Return this serde for the parts of a list, which have no headers, as in Kafka."""
        return self._with(_sees_headers=False)

    def in_task(self, current: CurrentHeaders) -> HeadersSerde:
        """Return this serde with the place where a task keeps the present headers."""
        return self._with(_current=current) if self._sees_headers else self

    @property
    def current(self) -> CurrentHeaders | None:
        """Where the headers are that this serde gets; None: there are none."""
        return self._current

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        takes, method = self._takes_headers[0], self.inner.serialize
        return returned_bytes(self, method(self.topic or "", self._headers(), value) if takes else method(value))

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        takes, method = self._takes_headers[1], self.inner.deserialize
        return method(self.topic or "", self._headers(), data) if takes else method(data)

    def _headers(self) -> RecordHeaders:
        return RecordHeaders() if self._current is None else self._current.headers

    def _with(self, **changes: Any) -> HeadersSerde:
        changed = object.__new__(type(self))  # not copy(): that goes by the pickled state
        vars(changed).update({**vars(self), **changes})
        return changed

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_current": None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadersSerde) or self.name != other.name or self.topic != other.topic:
            return False
        return are_alike(self.inner, other.inner)

    def __hash__(self) -> int:
        return hash((type(self), self.name))


def uses_headers(serde: Any) -> bool:
    """Return whether it is, or holds, a serde that reads or writes record headers."""
    return any(map(_is_headers_serde, parts_of(serde)))


def in_task(serde: Any, current: CurrentHeaders) -> Any:
    """Return the serde with the place where a task keeps the present headers, for all that it holds."""
    return with_parts(serde, _is_headers_serde, lambda one: one.in_task(current))


def current_of(serde: Any) -> CurrentHeaders | None:
    """Return where the headers are that a serde gets; None if it looks at none."""
    places = (part.current for part in parts_of(serde) if isinstance(part, HeadersSerde))
    return next((place for place in places if place is not None), None)


def _is_headers_serde(part: Any) -> bool:
    return isinstance(part, HeadersSerde)
