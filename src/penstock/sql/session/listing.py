"""SHOW (or LIST): streams, tables, topics, queries, functions, settings, types, variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.base.secrets import shown
from penstock.log.groups.lag import lag
from penstock.sql.analyse import refusal
from penstock.sql.analyse.statements import library_of
from penstock.sql.catalog import Source
from penstock.sql.parse import Parsed
from penstock.sql.parse import command_nodes as c
from penstock.sql.results import Listing
from penstock.sql.session.running import SessionQuery
from penstock.sql.session.session_settings import KNOWN
from penstock.sql.session.workspace import Workspace

__all__ = ["errors_of", "functions_of", "show"]

INTERNAL = ("-changelog", "-repartition", "-penstock-formats")
Table = tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]


def show(parsed: Parsed, work: Workspace) -> Listing:
    """Answer SHOW.

    Raises:
        SqlError: Connectors are asked for, which are not part of SQL here.
    """
    statement = parsed.statement
    assert isinstance(statement, c.Show)  # noqa: S101 - dispatched by this type
    match statement.what:
        case "STREAMS" | "TABLES" as what:
            table = _sources(work, what.removesuffix("S"))
        case "TOPICS":
            table = _topics(work, internal=statement.internal, extended=statement.extended)
        case "QUERIES":
            table = _queries(work, extended=statement.extended)
        case "FUNCTIONS":
            table = ("Function", "Category"), functions_of(work)
        case "PROPERTIES":
            table = _properties(work)
        case "TYPES":
            table = ("Type", "Schema"), [(name, str(kind)) for name, kind in sorted(work.catalog.types.items())]
        case "VARIABLES":
            table = ("Variable", "Value"), sorted(work.catalog.variables.items())
        case _:
            raise refusal(
                statement.at,
                f"SHOW {statement.what}: connectors are not run by Penstock SQL",
                "See docs/sql/from-ksqldb.md; `penstock topics produce` and Kafka Connect write topics.",
            )
    columns, rows = table
    return Listing(columns, ("",) * len(columns), tuple(rows), statement.what, statement=parsed.text)


def _sources(work: Workspace, kind: str) -> Table:
    columns = (kind.capitalize(), "Topic", "Key format", "Value format", "Windowed")
    sources = sorted((s for s in work.catalog.sources.values() if s.kind == kind), key=lambda source: source.name)
    return columns, [
        (s.name, s.topic, s.key_format.name, s.value_format.name, "yes" if s.window is not None else "no")
        for s in sources
    ]


def _topics(work: Workspace, *, internal: bool, extended: bool) -> Table:
    by_topic: dict[str, list[Source]] = {}
    for source in work.catalog.sources.values():
        by_topic.setdefault(source.topic, []).append(source)
    rows = []
    for topic in work.log.topics():
        name = topic.name
        if not internal and (name.startswith("_") or (name.endswith(INTERNAL) and name not in by_topic)):
            continue
        row: tuple[Any, ...] = (name, topic.partitions)
        if extended:
            records = sum(work.log.end_offsets([name]).values()) - sum(work.log.beginning_offsets([name]).values())
            row = (*row, records, ", ".join(source.name for source in by_topic.get(name, ())))
        rows.append(row)
    return ("Topic", "Partitions", *(("Offsets", "Streams and tables") if extended else ())), rows


def _queries(work: Workspace, *, extended: bool) -> Table:
    more = ("Behind", "Errors") if extended else ()
    columns = ("Query", "State", "Writes", "Topic", *more, "Statement")
    return columns, [_query(query, work, extended=extended) for query in work.queries.values()]


def _query(query: SessionQuery, work: Workspace, *, extended: bool) -> tuple[Any, ...]:
    plan = query.plan
    text = " ".join(plan.text.split())
    state = query.state if work.holder is None else f"in {work.holder}"
    row = (query.id, state, plan.sink, plan.target.topic)
    if not extended:
        return (*row, text)
    behind = sum(each.lag for each in lag(work.log, work.settings.application_id(query.id)))
    return (*row, behind, errors_of(query), text)


def errors_of(query: SessionQuery) -> str:
    """Why a query has failed, or its errors by function or column: how often each."""
    if query.error is not None:
        return query.error.message
    return ", ".join(f"{where}: {count:,}" for where, count in query.errors.items()) or "none"


def functions_of(work: Workspace) -> list[tuple[str, str]]:
    """Names and categories of all functions, by name."""
    library = library_of(work.catalog)
    pairs = [(function.name, function.family) for function in library.scalars]
    pairs += [(function.name, function.family) for function in library.tables]
    pairs += [(function.name, "aggregates") for function in library.aggregates]
    return sorted(pairs)


def _properties(work: Workspace) -> Table:
    rows: list[tuple[str, str, str]] = [("bootstrap.servers", work.settings.log, "session")]
    own: Mapping[str, str] = work.catalog.settings
    for name, (default, _) in KNOWN.items():
        if name not in own:
            rows.append((name, default, "default"))
    rows += [(name, str(shown(name, value)), "session") for name, value in work.settings.app.items()]
    rows += [(name, str(shown(name, value)), "SET") for name, value in own.items()]
    return ("Property", "Value", "Set by"), sorted(rows)
