"""Masking of passwords in displayed texts."""

from __future__ import annotations

import re

__all__ = ["without_passwords"]

_USER_INFO = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]+@")


def without_passwords(text: str) -> str:
    """Replace passwords in URLs by stars.

    >>> without_passwords("http://ann:secret@localhost:8081 does not answer")
    'http://ann:***@localhost:8081 does not answer'
    """
    return _USER_INFO.sub(r"\1:***@", text)
