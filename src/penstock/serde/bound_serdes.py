"""Serdes in use: with record headers, made of users' objects, bound to a topic and the application's settings.

Everything that works with serdes passes a value or bytes alone. A task keeps the headers of the record that it works on
in one place, `CurrentHeaders`, where the serdes of that task find them; all other serdes pay nothing for it.

Kafka passes the topic with every call; here a serde that needs it is bound once, so that all others pay nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.java_names import with_java_names
from penstock.errors import ConfigError, SerializationError
from penstock.serde.base import BaseSerde, Serde, are_alike, parts_of, qualified_name, returned_bytes, show, with_parts
from penstock.serde.column import Column, cut, join, large_binary
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "CurrentHeaders",
    "HeadersSerde",
    "OwnSerde",
    "RecordHeaders",
    "TopicSerdes",
    "ask_again",
    "bound",
    "configured",
    "current_of",
    "has_schema",
    "header_frame",
    "in_task",
    "joined",
    "own_serde",
    "plain_headers",
    "schema_at_front",
    "split",
    "users_serde",
    "uses_headers",
]

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
    return next((current for current in places if current is not None), None)


def _is_headers_serde(part: Any) -> bool:
    return isinstance(part, HeadersSerde)


_NEEDED = ("serialize", "deserialize")
_BASE = (
    "A serde of your own has serialize(value) and deserialize(data), each with one argument, or with Kafka's three: "
    "(topic, headers, data). Derive it from penstock.serde.BaseSerde, which adds the rest."
)


def own_serde(serde: Any) -> Serde[Any]:
    """Return the serde of a user's object, which may lack a name and the column methods, or take headers.

    Raises:
        ConfigError: One of its two methods is missing or takes other arguments, or its name is not a text.
    """
    kind = type(serde).__name__
    missing = [name for name in _NEEDED if not callable(getattr(serde, name, None))]
    if missing:
        raise ConfigError(f"serde {kind} has no {' and no '.join(f'{name}()' for name in missing)}", hint=_BASE)
    takes_headers = [_takes_headers(kind, name, getattr(serde, name)) for name in _NEEDED]
    own_name = getattr(serde, "name", None)
    if own_name is not None and (not isinstance(own_name, str) or not own_name):
        raise ConfigError(
            f"the name of serde {kind} is {type(own_name).__name__} {own_name!r}",
            hint="Make it a text that stays the same from start to start, or leave it out: then it is the class's.",
        )
    if any(takes_headers) and not isinstance(serde, HeadersSerde):
        return HeadersSerde(serde, (takes_headers[0], takes_headers[1]))
    return serde if isinstance(serde, Serde) else OwnSerde(serde)


def users_serde(serde: Any) -> Any | None:
    """Return a serde itself, or one that it holds, if a user has written it; None if all are those of this package."""
    for part in parts_of(serde):
        is_serde = all(callable(getattr(part, name, None)) for name in _NEEDED)
        if is_serde and (isinstance(part, OwnSerde) or not type(part).__module__.startswith("penstock.")):
            return part
    return None


def _takes_headers(kind: str, name: str, method: Any) -> bool:
    """Return whether a method takes topic, headers and data, as Kafka's do, in place of the data alone."""
    if inspect.iscoroutinefunction(method):
        raise ConfigError(f"{name}() of serde {kind} is async; a serde has to answer at once", hint=_BASE)
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(b"")
    except TypeError as error:
        try:
            signature.bind("", (), b"")
        except TypeError:
            problem = f"{name}() of serde {kind} takes other arguments than one, or topic, headers and data: {error}"
            raise ConfigError(problem, hint=_BASE) from error
        return True
    return False


class OwnSerde(BaseSerde):
    """A user's object as a serde: null stays null, columns go row by row where it has no methods for them.

    Args:
        inner: The object.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._name = getattr(inner, "name", None) or qualified_name(type(inner))
        self.few_by_row = not hasattr(inner, "encode")

    @property
    def name(self) -> str:
        return self._name

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        return returned_bytes(self, self.inner.serialize(value))

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else self.inner.deserialize(data)

    def encode(self, column: Column) -> pa.Array:
        if not hasattr(self.inner, "encode"):
            return super().encode(column)
        data = self.inner.encode(column)
        if not isinstance(data, pa.Array) or len(data) != len(column):
            self.refuse(data, f"what encode() returns, which has to be an Arrow array of {len(column)} values")
        return data

    def decode(self, data: pa.Array) -> Column:
        if not hasattr(self.inner, "decode"):
            return super().decode(data)
        column = self.inner.decode(data)
        if not isinstance(column, Column) or len(column) != len(data):
            self.refuse(column, f"what decode() returns, which has to be a Column of {len(data)} values")
        return column

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnSerde) and self.name == other.name and are_alike(self.inner, other.inner)

    def __hash__(self) -> int:
        return hash((type(self), self.name))


Headers = tuple[tuple[str, bytes | None], ...]
HEADER_NAMES = {"key": "__key_schema_id", "value": "__value_schema_id"}


def has_schema(serde: Any) -> bool:
    """Return whether it is, or holds, a serde with a schema."""
    return any(map(_is_bound, parts_of(serde)))


def _is_bound(part: Any) -> bool:
    """Return whether a serde is one for each topic: its subjects, or what its methods get, are named by that."""
    return hasattr(part, "for_topic")


def bound(serde: Any, topic: str, part: str) -> Any:
    """Return the serde for the keys or values (``part``) of a topic."""
    return with_parts(serde, _is_bound, lambda one: one.for_topic(topic, part))


class TopicSerdes:
    """The serdes of keys and values of a source or a sink, bound to each topic on its first use.

    Args:
        key: The serde of keys.
        value: The serde of values.
        physical_name: Returns the name of a topic in the log, after which subjects are named.
    """

    def __init__(self, key: Serde[Any], value: Serde[Any], physical_name: Callable[[str], str]) -> None:
        self.key = key
        self.value = value
        self.has_schema = has_schema(key) or has_schema(value)
        self.uses_headers = self.has_schema and (uses_headers(key) or uses_headers(value))
        self._physical_name = physical_name
        self._by_topic: dict[str, tuple[Serde[Any], Serde[Any]]] = {}

    def of(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes for a topic; only those with schemas differ from topic to topic."""
        if not self.has_schema:
            return self.key, self.value
        serdes = self._by_topic.get(topic)
        if serdes is None:
            name = self._physical_name(topic)
            serdes = bound(self.key, name, "key"), bound(self.value, name, "value")
            self._by_topic[topic] = serdes
        return serdes


def configured(serde: Any, config: Mapping[str, Any]) -> Any:
    """Return the serde with an application's settings where it has none of its own."""
    return with_parts(serde, _is_bound, lambda one: one.configured(config))


def ask_again(serde: Any) -> None:
    """Let a serde ask its registry once more for schemas that were missing.

    A caller that has fetched records and then finds that a schema is missing knows it for these records: they were
    written after their schemas. Later records may have schemas that were registered since.
    """
    if hasattr(serde, "ask_again"):
        serde.ask_again()
    elif isinstance(serde, BaseSerde):
        for inner in vars(serde).values():
            ask_again(inner)


def schema_at_front(serde: Any) -> Any:
    """Return the serde whose frame is the first part of the bytes; None if there is none."""
    while isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        serde = serde.inner
    return serde if hasattr(serde, "for_topic") and serde.framing != "none" else None


def joined(data: pa.Array, headers: Sequence[Headers], part: str) -> tuple[pa.Array, list[Headers]]:
    """Return the bytes with the frames that headers hold before them, and the other headers."""
    name = HEADER_NAMES[part]
    frames = [next((value for key, value in reversed(one) if key == name), None) for one in headers]
    if not any(frames):
        return data, list(headers)
    before = pa.array([frame or b"" for frame in frames], pa.large_binary())
    rest = [tuple(pair for pair in one if pair[0] != name) for one in headers]
    return join(before, large_binary(data)), rest


def header_frame(serde: Any) -> bytes | None:
    """Return the frame for the header of each record; None where the frame stays before the value."""
    schema_serde = schema_at_front(serde)
    return schema_serde.write_frame if schema_serde is not None and schema_serde.framing == "header" else None


def split(data: pa.Array, frame: bytes, headers: Sequence[Headers] | None, part: str) -> tuple[pa.Array, list[Headers]]:
    """Return the bytes without their frames, and the headers with them; null rows have none.

    Each row has a frame as long as ``frame``, though not always the same: the newest schema of a subject may change.
    """
    name = HEADER_NAMES[part]
    there = data.is_valid().to_pylist()
    before: Sequence[Headers] = headers if headers is not None else [()] * len(data)
    frames = pc.binary_slice(data, 0, len(frame)).to_pylist()
    after = [
        (*(pair for pair in one if pair[0] != name), *(((name, own),) if present else ()))
        for one, own, present in zip(before, frames, there, strict=True)
    ]
    return cut(data, len(frame), 0), after
