"""Serdes as users pass them, and as far as they are known along a chain of verbs."""

from __future__ import annotations

from typing import Any

from penstock.errors import TopologyError
from penstock.topology.configured import DefaultWindowed, UntypedDefault

__all__ = ["UNKNOWN", "common", "for_internal", "for_store", "for_topic", "resolve", "windowed"]


class _Unknown:
    """The serde after a verb that changed the type and named no serde."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def resolve(serde: Any) -> Any:
    """Return the serde for an object, a name or a Python type; None stays None, the application's default.

    Raises:
        ConfigError: There is no serde of that name, or the object lacks what a serde needs.
        TopologyError: It is something else altogether.
    """
    if serde is None or serde is UNKNOWN or isinstance(serde, DefaultWindowed):
        return serde
    if isinstance(serde, str | type) or hasattr(serde, "serialize") or hasattr(serde, "deserialize"):
        from penstock.serde import Serdes

        return Serdes.of(serde)
    from penstock.serde.models import is_model

    if is_model(serde):  # such as Order | None
        from penstock.serde import Serdes

        return Serdes.of(serde)
    raise TopologyError(
        f"{serde!r} is not a serde",
        hint='Give a serde such as Serdes.json(), a name such as "json", or a Python type such as str.',
    )


def windowed(inner: Any, size_ms: int | None) -> Any:
    """Return the serde of a windowed key, or of a session's key if there is no size."""
    wrapper = DefaultWindowed(size_ms)
    return wrapper if inner is None or inner is UNKNOWN else wrapper.over(inner)


def for_topic(serde: Any) -> Any:
    """Return the serde for a user's topic: the default serde for an unknown type, as in Kafka."""
    return None if serde is UNKNOWN else serde


def for_internal(serde: Any) -> Any:
    """Return the serde for the values of a repartition topic: for an unknown type a self-describing format."""
    if serde is UNKNOWN:
        from penstock.serde import Serdes

        return Serdes.auto()
    return serde


def for_store(serde: Any) -> Any:
    """Return the serde for the values of a store: the default serde for an unknown type, as in Kafka."""
    return UntypedDefault() if serde is UNKNOWN else serde


def common(left: Any, right: Any) -> Any:
    """Return the common serde of two merged streams, or UNKNOWN."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    return left if left == right else UNKNOWN
