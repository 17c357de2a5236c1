"""Shell completion of option values."""

from __future__ import annotations

__all__ = ["serde_names"]

_WINDOW_SIZES_MS = (60_000, 3_600_000, 86_400_000)


def serde_names(incomplete: str) -> list[str]:
    """Complete the name of a serde; of a nested one first the outer name, then the inner one.

    >>> serde_names("lo"), serde_names("list<lo")
    (['long'], ['list<long>'])
    >>> serde_names("windowed<st")[0]
    'windowed<string,60000>'
    """
    from penstock.serde.serdes import NESTED_NAMES, SIMPLE_NAMES

    outer, bracket, inner = incomplete.partition("<")
    if not bracket:
        names = [*SIMPLE_NAMES, *(f"{name}<" for name in NESTED_NAMES)]
        return [name for name in names if name.startswith(incomplete)]
    if outer not in NESTED_NAMES:
        return []
    insides = [name for name in SIMPLE_NAMES if name.startswith(inner)]
    if outer in ("windowed", "time_windowed"):
        return [f"{outer}<{name},{size}>" for name in insides for size in _WINDOW_SIZES_MS]
    return [f"{outer}<{name}>" for name in insides]
