"""Versions of plugins, and Maven's ranges of them: ``4.3.1``, ``[4,5)``, ``latest``."""

from __future__ import annotations

import re

from penstock.connect.plugins.registry import Plugin

__all__ = ["in_range", "shown_range", "version_error"]

_RANGE = re.compile(r"([\[(])\s*([^,\[\]()]*?)\s*(?:(,)\s*([^,\[\]()]*?)\s*)?([\])])")


def version_error(plugin: Plugin, required: str) -> str:
    """Return the text about a version that the plugin does not have."""
    return (
        f"Plugin {plugin.java_class} not found that matches the version range {shown_range(required)}, available "
        f"versions: [{', '.join(plugin.version for _ in plugin.kinds)}]"
    )


def shown_range(required: str) -> str:
    """Return a version as a range.

    >>> shown_range("9.9"), shown_range("[1,2)"), shown_range("")
    ('[9.9,9.9]', '[1,2)', '[,]')
    """
    return required if _RANGE.fullmatch(required.strip()) else f"[{required},{required}]"


def in_range(version: str, required: str) -> bool:
    """Return whether a version is the wanted one, or within the wanted range.

    >>> in_range("4.3.1", "[4,5)"), in_range("4.3.1", "4.3.1"), in_range("4.3.1", "(4.3.1,]"), in_range("1.0", "latest")
    (True, True, False, True)
    """
    text = required.strip()
    if text == "latest":
        return True
    match = _RANGE.fullmatch(text)
    if match is None:
        return text == version
    opening, low, comma, high, closing = match.groups()
    if comma is None:
        high = low
    own = _parts(version)
    if low and (own < _parts(low) or (opening == "(" and own == _parts(low))):
        return False
    return not (high and (own > _parts(high) or (closing == ")" and own == _parts(high))))


def _parts(version: str) -> tuple[tuple[int, int | str], ...]:
    """Return what versions are compared by: numbers as numbers, zeros at the end left out."""
    parts: list[tuple[int, int | str]] = [
        (1, int(part)) if part.isdecimal() else (0, part) for part in re.split(r"[.\-_+]", version) if part
    ]
    while parts and parts[-1] == (1, 0):
        parts.pop()
    return tuple(parts)
