r"""Regular expressions of Java's syntax for Polars, where its engine finds the same parts of every text.

Both prefer the first alternative and the longest greedy repetition from the left. What could differ is left out:
groups within a repetition, repetitions of what may be empty, look-around, references, boundaries of words, flags.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from penstock.base.java_text.regex import compile_java
from penstock.base.java_text.text_error import JavaTextError

__all__ = ["RustRegex", "rust_regex"]

MOST_REPEATS = 100
CATEGORIES = {
    codes.CATEGORY_DIGIT: "0-9",
    codes.CATEGORY_SPACE: r"\x{20}\x{9}-\x{d}",
    codes.CATEGORY_WORD: "a-zA-Z0-9_",
    codes.CATEGORY_NOT_DIGIT: "[^0-9]",
    codes.CATEGORY_NOT_SPACE: r"[^\x{20}\x{9}-\x{d}]",
    codes.CATEGORY_NOT_WORD: "[^a-zA-Z0-9_]",
}
PLACES = {
    codes.AT_BEGINNING: r"\A",
    codes.AT_BEGINNING_STRING: r"\A",
    codes.AT_END: r"\z",
    codes.AT_END_STRING: r"\z",
}


class RustRegex(NamedTuple):
    """An expression for Polars, whose first group is the whole match.

    Attributes:
        text: The expression.
        groups: The number of groups of the original.
        ends_lines: Whether it has a ``$``, which also stands before a line break at the end: then it is for texts
            without one.
    """

    text: str
    groups: int
    ends_lines: bool


class _Unequal(Exception):  # noqa: N818
    pass


@lru_cache(maxsize=512)
def rust_regex(pattern: str) -> RustRegex | None:
    r"""Return the same expression for Polars; None if there could be a difference, or it is wrong.

    >>> rust_regex(r"(a|\d+)$")
    RustRegex(text='(((?:\\x{61}|[0-9]+))\\z)', groups=1, ends_lines=True)
    >>> rust_regex("(a*)*") is None
    True
    """
    try:
        compiled = compile_java(pattern)
        if compiled.flags & ~re.ASCII:
            return None
        tree = parser.parse(compiled.pattern, re.ASCII)
        ends: list[object] = []
        return RustRegex(f"({_sequence(tree, ends, repeated=False)})", compiled.groups, bool(ends))
    except (_Unequal, JavaTextError, RecursionError):
        return None


def _sequence(tree: Any, ends: list[object], *, repeated: bool) -> str:
    return "".join([_one(code, argument, ends, repeated=repeated) for code, argument in tree])


def _one(code: Any, argument: Any, ends: list[object], *, repeated: bool) -> str:
    match code:
        case codes.LITERAL:
            return _literal(argument)
        case codes.NOT_LITERAL:
            return f"[^{_literal(argument)}]"
        case codes.IN:
            return _class(argument)
        case codes.AT if argument in PLACES:
            if argument is codes.AT_END:
                ends.append(code)
            return PLACES[argument]
        case codes.BRANCH:
            return f"(?:{'|'.join([_sequence(each, ends, repeated=repeated) for each in argument[1]])})"
        case codes.SUBPATTERN if not argument[1] and not argument[2]:
            if argument[0] is None:
                return f"(?:{_sequence(argument[3], ends, repeated=repeated)})"
            if repeated:
                raise _Unequal
            return f"({_sequence(argument[3], ends, repeated=repeated)})"
        case codes.MAX_REPEAT | codes.MIN_REPEAT:
            return _repeat(argument, ends) + ("?" if code is codes.MIN_REPEAT else "")
    raise _Unequal


def _repeat(argument: Any, ends: list[object]) -> str:
    least, most, body = argument
    unbounded = most is codes.MAXREPEAT
    if body.getwidth()[0] == 0 or least > MOST_REPEATS or (not unbounded and most > MOST_REPEATS):
        raise _Unequal
    inner = _sequence(body, ends, repeated=True)
    if len(body) > 1:
        inner = f"(?:{inner})"
    quantifier = {(0, True): "*", (1, True): "+"}.get((least, unbounded))
    if quantifier is None:
        quantifier = "?" if (least, most) == (0, 1) else f"{{{least},{'' if unbounded else most}}}"
    return inner + quantifier


def _class(items: Any) -> str:
    parts = []
    for code, argument in items:
        match code:
            case codes.NEGATE:
                parts.append("^")
            case codes.LITERAL:
                parts.append(_literal(argument))
            case codes.RANGE:
                parts.append(f"{_literal(argument[0])}-{_literal(argument[1])}")
            case codes.CATEGORY if argument in CATEGORIES:
                parts.append(CATEGORIES[argument])
            case _:
                raise _Unequal
    return f"[{''.join(parts)}]"


def _literal(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        raise _Unequal
    return rf"\x{{{code:x}}}"
