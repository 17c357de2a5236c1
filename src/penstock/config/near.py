"""The known name that a mistyped one stands for."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["mistyped"]

_MOST_EDITS = 2
_SHORTEST = 5  # of shorter names, many are two edits apart


def mistyped(name: str, known: Iterable[str]) -> str:
    """Return the known name that is at most two edits away; empty if there is none, or if the name is known.

    An edit adds, drops or replaces a letter, or swaps two neighbours. Capitals and underscores for dots are no edits,
    nor is a last part that is missing if only one known name goes on there.

    >>> mistyped("bootstrap.server", ["bootstrap.servers", "group.id"]), mistyped("GROUP_ID", ["group.id"])
    ('bootstrap.servers', 'group.id')
    >>> mistyped("group.id", ["group.id", "group.is"]), mistyped("my.setting", ["group.id"])
    ('', '')
    """
    names = sorted(set(known))
    if name in names:
        return ""
    plain = name.lower().replace("_", ".")
    if plain in names:
        return plain
    if len(plain) < _SHORTEST:
        return ""
    longer = [each for each in names if each.startswith(f"{plain}.")]
    if len(longer) == 1:
        return longer[0]
    near = [(_edits(plain, each), each) for each in names if abs(len(each) - len(plain)) <= _MOST_EDITS]
    edits, nearest = min(near, default=(_MOST_EDITS + 1, ""))
    return nearest if edits <= _MOST_EDITS else ""


def _edits(one: str, other: str) -> int:
    """Count the edits between two texts."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, its in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]
