"""The words of the language, for completion and highlighting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.sql.functions.aggregates import aggregate_functions
from penstock.sql.functions.builtin import scalar_functions, table_functions
from penstock.sql.parse.tokens import CLAUSES, EXPRESSION_WORDS, RESERVED, quoted

__all__ = ["KEYWORDS", "PROPERTIES", "TYPES", "KnownNames", "completions"]

TYPES = (
    "ARRAY", "BIGINT", "BOOLEAN", "BYTES", "DATE", "DECIMAL", "DOUBLE", "INT", "INTEGER", "MAP", "STRING", "STRUCT",
    "TIME", "TIMESTAMP", "VARCHAR",
)  # fmt: skip
_MORE = (
    "ADD", "ALTER", "ASSERT", "CHANGES", "COLUMN", "DAYS", "DEFINE", "EMIT", "EXPLAIN", "FINAL", "FUNCTION",
    "FUNCTIONS", "HEADER", "HEADERS", "HOURS", "IF", "KEY", "MINUTES", "OFFSET", "ORDER", "PARTITION", "PAUSE",
    "PERIOD", "PRIMARY", "PROPERTIES", "QUERIES", "REPLACE", "RESUME", "RUN", "SCHEMA", "SCRIPT", "SECONDS", "SESSION",
    "SET", "SHOW", "SOURCE", "SYSTEM", "TABLES", "TOPIC", "TOPICS", "TYPE", "TYPES", "UNDEFINE", "UNSET", "VARIABLES",
)  # fmt: skip
KEYWORDS = tuple(sorted({*RESERVED, *CLAUSES, *_MORE} - EXPRESSION_WORDS))
PROPERTIES = (
    "FORMAT", "KAFKA_TOPIC", "KEY_FORMAT", "PARTITIONS", "REPLICAS", "RETENTION_MS", "TIMESTAMP", "TIMESTAMP_FORMAT",
    "VALUE_DELIMITER", "VALUE_FORMAT", "WINDOW_SIZE", "WINDOW_TYPE", "WRAP_SINGLE_VALUE",
)  # fmt: skip


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_AFTER = re.compile(r"([A-Za-z]+)\s+$")
# What stands behind a word.
_SOURCES = frozenset({"FROM", "JOIN", "INTO", "DESCRIBE", "STREAM", "TABLE", "EXISTS"})
_QUERIES = frozenset({"TERMINATE", "PAUSE", "RESUME", "EXPLAIN"})
_LISTS = ("STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES")
_STATEMENTS = (
    "CREATE", "SELECT", "INSERT INTO", "DROP", "ALTER", "TERMINATE", "PAUSE", "RESUME", "SHOW", "LIST", "DESCRIBE",
    "EXPLAIN", "PRINT", "SET", "UNSET", "DEFINE", "UNDEFINE", "ASSERT", "RUN SCRIPT", "WITH",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that statements may use.

    Attributes:
        sources: Streams and tables: their kind, and the names and types of their columns.
        topics: Topics.
        queries: Ids of queries.
    """

    sources: Mapping[str, tuple[str, Sequence[tuple[str, str]]]] = field(default_factory=dict)
    topics: Iterable[str] = ()
    queries: Iterable[str] = ()


def completions(before: str, text: str, names: KnownNames) -> Iterator[tuple[str, str, int]]:
    """Yield words, their kinds, and how many characters before the cursor they replace.

    Keywords take the case of what has been typed.

    >>> [word for word, kind, _ in completions("sh", "sh", KnownNames()) if kind == "keyword"]
    ['show']

    Args:
        before: The text before the cursor.
        text: The whole text.
        names: The names that there are.
    """
    if before.count("'") % 2:
        return
    match = _WORD.search(before)
    word = match.group() if match else ""
    lead = before[: len(before) - len(word)]
    seen: set[str] = set()
    for each, kind in _candidates(lead, text, names):
        shown = each.lower() if word.islower() and kind in ("keyword", "function", "type", "property") else each
        if each.upper().startswith(word.upper()) and each not in seen:
            seen.add(each)
            yield shown, kind, len(word)


def _candidates(lead: str, text: str, names: KnownNames) -> Iterable[tuple[str, str]]:
    after = _AFTER.search(lead)
    last = after[1].upper() if after else ""
    if last in ("SHOW", "LIST"):
        return _as(_LISTS, "keyword")
    if last in _QUERIES:
        return [*_as(names.queries, "query"), *_as(("ALL",), "keyword")]
    if last == "PRINT":
        return _as(names.topics, "topic")
    if last in _SOURCES:
        return [(quoted(name), kind.lower()) for name, (kind, _) in sorted(names.sources.items())]
    if re.search(r"WITH\s*\((?:[^()]*,)?\s*$", lead, re.IGNORECASE):
        return _as(PROPERTIES, "property")
    if not lead.strip() or lead.rstrip().endswith(";"):
        return _as(_STATEMENTS, "keyword")
    return _anywhere(names, text)


def _anywhere(names: KnownNames, text: str) -> Iterator[tuple[str, str]]:
    named = {word.upper() for word in re.findall(r"[A-Za-z_]\w*", text)}
    columns = [each for name, (_, each) in names.sources.items() if name.upper() in named]
    for each in columns or [each for _, each in names.sources.values()]:
        yield from ((quoted(name), kind) for name, kind in each)
    yield from ((quoted(name), kind.lower()) for name, (kind, _) in names.sources.items())
    yield from _as(KEYWORDS, "keyword")
    functions: Iterable[Any] = [*scalar_functions(), *aggregate_functions(), *table_functions()]
    yield from _as(sorted(function.name for function in functions), "function")
    yield from _as(TYPES, "type")


def _as(names: Iterable[str], meta: str) -> list[tuple[str, str]]:
    return [(name, meta) for name in names]
