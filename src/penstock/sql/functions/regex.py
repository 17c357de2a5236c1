"""Functions of regular expressions, in Java's syntax."""

from __future__ import annotations

from penstock.base.java_text.regex import compile_java, replacement
from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["REGEX"]

REGEX = Family("regular expressions")


def _checked(pattern: str, group: int) -> None:
    groups = compile_java(pattern).groups
    if not 0 <= group <= groups:
        raise SqlValueError(f"the expression {pattern!r} has {groups} groups, no group {group}")


@REGEX.scalar(
    "REGEXP_EXTRACT(pattern STRING, text STRING) STRING",
    "REGEXP_EXTRACT(pattern STRING, text STRING, group INTEGER) STRING",
    examples=[("REGEXP_EXTRACT('(.*) (.*)', 'hello there', 2)", "'there'")],
)
def regexp_extract(pattern: str, text: str, group: int = 0) -> str | None:
    """The first part of a text that a regular expression matches, or one of its groups; null if none does."""
    _checked(pattern, group)
    match = compile_java(pattern).search(text)
    return match[group] if match else None


@REGEX.scalar(
    "REGEXP_EXTRACT_ALL(pattern STRING, text STRING) ARRAY<STRING>",
    "REGEXP_EXTRACT_ALL(pattern STRING, text STRING, group INTEGER) ARRAY<STRING>",
    examples=[("REGEXP_EXTRACT_ALL('a.', 'abacad')", "ARRAY['ab', 'ac', 'ad']")],
)
def regexp_extract_all(pattern: str, text: str, group: int = 0) -> list[str | None]:
    """All parts of a text that a regular expression matches, or one group of each."""
    _checked(pattern, group)
    return [match[group] for match in compile_java(pattern).finditer(text)]


@REGEX.scalar(
    "REGEXP_REPLACE(text STRING, pattern STRING, new STRING) STRING",
    examples=[
        ("REGEXP_REPLACE('baababaa', '(ab)+', 'xy')", "'baxyaa'"),
        ("REGEXP_REPLACE('ab', 'a(b)', '$1a')", "'ba'"),
    ],
)
def regexp_replace(text: str, pattern: str, new: str) -> str:
    """A text with all parts replaced that a regular expression matches; ``$1`` stands for a group."""
    return compile_java(pattern).sub(lambda match: replacement(new, match), text)


@REGEX.scalar(
    "REGEXP_SPLIT_TO_ARRAY(text STRING, pattern STRING) ARRAY<STRING>",
    examples=[("REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+')", "ARRAY['a', 'b', 'c']")],
)
def regexp_split_to_array(text: str, pattern: str) -> list[str]:
    """The parts of a text between those that a regular expression matches."""
    expression = compile_java(pattern)
    parts: list[str] = []
    at = 0
    for match in expression.finditer(text):
        if match.end() > 0:  # an empty match at the beginning is before all parts
            parts.append(text[at : match.start()])
            at = match.end()
    parts.append(text[at:])
    if expression.fullmatch("") and len(parts) > 1:  # it matches between all characters, so behind the last one too
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
    return parts
