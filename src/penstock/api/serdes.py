"""Serdes as users give them, and what is known of them along a chain of verbs."""

from __future__ import annotations

from typing import Any

from penstock.errors import TopologyError
from penstock.topology.default_serdes import DefaultWindowed

__all__ = ["UNKNOWN", "common", "for_internal", "for_topic", "resolve", "windowed"]


class _Unknown:
    """The values' type has changed and nobody has said how to write them."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def resolve(serde: Any) -> Any:
    """A serde from an object or a name; None stays None: the application's default.

    Raises:
        TopologyError: There is no serde of that name.
    """
    if serde is None or serde is UNKNOWN or isinstance(serde, DefaultWindowed):
        return serde
    if isinstance(serde, str):
        from penstock.serde import Serdes

        return Serdes.of(serde)
    if not hasattr(serde, "serialize"):
        raise TopologyError(
            f"{serde!r} is no serde", hint='Give a serde such as Serdes.json(), or a name such as "json".'
        )
    return serde


def windowed(inner: Any, size_ms: int | None) -> Any:
    """The serde of a windowed key; without a size that of a session."""
    wrapper = DefaultWindowed(size_ms)
    return wrapper if inner is None or inner is UNKNOWN else wrapper.over(inner)


def for_topic(serde: Any) -> Any:
    """What a user's topic gets: an unknown type is written with the default serde, as in Kafka."""
    return None if serde is UNKNOWN else serde


def for_internal(serde: Any) -> Any:
    """What the values of a store or a repartition topic get: an unknown type describes itself."""
    if serde is UNKNOWN:
        from penstock.serde import Serdes

        return Serdes.auto()
    return serde


def common(left: Any, right: Any) -> Any:
    """The serde of two merged streams: that of both, or unknown."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    return left if left == right else UNKNOWN
