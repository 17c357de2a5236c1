"""The binding of serdes to their use: the topic after which subjects are named, and the application's settings.

Kafka passes the topic with every call; here a serde that needs it is bound once, so that all others pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.serde.buffers import cut, join, large_binary
from penstock.serde.headers import uses_headers
from penstock.serde.rowwise import BaseSerde, parts_of, with_parts
from penstock.serde.windowed_serde import SessionWindowedSerde, TimeWindowedSerde

if TYPE_CHECKING:
    from penstock.serde.base import Serde

__all__ = [
    "TopicSerdes",
    "ask_again",
    "bound",
    "configured",
    "has_schema",
    "header_frame",
    "joined",
    "schema_at_front",
    "split",
]

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
