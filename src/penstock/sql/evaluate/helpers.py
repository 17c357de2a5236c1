"""The functions that generated code calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from penstock.sql.types import SqlValueError

__all__ = ["contains", "element", "like", "like_pattern", "no_condition"]

ANY = "[^\n\r\u0085\u2028\u2029]"  # Java's dot: no line breaks


def element(values: list[Any] | None, index: int | None) -> Any:
    """Return an element of an array, counted from one or from the end; null where there is none.

    >>> element(["a", "b"], 1), element(["a", "b"], -1), element(["a"], 0), element(None, 1)
    ('a', 'b', None, None)
    """
    if values is None:
        return None
    if index is None:
        raise SqlValueError("the index of an array is null")
    if index == 0 or abs(index) > len(values):
        return None
    return values[index - 1] if index > 0 else values[index]


def contains(items: Sequence[Any], value: Any) -> bool:
    """Return whether a value that is not null is among the items."""
    return value is not None and value in items


def no_condition() -> NoReturn:
    """Fail: a condition is null where true or false is needed."""
    raise SqlValueError("a condition is null")


def like(value: str | None, pattern: str | None, escape: str | None) -> bool:
    """Return whether a text is like a pattern that is known only now."""
    if value is None or pattern is None:
        raise SqlValueError("an operand of LIKE is null")
    return like_pattern(pattern, escape).fullmatch(value) is not None


@lru_cache(maxsize=512)
def like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    r"""Return the regular expression of a LIKE pattern, for a full match; ``%`` and ``_`` match no line breaks.

    >>> bool(like_pattern("a!%b%", "!").fullmatch("a%bc")), bool(like_pattern("a%", None).fullmatch("a\n"))
    (True, False)
    """
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts.append(re.escape(next(letters, "")))
        elif letter == "%":
            parts.append(f"{ANY}*")
        elif letter == "_":
            parts.append(ANY)
        else:
            parts.append(re.escape(letter))
    return re.compile("".join(parts))
