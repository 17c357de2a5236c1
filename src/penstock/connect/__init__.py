"""Kafka Connect: connectors that write to topics and read from them, their workers, and the mirror.

`source`, `sink` and `transform` make connectors and transformations of functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.connect.functions import Record, sink, source, transform

__all__ = ["Record", "sink", "source", "transform"]

# Loaded when first used: the parts below need none of it.
__getattr__ = lazy_names(__name__, dict.fromkeys(__all__, "functions"))
