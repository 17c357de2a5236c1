"""What all nodes share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from penstock.sql.parse.tokens import NOWHERE, TextPosition

__all__ = ["Node", "children"]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a statement, as it is written.

    Nodes are equal if they say the same, wherever they stand.

    Attributes:
        at: Where it begins.
    """

    at: TextPosition = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes right below a node, those in tuples included."""
    for part in fields(node):
        waiting = [getattr(node, part.name)] if part.name != "at" else []
        while waiting:
            value = waiting.pop()
            if isinstance(value, Node):
                yield value
            elif isinstance(value, tuple):
                waiting += reversed(value)
