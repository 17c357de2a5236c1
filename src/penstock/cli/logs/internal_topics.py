"""Recognition of internal topics by name, for listings only: nothing is deleted by it."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["owner_of"]

_REST = re.compile(r"-(?:.+-(?:changelog|repartition|dataframe)|penstock-.+|.+SUBSCRIPTION-.+-topic)")  # of the name


def owner_of(topic: str, applications: Iterable[str]) -> str | None:
    """Return the application that owns an internal topic; None for other topics.

    >>> owner_of("shop-orders-changelog", ["shop", "shop-orders"]), owner_of("orders-changelog", ["shop"])
    ('shop', None)

    Args:
        topic: The topic's name.
        applications: Groups that have committed offsets; an application's is its ``application.id``.
    """
    owners = [name for name in applications if topic.startswith(name) and _REST.fullmatch(topic[len(name) :])]
    return max(owners, key=len, default=None)
