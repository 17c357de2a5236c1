"""Java's ``.properties`` files, as Kafka's tools read them."""

from __future__ import annotations

import re

__all__ = ["parse_properties", "setting_text"]

_PAIR = re.compile(r"((?:\\.|[^=:\s\\])+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def setting_text(value: object) -> str:
    """Return a setting as a text, as Java's tools have it.

    >>> setting_text(True), setting_text(10), setting_text("all")
    ('true', '10', 'all')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse names and values: ``=``, ``:`` or a blank between them, ``#`` or ``!`` before comments, ``\`` at ends.

    >>> parse_properties("sasl.mechanism = PLAIN\n# a comment\nssl.keystore.key=a\\nb \\\n   c")
    {'sasl.mechanism': 'PLAIN', 'ssl.keystore.key': 'a\nb c'}
    """
    properties: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while _goes_on(logical):
            logical = logical[:-1] + next(lines, "").lstrip()
        if match := _PAIR.match(logical):
            properties[_unescaped(match.group(1))] = _unescaped(match.group(2))
    return properties


def _goes_on(line: str) -> bool:
    """Return whether a line ends with an odd number of backslashes, and so continues."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        what = match.group(1)
        return chr(int(what[1:], 16)) if len(what) == 5 else _NAMED.get(what, what)

    return _ESCAPE.sub(one, text)
