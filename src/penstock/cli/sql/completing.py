"""Completion of keywords, names, columns, functions, properties and topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from penstock.cli.sql.words import KEYWORDS, PROPERTIES, TYPES
from penstock.sql.catalog import Catalog
from penstock.sql.functions.aggregates import aggregate_functions
from penstock.sql.functions.builtin import scalar_functions
from penstock.sql.functions.tables import table_functions
from penstock.sql.parse.tokens import quoted

__all__ = ["SqlCompleter"]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_AFTER = re.compile(r"([A-Za-z]+)\s+$")
# What stands behind a word.
_SOURCES = frozenset({"FROM", "JOIN", "INTO", "DESCRIBE", "STREAM", "TABLE", "EXISTS"})
_QUERIES = frozenset({"TERMINATE", "PAUSE", "RESUME", "EXPLAIN"})
_LISTS = ("STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES")


class SqlCompleter(Completer):
    """Completes what may stand at the cursor.

    Args:
        catalog: Returns the present catalog.
        queries: Returns the ids of queries.
    """

    def __init__(self, catalog: Callable[[], Catalog], queries: Callable[[], Sequence[str]]) -> None:
        self._catalog = catalog
        self._queries = queries

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield completions; keywords take the case of what has been typed."""
        del complete_event
        before = document.text_before_cursor
        if (before.count("'")) % 2:
            return
        found = _WORD.search(before)
        word = found.group() if found else ""
        lead = before[: len(before) - len(word)]
        seen: set[str] = set()
        for text, meta in self._candidates(lead, document.text):
            shown = text.lower() if word.islower() and meta in ("keyword", "function", "type", "property") else text
            if text.upper().startswith(word.upper()) and text not in seen:
                seen.add(text)
                yield Completion(shown, start_position=-len(word), display_meta=meta)

    def _candidates(self, lead: str, text: str) -> Iterable[tuple[str, str]]:
        after = _AFTER.search(lead)
        last = after[1].upper() if after else ""
        catalog = self._catalog()
        if last in ("SHOW", "LIST"):
            return _as(_LISTS, "keyword")
        if last in _QUERIES:
            return [*_as(self._queries(), "query"), *_as(("ALL",), "keyword")]
        if last == "PRINT":
            return _as(catalog.topics, "topic")
        if last in _SOURCES:
            return [(quoted(name), source.kind.lower()) for name, source in sorted(catalog.sources.items())]
        if re.search(r"WITH\s*\((?:[^()]*,)?\s*$", lead, re.IGNORECASE):
            return _as(PROPERTIES, "property")
        if not lead.strip() or lead.rstrip().endswith(";"):
            return _as(_STATEMENTS, "keyword")
        return self._anywhere(catalog, text)

    @staticmethod
    def _anywhere(catalog: Catalog, text: str) -> Iterator[tuple[str, str]]:
        named = {word.upper() for word in re.findall(r"[A-Za-z_]\w*", text)}
        sources = [source for name, source in catalog.sources.items() if name.upper() in named]
        for source in sources or catalog.sources.values():
            yield from ((quoted(column.name), f"{column.type}") for column in source.columns)
        yield from ((quoted(name), source.kind.lower()) for name, source in catalog.sources.items())
        yield from _as(KEYWORDS, "keyword")
        functions: Iterable[Any] = [*scalar_functions(), *aggregate_functions(), *table_functions()]
        yield from _as(sorted(function.name for function in functions), "function")
        yield from _as(TYPES, "type")


_STATEMENTS = (
    "CREATE", "SELECT", "INSERT INTO", "DROP", "ALTER", "TERMINATE", "PAUSE", "RESUME", "SHOW", "LIST", "DESCRIBE",
    "EXPLAIN", "PRINT", "SET", "UNSET", "DEFINE", "UNDEFINE", "ASSERT", "RUN SCRIPT", "WITH",
)  # fmt: skip


def _as(names: Iterable[str], meta: str) -> list[tuple[str, str]]:
    return [(name, meta) for name in names]
