"""A function that returns tokens, as a user writes one for ``penstock.kafka.identity``."""

from __future__ import annotations

import time

from token_endpoint import unsigned

__all__ = ["nothing", "token"]

_LIFETIME_S = 300.0


def token() -> tuple[str, float]:
    """A token of the user "robot", with its end."""
    return unsigned("robot", _LIFETIME_S), time.time() + _LIFETIME_S


def nothing() -> None:
    """No token."""
