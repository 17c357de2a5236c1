"""Keys and values of messages as a page shows them: JSON as a tree, bytes as hex; and messages as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from penstock.base.escapes import json_text, visible
from penstock.serde.plain_json import plain, text_of

__all__ = ["as_csv", "as_json_lines", "hex_lines", "tree_of"]

_DEEPEST = 20  # levels of a tree; what lies deeper is text
_OPEN = 2
_BRANCHES = 500
_HEX_BYTES = 4_096
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # with which a spreadsheet begins to compute
_COLUMNS = ("timestamp", "partition", "offset", "key", "value", "headers")


def tree_of(value: Any) -> Markup | None:
    """Return an object or a list as nested lists that fold; None for anything else.

    >>> print(tree_of({"a": 1}))
    <ul class="tree"><li><b>a</b> <code>1</code></li></ul>

    Args:
        value: The value, in JSON's types.
    """
    return _branches(value, 0) if isinstance(value, Mapping | list) and value else None


def _branches(value: Mapping[str, Any] | list[Any], depth: int) -> Markup:
    items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    rows = [_branch(str(name), each, depth) for name, each in items[:_BRANCHES]]
    if len(items) > _BRANCHES:
        rows.append(Markup('<li class="dim">and {:,} more</li>').format(len(items) - _BRANCHES))
    return Markup('<ul class="tree">{}</ul>').format(Markup("").join(rows))


def _branch(name: str, value: Any, depth: int) -> Markup:
    shown = visible(name)
    if isinstance(value, Mapping | list) and value and depth < _DEEPEST:
        noun = "field" if isinstance(value, Mapping) else "item"
        return Markup(
            '<li><details{}><summary><b>{}</b> <span class="dim">{}</span></summary>{}</details></li>'
        ).format(
            Markup(" open") if depth < _OPEN else "",
            shown,
            f"{len(value):,} {noun}{'s' if len(value) != 1 else ''}",
            _branches(value, depth + 1),
        )
    return Markup("<li><b>{}</b> <code>{}</code></li>").format(shown, visible(json_text(value)))


def hex_lines(data: bytes | None) -> str:
    r"""Return the first bytes as lines of hex and text; empty for none.

    >>> print(hex_lines(b"tea\x00"))
    00000000  74 65 61 00                                       tea.

    Args:
        data: The bytes.
    """
    if data is None:
        return ""
    lines = []
    for at in range(0, min(len(data), _HEX_BYTES), 16):
        part = data[at : at + 16]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {text}")
    if len(data) > _HEX_BYTES:
        lines.append(f"and {len(data) - _HEX_BYTES:,} more bytes")
    return "\n".join(lines)


def as_json_lines(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return messages as lines of JSON."""
    return "".join(json_text(each, default=plain) + "\n" for each in messages)


def as_csv(messages: Iterable[Mapping[str, Any]], *, is_first: bool = True) -> str:
    """Return messages as CSV; texts that a spreadsheet would run get an apostrophe in front.

    Args:
        messages: The messages.
        is_first: Whether the file begins with them, so a line of names goes before.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    if is_first:
        writer.writerow(_COLUMNS)
    for each in messages:
        writer.writerow([_cell(each[name]) for name in _COLUMNS])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    text = (
        value
        if isinstance(value, str)
        else text_of(value)
        if isinstance(value, bytes)
        else json_text(value, default=plain)
    )
    return f"'{text}" if text.startswith(_FORMULAS) else text
