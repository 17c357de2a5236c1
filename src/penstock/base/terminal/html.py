"""HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape as html_escape
from itertools import islice
from typing import Any

from penstock.base.escapes import visible

__all__ = ["MOST_ROWS", "facts_html", "table_html"]

MOST_ROWS = 20
_MOST_CHARACTERS = 200


def table_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Make a table with a title, of the first rows if there are many.

    >>> table_html("t", ["key"], [["<a>"]])
    '<table><caption>t</caption><thead><tr><th>key</th></tr></thead><tbody><tr><td>&lt;a&gt;</td></tr></tbody></table>'
    """
    shown = list(islice(rows, MOST_ROWS + 1))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in shown[:MOST_ROWS])
    more = "" if len(shown) <= MOST_ROWS else f'<tr><td colspan="{len(columns)}">and more</td></tr>'
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}{more}</tbody></table>"


def facts_html(title: str, facts: Mapping[str, Any]) -> str:
    """Make a table of names and values.

    >>> facts_html("app", {"lag": 1200})
    '<table><caption>app</caption><tbody><tr><th>lag</th><td>1,200</td></tr></tbody></table>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in facts.items())
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def escape(text: str) -> str:
    """Return a text for HTML, with escapes for characters that nobody sees."""
    return html_escape(visible(text))


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return escape(str(value))
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    text = str(value)
    return escape(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...")
