"""Escapes for characters that a terminal, a page or a log would act upon: the one place where texts are made visible.

Records, names and messages of errors hold any characters: escape sequences that colour a terminal or set its title,
marks that turn the direction of a line, line ends that forge a line of a log, halves of surrogate pairs. Each way out
of the process passes texts through one of these functions:

- `visible` for texts of several lines, such as a page or a stack trace;
- `one_line` for a part of a line: of a log, of a table, of a label;
- `json_text` for JSON, whose own escapes leave the value as it is.
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any

__all__ = ["json_text", "one_line", "show", "visible"]

# Control characters (C0, DEL, C1), marks of direction, separators of lines and paragraphs, halves of surrogate pairs,
# and characters of annotations and of tags, which are not seen.
_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e007f"
)
_UNSEEN = re.compile(f"[{_HIDDEN}]")
_UNSEEN_OR_ENDS = re.compile(f"[{_HIDDEN}\t\n]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str) -> str:
    r"""Return a text with escapes in place of characters that are acted upon; tabs and line ends stay.

    >>> visible("\x1b[31mred\x1b[0m\n\u202ebackwards")
    '\\x1b[31mred\\x1b[0m\n\\u202ebackwards'
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_escape, text)


def one_line(text: str) -> str:
    r"""Return a text as a part of one line: like `visible`, with escapes for tabs and line ends too.

    >>> one_line("no\r\n2026-11-25 ERROR forged\u2028")
    'no\\r\\n2026-11-25 ERROR forged\\u2028'
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN_OR_ENDS.sub(_escape, text)


def json_text(value: Any, **options: Any) -> str:
    r"""Return JSON whose texts have JSON's own escapes for these characters; other letters stay as they are.

    >>> json_text({"name": "\x9bann\u202e"})
    '{"name": "\\u009bann\\u202e"}'

    Args:
        value: The value.
        options: Options of ``json.dumps``.
    """
    return _UNSEEN.sub(_json_escape, json.dumps(value, ensure_ascii=False, **options))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def show(value: object, most: int = 80) -> str:
    """Return a value for an error's text, cut to so many characters."""
    for represent in (repr, reprlib.repr):
        try:
            text = represent(value)
        except Exception:  # noqa: BLE001, S112 - nested too deep, a number too long, or a user's own __repr__ fails
            continue
        return text if len(text) <= most else f"{text[: most - 3]}..."
    return f"<{type(value).__name__}>"
