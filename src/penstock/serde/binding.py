"""Telling serdes what they serve: the topic after which subjects are named, and the application's settings.

Kafka passes the topic with every call; here a serde that wants it is bound once, so that all others pay nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.serde.buffers import cut, join, large_binary
from penstock.serde.rowwise import BaseSerde
from penstock.serde.windowed_serde import SessionWindowedSerde, TimeWindowedSerde

__all__ = ["bound", "configured", "has_schema", "header_frame", "joined", "schema_at_front", "split"]

Headers = tuple[tuple[str, bytes | None], ...]
HEADER_NAMES = {"key": "__key_schema_id", "value": "__value_schema_id"}


def has_schema(serde: Any) -> bool:
    """Whether it is, or holds, a serde with a schema."""
    if hasattr(serde, "for_topic"):
        return True
    return isinstance(serde, BaseSerde) and any(has_schema(inner) for inner in vars(serde).values())


def bound(serde: Any, topic: str, part: str) -> Any:
    """The serde for the keys or values (``part``) of a topic."""
    return _changed(serde, lambda one: one.for_topic(topic, part))


def configured(serde: Any, config: Mapping[str, Any]) -> Any:
    """The serde with an application's settings where it has none of its own."""
    return _changed(serde, lambda one: one.configured(config))


def _changed(serde: Any, change: Callable[[Any], Any]) -> Any:
    if hasattr(serde, "for_topic"):
        return change(serde)
    if not has_schema(serde):
        return serde
    made = copy.copy(serde)
    for name, inner in vars(serde).items():
        if isinstance(inner, BaseSerde):
            setattr(made, name, _changed(inner, change))
    return made


def schema_at_front(serde: Any) -> Any:
    """The serde whose frame is the first thing in the bytes; None if there is none."""
    while isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        serde = serde.inner
    return serde if hasattr(serde, "for_topic") and serde.framing != "none" else None


def joined(data: pa.Array, headers: Sequence[Headers], part: str) -> tuple[pa.Array, list[Headers]]:
    """The bytes with the frames that headers hold before them, and the other headers."""
    name = HEADER_NAMES[part]
    frames = [next((value for key, value in reversed(one) if key == name), None) for one in headers]
    if not any(frames):
        return data, list(headers)
    before = pa.array([frame or b"" for frame in frames], pa.large_binary())
    rest = [tuple(pair for pair in one if pair[0] != name) for one in headers]
    return join(before, large_binary(data)), rest


def header_frame(serde: Any) -> bytes | None:
    """What goes into the header of each record; None where the frame stays before the value."""
    found = schema_at_front(serde)
    return found.write_frame if found is not None and found.framing == "header" else None


def split(data: pa.Array, frame: bytes, headers: Sequence[Headers] | None, part: str) -> tuple[pa.Array, list[Headers]]:
    """The bytes without their frame, and the headers with it; null rows have none."""
    name = HEADER_NAMES[part]
    there = data.is_valid().to_pylist()
    before: Sequence[Headers] = headers if headers is not None else [()] * len(data)
    after = [
        (*(pair for pair in one if pair[0] != name), *(((name, frame),) if present else ()))
        for one, present in zip(before, there, strict=True)
    ]
    return cut(data, len(frame), 0), after
