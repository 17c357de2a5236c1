"""The common parts of joins: kind, joiner and name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.topology.operations.functions import Function

__all__ = ["Join", "JoinKind", "join_verb"]

JoinKind = Literal["inner", "left", "outer"]
_MAPPED = "(left, right), (key, left, right) or (key, key of the table, left, right)"


@dataclass(frozen=True, slots=True)
class Join:
    """One call of ``join``, ``left_join`` or ``outer_join``."""

    kind: JoinKind
    joiner: Function
    name: str | None

    @classmethod
    def of(cls, kind: JoinKind, joiner: object, name: str | None, *, mapped: bool = False) -> Join:
        """Wrap the joiner, a function of (left, right) or (key, left, right) or an expression.

        Args:
            kind: The kind of join.
            joiner: The joiner.
            name: The name of the join.
            mapped: Whether the joiner may take the key by which the other side was found, behind the record's own.
        """
        allowed, passed = ((2, 3, 4), _MAPPED) if mapped else ((2, 3), "")
        return cls(kind, Function.wrap(joiner, verb=join_verb(kind), allowed=allowed, passed=passed), name)

    @property
    def verb(self) -> str:
        """The name of the verb that was called."""
        return join_verb(self.kind)

    @property
    def is_left(self) -> bool:
        """Whether unmatched records of the left side are joined with None."""
        return self.kind != "inner"


def join_verb(kind: JoinKind) -> str:
    """Return the name of the verb for a kind of join.

    >>> join_verb("left")
    'left_join'
    """
    return "join" if kind == "inner" else f"{kind}_join"
