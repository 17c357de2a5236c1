"""Kafka's generated names: one counter for all of a topology, used up in the same order as in Java."""

from __future__ import annotations

import re

from penstock.errors import TopologyError

__all__ = ["Names", "check_name"]

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str, what: str = "name") -> str:
    """Check a name by Kafka's rule for processors, stores and topics.

    Raises:
        TopologyError: The name is empty, too long, or has a character that a topic name cannot have.
    """
    if not isinstance(name, str):
        raise TopologyError(f"{what} is {name!r}, which is not text", hint="Give a name as text.")
    if not _LEGAL.fullmatch(name) or name in {".", ".."} or len(name) > 249:
        raise TopologyError(
            f"{what} {name!r} is not allowed",
            hint='Use letters, digits, ".", "_" and "-", at most 249 of them: internal topics carry the name.',
        )
    return name


class Names:
    """The counter. A name chosen by the user uses up a number too, so that later names stay the same."""

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str, user_name: str | None = None, suffix: str = "") -> str:
        """Return ``<prefix>0000000007``, or the user's name plus the suffix."""
        generated = f"{prefix}{self._next:010d}"
        self._next += 1
        return generated if user_name is None else check_name(user_name) + suffix

    def store(self, prefix: str) -> str:
        """Return ``<prefix>STATE-STORE-0000000007``."""
        return self.processor(f"{prefix}STATE-STORE-")
