"""DESCRIBE."""

from __future__ import annotations

from dataclasses import replace

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import counted
from penstock.log.groups.lag import lag
from penstock.sql.analyse import refusal
from penstock.sql.analyse.statements import library_of
from penstock.sql.catalog import Source
from penstock.sql.parse import Parsed
from penstock.sql.parse import command_nodes as c
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.results import Described, Listing
from penstock.sql.session.listing import errors_of, functions_of
from penstock.sql.session.workspace import Workspace

__all__ = ["describe", "describe_all"]

Facts = list[tuple[str, str]]


def describe(parsed: Parsed, work: Workspace) -> Described:
    """Answer DESCRIBE of a stream, table or function.

    Raises:
        SqlError: There is none of this name.
    """
    statement = parsed.statement
    assert isinstance(statement, c.Describe)  # noqa: S101 - dispatched by this type
    if statement.kind == "CONNECTOR":
        raise refusal(statement.at, "DESCRIBE CONNECTOR: connectors are not run by Penstock SQL")
    if statement.kind == "FUNCTION":
        return replace(_function(statement.name, statement.at, work), statement=parsed.text)
    source = work.catalog.sources.get(statement.name)
    if source is None:
        hint = did_you_mean(statement.name, work.catalog.sources) or "SHOW STREAMS and SHOW TABLES list what there is."
        raise refusal(statement.at, f"Could not find STREAM/TABLE '{statement.name}' in the catalog", hint)
    return replace(_source(source, work, extended=statement.extended), statement=parsed.text)


def describe_all(parsed: Parsed, work: Workspace) -> Listing:
    """Answer DESCRIBE STREAMS and DESCRIBE TABLES: the columns of each."""
    statement = parsed.statement
    assert isinstance(statement, c.DescribeAll)  # noqa: S101 - dispatched by this type
    kind = statement.what.removesuffix("S")
    rows = [
        (source.name, column.name, str(column.type), _role(column.role))
        for source in sorted(work.catalog.sources.values(), key=lambda source: source.name)
        if source.kind == kind
        for column in source.columns
    ]
    return Listing((kind.capitalize(), "Column", "Type", "Role"), ("",) * 4, tuple(rows), statement=parsed.text)


def _role(role: str) -> str:
    return "" if role == "VALUE" else role.lower()


def _source(source: Source, work: Workspace, *, extended: bool) -> Described:
    columns = tuple((column.name, str(column.type), _role(column.role)) for column in source.columns)
    facts: Facts = [("topic", source.topic), ("formats", f"{source.key_format.name}, {source.value_format.name}")]
    if source.window is not None:
        size = "" if source.window.size_ms is None else f" of {source.window.size_ms} ms"
        facts.append(("windows", f"{source.window.kind.lower()}{size}"))
    if source.timestamp is not None:
        facts.append(("time", source.timestamp.name))
    if extended:
        facts += _extended(source, work)
    return Described(source.name, source.kind, columns, tuple(facts))


def _extended(source: Source, work: Workspace) -> Facts:
    facts: Facts = [("statement", " ".join(source.text.split()))]
    try:
        topic = work.log.topic(source.topic)
        ends = work.log.end_offsets([source.topic])
        facts += [("partitions", str(topic.partitions)), ("offsets", f"{sum(ends.values()):,}")]
        facts += [(f"topic {name}", value) for name, value in sorted(topic.config.items())]
    except Exception as error:  # noqa: BLE001 - what is known of it is shown all the same
        facts.append(("topic", str(error).splitlines()[0]))
    for word, ids in (
        ("read by", work.catalog.readers(source.name)),
        ("written by", work.catalog.writers(source.name)),
    ):
        for query_id in ids:
            query = work.queries.get(query_id)
            behind = sum(each.lag for each in lag(work.log, work.settings.application_id(query_id)))
            state = f"{query.state}, errors: {errors_of(query)}" if query else "unknown"
            facts.append((word, f"{query_id} ({state}, {counted(behind, 'record')} behind)"))
    return facts


def _function(name: str, at: TextPosition, work: Workspace) -> Described:
    library = library_of(work.catalog)
    for registry in (library.scalars, library.tables, library.aggregates):
        function = registry.get(name)
        if function is None:
            continue
        every = (function, *getattr(function, "others", ()))
        signatures = tuple((str(signature), "", "") for each in every for signature in each.signatures)
        facts = [("meaning", " ".join(function.meaning.split()))]
        examples = getattr(function, "examples", ())
        facts += [("example", f"{example.call} is {example.result}") for example in examples]
        if function.about is not None:
            about = function.about
            parts = (("author", about.author), ("version", about.version), ("file", about.origin))
            facts += [(word, text) for word, text in parts if text]
        return Described(function.name, "FUNCTION", signatures, tuple(facts))
    hint = (
        did_you_mean(name, [function_name for function_name, _ in functions_of(work)])
        or "SHOW FUNCTIONS lists the functions."
    )
    raise refusal(at, f"Can't find any functions with the name '{name}'", hint)
