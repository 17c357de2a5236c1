"""Functions that hide characters of a text: capitals, small letters, digits and others, each by its own mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unicodedata import category

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["MASKS"]

MASKS = Family("masks")
CHARACTERS = "upper STRING, lower STRING, digit STRING, other STRING"
DEFAULTS = ("X", "x", "n", "-")


KINDS = ("Lu", "Ll", "Nd")  # Unicode's categories of the first three masks


def _hidden(text: str, masks: tuple[str | None, ...]) -> str:
    """Return the text with the mask of each character's kind in its place; None keeps the characters of a kind."""
    wrong = [mask for mask in masks if mask is not None and len(mask) != 1]
    if wrong:
        raise SqlValueError(f"a mask has exactly one character, unlike {wrong[0]!r}")
    *of_kinds, other = masks or DEFAULTS
    by_kind = dict(zip(KINDS, of_kinds, strict=True))
    return "".join(by_kind.get(category(character), other) or character for character in text)


@MASKS.scalar(
    "MASK(text STRING) STRING",
    f"MASK(text STRING, {CHARACTERS}) STRING",
    nulls=True,
    examples=[("MASK('My Test $123')", "'Xx-Xxxx--nnn'"), ("MASK('Ab1!', '*', NULL, '9', NULL)", "'*b9!'")],
)
def mask(text: str | None, *masks: str | None) -> str | None:
    """A text with all characters hidden; a null among the masks keeps characters of its kind."""
    return None if text is None else _hidden(text, masks)


def _declare(name: str, meaning: str, cut: Callable[[str, int], tuple[str, str, str]], result: str) -> None:
    def masked(text: str | None, count: int | None, *masks: str | None) -> Any:
        if text is None or count is None:
            return None
        if count < 0:
            raise SqlValueError(f"{name} needs a number of characters that is not negative: {count}")
        before, middle, after = cut(text, min(count, len(text)))
        return before + _hidden(middle, masks) + after

    masked.__doc__ = meaning
    MASKS.scalar(
        f"{name}(text STRING, count INTEGER) STRING",
        f"{name}(text STRING, count INTEGER, {CHARACTERS}) STRING",
        nulls=True,
        examples=[(f"{name}('My Test', 2)", result)],
    )(masked)


_declare("MASK_LEFT", "A text with its first characters hidden.", lambda t, n: ("", t[:n], t[n:]), "'Xx Test'")
_declare(
    "MASK_RIGHT",
    "A text with its last characters hidden.",
    lambda t, n: (t[: len(t) - n], t[len(t) - n :], ""),
    "'My Texx'",
)
_declare(
    "MASK_KEEP_LEFT",
    "A text with all but its first characters hidden.",
    lambda t, n: (t[:n], t[n:], ""),
    "'My-Xxxx'",
)
_declare(
    "MASK_KEEP_RIGHT",
    "A text with all but its last characters hidden.",
    lambda t, n: ("", t[: len(t) - n], t[len(t) - n :]),
    "'Xx-Xxst'",
)
