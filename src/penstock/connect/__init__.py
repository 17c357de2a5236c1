"""Kafka Connect: connectors that write to topics and read from them, their workers, and the mirror.

`source`, `sink` and `transform` make connectors and transformations of functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.connect.functions import Record, sink, source, transform

__all__ = ["Record", "sink", "source", "transform"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: the parts below need none of it."""
    if name in __all__:
        from penstock.connect import functions

        return getattr(functions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
