"""SHOW (or LIST), DESCRIBE and EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.api.builder import StreamsBuilder
from penstock.base.nearest_name import did_you_mean
from penstock.base.secrets import shown
from penstock.base.terminal.human_numbers import counted
from penstock.log.groups.group_admin import lag
from penstock.sql.analyse import QueryPlan, apply, refusal
from penstock.sql.analyse.plans import (
    Derived,
    Expression,
    FlattenStep,
    PlanStep,
    Read,
    expressions_below,
    plain,
    steps_below,
)
from penstock.sql.analyse.statements import library_of
from penstock.sql.catalog import Source
from penstock.sql.compile import compile_results
from penstock.sql.compile.queries import names_origins
from penstock.sql.evaluate import vectorised
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import Parsed
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query as QueryNode
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.queries.analyse import plan_query
from penstock.sql.queries.plans import KeyLookup, PullPlan, PushPlan, RangeLookup
from penstock.sql.results import Described, Explained, Listing
from penstock.sql.session.persistent_queries import SessionQuery, topology_of
from penstock.sql.session.session_settings import KNOWN
from penstock.sql.session.workspace import Workspace

__all__ = ["describe", "describe_all", "errors_of", "explain", "explained", "functions_of", "show"]

INTERNAL = ("-changelog", "-repartition", "-penstock-formats")
Table = tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]


def show(parsed: Parsed, work: Workspace) -> Listing:
    """Answer SHOW.

    Raises:
        SqlError: Connectors are asked for, which are not part of SQL here.
    """
    statement = parsed.statement
    assert isinstance(statement, s.Show)  # noqa: S101 - dispatched by this type
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
    sources = sorted(
        (each for each in work.catalog.sources.values() if each.kind == kind), key=lambda source: source.name
    )
    return columns, [
        (
            each.name,
            each.topic,
            each.key_format.name,
            each.value_format.name,
            "yes" if each.window is not None else "no",
        )
        for each in sources
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
    """Return why a query has failed, or its errors by function or column: how often each."""
    if query.error is not None:
        return query.error.message
    return ", ".join(f"{where}: {count:,}" for where, count in query.errors.items()) or "none"


def functions_of(work: Workspace) -> list[tuple[str, str]]:
    """Return names and categories of all functions, by name."""
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


Facts = list[tuple[str, str]]


def describe(parsed: Parsed, work: Workspace) -> Described:
    """Answer DESCRIBE of a stream, table or function.

    Raises:
        SqlError: There is none of this name.
    """
    statement = parsed.statement
    assert isinstance(statement, s.Describe)  # noqa: S101 - dispatched by this type
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
    assert isinstance(statement, s.DescribeAll)  # noqa: S101 - dispatched by this type
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


_BY_COLUMN = ("JSON", "DELIMITED", "KAFKA", "NONE")  # formats whose rows come as columns


def explain(parsed: Parsed, work: Workspace) -> Explained:
    """Answer EXPLAIN of a running query, of a SELECT, or of a statement with a query; the latter are not run.

    Raises:
        SqlError: There is no such query, or the statement is refused.
    """
    statement = parsed.statement
    assert isinstance(statement, s.Explain)  # noqa: S101 - dispatched by this type
    subject = statement.subject
    if isinstance(subject, QueryNode):
        plan = plan_query(subject, work.catalog.copy(), parsed.text)
        explanation = _pushed(plan) if isinstance(plan, PushPlan) else _pulled(plan)
        return replace(explanation, statement=parsed.text)
    if not isinstance(subject, str):
        return replace(explained(_plan_of(subject, work)), statement=parsed.text)
    query = work.queries.get(subject)
    if query is None:
        hint = did_you_mean(subject, work.queries) or "SHOW QUERIES lists the queries."
        raise refusal(statement.at, f"Query with id:{subject} does not exist", hint)
    facts = (("state", query.state), ("errors", errors_of(query)))
    return replace(explained(query.plan), id=subject, facts=facts, statement=parsed.text)


def _plan_of(statement: s.Statement, work: Workspace) -> QueryPlan:
    if not isinstance(statement, s.CreateAs | s.InsertInto):
        raise refusal(statement.at, "EXPLAIN takes a statement with a query, or the id of a running query")
    applied = apply(statement, work.catalog.copy())
    if applied.query is None:
        raise refusal(statement.at, applied.message)
    return applied.query


def explained(plan: QueryPlan) -> Explained:
    """Return the topology of a plan, and the back end of each of its expressions."""
    return Explained(
        "", str(topology_of(plan).describe()), _back_ends(expressions_below(plan.root), plan.root), plan.to_json()
    )


def _pushed(plan: PushPlan) -> Explained:
    builder = StreamsBuilder()
    compile_results(plan.root, builder, EvaluationErrors())
    kind = "push query: rows as they come" if plan.until == "never" else "pull query: a stream up to its present end"
    facts = (("kind", kind), ("reads", ", ".join(f"{each.name} (topic {each.topic})" for each in plan.reads)))
    document = {"reads": [each.name for each in plan.reads], "root": plain(plan.root)}
    return Explained(
        "", str(builder.build().describe()), _back_ends(expressions_below(plan.root), plan.root), document, facts
    )


def _pulled(plan: PullPlan) -> Explained:
    match plan.lookup:
        case KeyLookup(keys=keys):
            lookup = counted(len(keys), "key")
        case RangeLookup():
            lookup = "a range of keys"
        case _:
            lookup = "all rows"
    kept = f"the state of {plan.writer.id}" if plan.writer is not None else f"the topic {plan.source.topic}"
    used = (plan.where, *plan.values) if plan.where is not None else plan.values
    document = {"reads": [plan.source.name], "lookup": lookup}
    facts = (("kind", "pull query of a table"), ("reads", f"{lookup} of {kept}"))
    return Explained("", "", _back_ends(used, None), document, facts)


def _back_ends(expressions: Iterable[Expression], root: PlanStep | None) -> tuple[tuple[str, str, str], ...]:
    return tuple((each.text, str(each.type), _back_end(each, root)) for each in expressions)


def _back_end(expression: Expression, root: PlanStep | None) -> str:
    """Return the back end of an expression in batches of some size.

    Polars if rows come by the column, and it has its form.

    Rows that have columns of their origin (ROWTIME, headers), keys of windowed sources, schemas in a registry, and the
    results of table functions and subqueries come one by one.

    Args:
        expression: The expression.
        root: The last step of its query; None where rows of a table are looked up, which come one by one.
    """
    return vectorised.back_end(expression.typed) if root is not None and _by_column(root) else "Python"


def _by_column(root: PlanStep) -> bool:
    if names_origins(root):
        return False
    for step in steps_below(root):
        if isinstance(step, Derived | FlattenStep):
            return False
        if isinstance(step, Read):
            source = step.source
            if source.window is not None or {source.key_format.name, source.value_format.name} - set(_BY_COLUMN):
                return False
    return True
