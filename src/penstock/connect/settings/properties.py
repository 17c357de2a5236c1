"""Reading Java's ``.properties`` files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["parse_properties", "read_properties"]

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_UNICODE_DIGITS = 4
_MOST_BYTES = 1 << 20


def parse_properties(text: str) -> dict[str, str]:
    r"""Read the settings of a file's text, as ``java.util.Properties`` does.

    >>> parse_properties("# worker\nname = one\nfile: /var/log/\\\n  access.log\nempty\n")
    {'name': 'one', 'file': '/var/log/access.log', 'empty': ''}
    """
    properties = {}
    for line in _logical_lines(text):
        end = _end_of_name(line)
        name, rest = line[:end], line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescaped(name)] = _unescaped(rest)
    return properties


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of settings.

    Raises:
        ConfigError: The file cannot be read, or is not such a file.
    """
    try:
        data = path.read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="Give the path of a .properties file."
        ) from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path} has more than {_MOST_BYTES:,} bytes", hint="Give the path of a .properties file.")
    try:
        return parse_properties(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}", hint="Save it as UTF-8.") from error


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; a backslash at the end joins a line with the next."""
    waiting: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANKS)
        if waiting is None and (not line or line[0] in "#!"):
            continue
        line = (waiting or "") + line
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            waiting = line[:-1]
            continue
        waiting = None
        yield line
    if waiting is not None:
        yield waiting


def _end_of_name(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _unescaped(text: str) -> str:
    characters, at = [], 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\" or at == len(text):
            characters.append(character)
            continue
        escaped = text[at]
        at += 1
        if escaped != "u":
            characters.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[at : at + _UNICODE_DIGITS]
        try:
            characters.append(chr(int(digits, 16)))
        except ValueError as error:
            raise ConfigError(
                f"\\u{digits} is not a character", hint="Four hexadecimal digits follow \\u in .properties files."
            ) from error
        at += _UNICODE_DIGITS
    return "".join(characters)
