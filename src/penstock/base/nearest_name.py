"""The known name that somebody probably meant who wrote another one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "mistyped", "nearest_names", "question"]

_LEAST_ALIKE = 0.65  # of difflib's ratio: "aa" and "a" have 0.67, SELECT and LEFT 0.6
_MOST_LETTERS = 100  # longer names are not slips of the pen, and comparing them takes long
_MOST_EDITS = 2
_SHORTEST = 5  # of shorter names, many are two edits apart


def nearest_names(name: str, vocabulary: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that are most like another one, the nearest first.

    Small and capital letters are the same, and so are dots and underscores.

    >>> nearest_names("UCSE", ["ucase", "lcase", "trim"]), nearest_names("orders", ["users-2"])
    (['ucase'], [])
    """
    if len(name) > _MOST_LETTERS:
        return []
    others = sorted(set(vocabulary) - {name})
    same = [each for each in others if _letters(each) == _letters(name)]
    if same or len(name) == 1:  # any other letter would do as well
        return same[:most]
    by_letters = {_letters(each): each for each in others}
    return [by_letters[each] for each in get_close_matches(_letters(name), by_letters, most, _LEAST_ALIKE)]


def did_you_mean(name: str, vocabulary: Iterable[str], most: int = 1) -> str:
    """Return the question whether a known name was meant; empty if none is like it.

    >>> did_you_mean("clics", ["clicks", "orders"]), did_you_mean("payments", ["clicks"])
    ('Did you mean clicks?', '')
    """
    return question(*nearest_names(name, vocabulary, most))


def question(*names: str) -> str:
    """Return the question whether one of these names was meant; empty names do not count.

    >>> question("clicks", "orders"), question("")
    ('Did you mean clicks or orders?', '')
    """
    meant = [name for name in names if name]
    return f"Did you mean {' or '.join(meant)}?" if meant else ""


def mistyped(name: str, vocabulary: Iterable[str]) -> str:
    """Return the known name that is at most two edits away; empty if there is none, or if the name is known.

    An edit adds, drops or replaces a letter, or swaps two neighbours. Capitals and underscores for dots are not edits,
    nor is a last part that is missing if only one known name goes on there.

    >>> mistyped("bootstrap.server", ["bootstrap.servers", "group.id"]), mistyped("GROUP_ID", ["group.id"])
    ('bootstrap.servers', 'group.id')
    >>> mistyped("group.id", ["group.id", "group.is"]), mistyped("my.setting", ["group.id"])
    ('', '')
    """
    names = sorted(set(vocabulary))
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


def _letters(name: str) -> str:
    return name.casefold().replace("_", ".")


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
