"""Settings that share a prefix, such as ``producer.`` or ``transforms.hide.``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["behind_prefix"]

V = TypeVar("V")


def behind_prefix(settings: Mapping[str, V], prefix: str) -> dict[str, V]:
    """Return the settings whose names begin with a prefix, without it.

    >>> behind_prefix({"spark.option.path": "in", "topic": "t"}, "spark.option.")
    {'path': 'in'}
    """
    return {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
