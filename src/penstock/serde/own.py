"""Serdes of users: an object with ``serialize`` and ``deserialize`` is enough; this makes a whole serde of it."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.serde.base import Serde
from penstock.serde.column import Column
from penstock.serde.headers import HeadersSerde
from penstock.serde.rowwise import BaseSerde, are_alike, parts_of, qualified_name, returned_bytes

__all__ = ["OwnSerde", "own_serde", "users_serde"]

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
