"""Statements and scripts applied to a catalog, rows of INSERT INTO ... VALUES, and what settings have switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import SqlError, SqlSyntaxError, TopologyError
from penstock.sql.analyse.definitions import (
    alter_source,
    check_formats,
    check_timestamp,
    create_source,
    replaceable,
    wrapping,
)
from penstock.sql.analyse.expressions import Library
from penstock.sql.analyse.fields import ClauseScope
from penstock.sql.analyse.plans import QueryPlan
from penstock.sql.analyse.properties import Properties
from penstock.sql.analyse.queries import Analysed, analyse_query
from penstock.sql.analyse.statement_errors import located, refusal
from penstock.sql.catalog import PSEUDO, Catalog, DataFormat, Source, SourceColumn
from penstock.sql.evaluate import compile_rows, sql_type, type_expression
from penstock.sql.evaluate.typed import TypedCast
from penstock.sql.evaluate.typing import nodes_in
from penstock.sql.functions.aggregates import aggregate_functions
from penstock.sql.functions.builtin import scalar_functions, table_functions
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.functions.registry import FunctionRegistry
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.expression_nodes import Node
from penstock.sql.parse.statement_nodes import Query, Statement
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    StructType,
)
from penstock.sql.types.conversions import cast_function, widens
from penstock.sql.types.sql_type import is_numeric, quoted
from penstock.topology.building.names import check_name

__all__ = [
    "Applied",
    "InsertedRow",
    "apply",
    "apply_script",
    "check_enabled",
    "constant_of",
    "insert_values",
    "library_of",
    "steps_of",
]


@dataclass(frozen=True, slots=True)
class InsertedRow:
    """A row to write.

    Attributes:
        key: The values of the key's columns; None if there is no key.
        value: The values of the other columns; None for a tombstone.
        timestamp: ROWTIME, if it was given.
    """

    source: Source
    key: tuple[Any, ...] | None
    value: tuple[Any, ...] | None
    timestamp: int | None


def insert_values(statement: s.InsertValues, target: Source, scalars: FunctionRegistry) -> InsertedRow:
    """Return the row of a statement.

    Raises:
        SqlError: The target cannot be written, a column does not exist, or a value does not fit.
    """
    if target.read_only:
        raise refusal(
            statement.at, f"{target.name} is a read-only {target.kind.lower()}, and takes no INSERT of values"
        )
    if target.headers:
        raise refusal(statement.at, f"{target.name} has header columns, and takes no INSERT")
    if target.window is not None:
        raise refusal(statement.at, f"{target.name} is a windowed {target.kind.lower()}, and takes no INSERT of values")
    columns = {column.name: column.type for column in target.columns}
    names = statement.columns or tuple(column.name for column in (*target.keys, *target.values))
    if len(names) != len(statement.values):
        raise refusal(
            statement.at,
            f"Expected a value for each column. Expected columns: {list(names)}. Got {len(statement.values)} values",
        )
    values_by_name: dict[str, Any] = {}
    places = dict(zip(statement.columns, statement.places, strict=False))
    for name, node in zip(names, statement.values, strict=True):
        kind = PSEUDO["ROWTIME"] if name == "ROWTIME" else columns.get(name)
        if kind is None:
            hint = did_you_mean(name, columns) or f"Columns are {', '.join(columns)}."
            raise refusal(places.get(name, node.at), f"Column name {name} does not exist.", hint)
        if name in values_by_name:
            raise refusal(places.get(name, node.at), f"Column {name} is listed twice.")
        values_by_name[name] = constant_of(node, kind, name, scalars)
    keys = tuple(values_by_name.get(column.name) for column in target.keys)
    if target.is_table and any(value is None for value in keys):
        raise refusal(statement.at, "Failed to insert values: tables need a value for each PRIMARY KEY column")
    timestamp = values_by_name.get("ROWTIME")
    if timestamp is not None and timestamp < 0:
        reason = f"ROWTIME is milliseconds since 1970, and {timestamp} is before"
        raise refusal(statement.values[names.index("ROWTIME")].at, reason)
    values = tuple(values_by_name.get(column.name) for column in target.values)
    absent = target.is_table and not any(column.name in values_by_name for column in target.values)
    key = keys if keys and any(value is not None for value in keys) else None
    return InsertedRow(target, key, None if absent else values, timestamp)


def constant_of(node: Any, kind: SqlType, name: str, scalars: FunctionRegistry) -> Any:
    """Return the value of an expression without columns, as a column's type has it.

    Raises:
        SqlError: It cannot be computed, or does not fit.
    """
    if isinstance(node, x.NullLiteral):
        return None
    errors = EvaluationErrors()
    try:
        typed = type_expression(node, ClauseScope((), "VALUES"), scalars)
        (value,) = compile_rows([typed], errors)(())
    except SqlTypeError as error:
        raise refusal(node.at, str(error)) from error
    if errors.counts:
        raise refusal(node.at, f"The value of {name} cannot be computed")
    if typed.type in (kind, NULL) or value is None:
        return value
    if not _converts(typed.type, kind):
        raise refusal(node.at, f"Expected type {kind} for field {name} but got {typed.type}")
    try:
        converted = cast_function(typed.type, kind)(value)
    except (ValueError, TypeError, ArithmeticError, SqlError) as error:
        shown = repr(value) if isinstance(value, str) else str(value)
        raise refusal(node.at, f"{shown} is not {with_article(str(kind))} for field {name}: {error}") from error
    if not _kept(value, converted):
        raise refusal(
            node.at,
            f"Expected type {kind} for field {name} but got {typed.type}: {value} would become {converted}",
            "Round it, or CAST it, to say that this is meant.",
        )
    return converted


def _kept(value: Any, converted: Any) -> bool:
    """Return whether a value is the same number, or has the same numbers, after its conversion."""
    if isinstance(value, bool) or isinstance(converted, bool | float):
        return True  # DOUBLE is wider than all others
    if isinstance(value, int | float | Decimal) and isinstance(converted, int | Decimal):
        return Decimal(str(value)) == converted
    if isinstance(value, list):
        return all(map(_kept, value, converted))
    if isinstance(value, dict):
        return all(_kept(item, converted[name]) for name, item in value.items() if name in converted)
    return True


def _converts(source: SqlType, target: SqlType) -> bool:
    if widens(source, target):
        return True
    if is_numeric(source) and (isinstance(target, DecimalType) or is_numeric(target)):
        return True
    match source, target:
        case ArrayType(inner), ArrayType(outer):
            return _converts(inner, outer)
        case MapType(key, inner), MapType(other, outer):
            return key == other and _converts(inner, outer)
        case StructType(fields), StructType():
            return all((kind := target.field(f.name)) is not None and _converts(f.type, kind) for f in fields)
    return source == STRING and target in (DATE, TIME, TIMESTAMP, BOOLEAN)


# What settings switch off or bound

INSERTS = "ksql.insert.into.values.enabled"
REPLACING = "ksql.create.or.replace.enabled"
FINAL = "ksql.suppress.enabled"
LAMBDAS = "ksql.lambdas.enabled"
HEADERS = "ksql.headers.columns.enabled"
MOST = "ksql.query.persistent.active.limit"
MAKES_QUERIES = s.CreateAs | s.InsertInto


def check_enabled(statement: Statement, catalog: Catalog) -> None:
    """Refuse a statement that needs what a setting has switched off.

    Raises:
        SqlError: It does; the message names the setting.
    """
    if isinstance(statement, s.InsertValues) and _is_off(INSERTS, catalog):
        raise _off(statement, "INSERT INTO ... VALUES is disabled", INSERTS)
    if isinstance(statement, s.CreateSource | s.CreateAs) and statement.or_replace and _is_off(REPLACING, catalog):
        raise _off(statement, "CREATE OR REPLACE is disabled", REPLACING)
    if isinstance(statement, s.CreateSource) and _is_off(HEADERS, catalog):
        headers = next((column for column in statement.columns if column.role in ("HEADER", "HEADERS")), None)
        if headers is not None:
            raise _off(headers, "columns of headers are disabled", HEADERS)
    if isinstance(statement, MAKES_QUERIES | s.Query):
        _check_query(statement, catalog)


def _check_query(statement: Node, catalog: Catalog) -> None:
    no_final, no_lambdas = _is_off(FINAL, catalog), _is_off(LAMBDAS, catalog)
    for node in nodes_in(statement) if no_final or no_lambdas else ():
        if no_final and isinstance(node, s.Query) and node.emit == "FINAL":
            raise _off(node, "EMIT FINAL is disabled", FINAL)
        if no_lambdas and isinstance(node, x.LambdaNode):
            raise _off(node, "lambda functions are disabled", LAMBDAS)
    most = catalog.setting(MOST)
    if isinstance(statement, MAKES_QUERIES) and most.isdigit() and len(catalog.queries) >= int(most):
        replaces = isinstance(statement, s.CreateAs) and statement.name in catalog.sources
        if not replaces:
            raise refusal(
                statement.at,
                f"{len(catalog.queries)} persistent queries run already, and {MOST} allows {most}.",
                "TERMINATE one, or set a higher limit.",
            )


def _is_off(name: str, catalog: Catalog) -> bool:
    return not catalog.flag(name, otherwise=True)


def _off(node: Node, what: str, name: str) -> Exception:
    return refusal(node.at, f"{what}, as {name} is false.", f"SET '{name}'='true'; enables it.")


# Statements


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of a statement.

    Attributes:
        message: One sentence for the user.
        source: The stream or table that it made.
        query: The persistent query that it started.
        row: The row that it inserted.
    """

    message: str
    source: Source | None = None
    query: QueryPlan | None = None
    row: InsertedRow | None = None


def library_of(catalog: Catalog) -> Library:
    """Return the functions, those of users too, with what the settings say."""

    def limit(name: str) -> int | None:
        text = catalog.setting(f"ksql.functions.{name}.limit")
        return int(text) if text.lstrip("-").isdigit() else None

    aggregates = aggregate_functions(limit("collect_list"), limit("collect_set"))
    users, settings = catalog.functions, catalog.settings
    if not users.declared:
        return Library(scalar_functions(), aggregates, table_functions())
    return Library(
        scalar_functions().extended(users.scalars(settings)),
        aggregates.extended(users.aggregates(settings)),
        table_functions().extended(users.tables(settings)),
    )


def apply(statement: s.Statement, catalog: Catalog, text: str = "") -> Applied:
    """Apply a statement to the catalog, which is changed only if nothing is refused.

    Args:
        statement: The statement.
        catalog: What there is.
        text: Its text, which is kept.

    Raises:
        SqlError: The statement cannot be done.
    """
    do = _HANDLERS.get(type(statement))
    if do is None:
        raise refusal(statement.at, f"{type(statement).__name__} cannot be run here")
    check_enabled(statement, catalog)
    return do(statement, catalog, text)


def _create_source(statement: s.CreateSource, catalog: Catalog, text: str) -> Applied:
    source = create_source(statement, catalog, text)
    kind = statement.kind.capitalize()
    if source is None:
        return Applied(f"{kind} {statement.name} exists already")
    existing = catalog.sources.get(source.name)
    if existing is not None:
        source = replaceable(existing, source, statement.at)
    if source.partitions is not None:
        catalog.topics.setdefault(source.topic, source.partitions)
    catalog.sources[source.name] = source
    return Applied(f"{kind} {source.name} created", source)


def _create_as(statement: s.CreateAs, catalog: Catalog, text: str) -> Applied:
    kind = statement.kind.lower()
    existing = catalog.sources.get(statement.name)
    if existing is not None and statement.if_not_exists:
        return Applied(f"{statement.kind.capitalize()} {statement.name} exists already")
    if existing is not None and existing.read_only:
        raise refusal(
            statement.at,
            f"'{statement.name}' is a source {kind}, which CREATE OR REPLACE cannot replace.",
        )
    if existing is not None and not statement.or_replace:
        raise refusal(
            statement.at,
            f"Cannot add {kind} '{statement.name}': A {existing.kind.lower()} with the same name already exists",
        )
    properties = Properties.of(statement.properties, of_query=True)
    analysed = analyse_query(statement.query, statement.name, catalog, library_of(catalog))
    is_table = analysed.step.is_table
    if is_table != (statement.kind == "TABLE"):
        result = "TABLE" if is_table else "STREAM"
        raise refusal(
            statement.at,
            f"Invalid result type. Your SELECT query produces a {result}. Please use CREATE {result} AS SELECT "
            "statement instead.",
        )
    sink = sink_of(statement, properties, analysed, catalog)
    if existing is not None:
        replaceable(existing, sink, statement.at)
    prefix = "CTAS" if is_table else "CSAS"
    replaced = existing.query if existing is not None else None
    query_id = replaced or catalog.next_query_id(prefix, statement.name)
    sink = replace(sink, query=query_id, text=text)
    plan = _plan(query_id, analysed, sink, catalog, text)
    plan = replace(plan, replaces=replaced)
    catalog.sources[sink.name] = sink
    catalog.topics.setdefault(sink.topic, sink.partitions or partitions_of(analysed, catalog))
    catalog.queries[query_id] = plan
    return Applied(f"Created query with ID {query_id}", sink, plan)


def _plan(query_id: str, analysed: Analysed, sink: Source, catalog: Catalog, text: str) -> QueryPlan:
    return QueryPlan(
        id=query_id,
        root=analysed.step,
        sink=sink.name,
        target=sink,
        reads=tuple(read.source.name for read in analysed.start.reads),
        columns=analysed.columns,
        text=text,
        settings=tuple(sorted(catalog.settings.items())),
    )


def _insert_into(statement: s.InsertInto, catalog: Catalog, text: str) -> Applied:
    target = _target(statement.name, statement.at, catalog, "Cannot insert into")
    if target.is_table:
        raise refusal(statement.at, f"INSERT INTO takes a stream, and {target.name} is a table.")
    if target.read_only:
        raise refusal(statement.at, f"{target.name} is a read-only stream, and takes no INSERT")
    if target.headers:
        raise refusal(statement.at, f"{target.name} has header columns, and takes no INSERT")
    properties = Properties.of(()) if not statement.properties else None
    query_id = None
    for item in statement.properties:
        if item.name.upper() != "QUERY_ID" or properties is not None:
            raise refusal(item.at, f"Invalid config variable(s) in the WITH clause: {item.name}")
        query_id = str(getattr(item.value, "value", "")).upper()
    analysed = analyse_query(statement.query, target.name, catalog, library_of(catalog))
    if analysed.step.is_table:
        raise refusal(statement.at, "INSERT INTO takes a stream, and the query produces a table.")
    target_keys = [(column.name, column.type) for column in target.keys]
    target_values = [(column.name, column.type) for column in target.values]
    analysed = _converted(analysed, target)
    keys = [(column.name, column.type) for column in analysed.columns if column.is_key]
    values = [(column.name, column.type) for column in analysed.columns if not column.is_key]
    if keys != target_keys or values != target_values:
        shown = ", ".join(str(column) for column in analysed.columns)
        raise refusal(
            statement.at,
            f"Incompatible schema between results and sink. Result schema is {shown}. Sink schema is {target.schema()}",
            "Names, types and order must be equal.",
        )
    if (analysed.step.window is None) != (target.window is None):
        raise refusal(statement.at, "Incompatible windows between results and sink.")
    query_id = query_id or catalog.next_query_id("INSERTQUERY", "").replace("__", "_")
    plan = _plan(query_id, analysed, target, catalog, text)
    catalog.queries[query_id] = plan
    return Applied(f"Created query with ID {query_id}", None, plan)


def _converted(analysed: Analysed, target: Source) -> Analysed:
    """Return the query with its numbers cast to the wider types of the target's columns."""
    ranks: dict[SqlType, int] = {INTEGER: 0, BIGINT: 1, DOUBLE: 3}
    target_types = {column.name: column.type for column in target.values}
    values, columns = list(analysed.step.values), list(analysed.columns)
    value_index = 0
    for number, column in enumerate(columns):
        if column.is_key:
            continue
        kind = target_types.get(column.name, column.type)
        widens = is_numeric(column.type) and is_numeric(kind) and ranks.get(column.type, 2) <= ranks.get(kind, 2)
        if kind != column.type and widens:
            values[value_index] = replace(values[value_index], typed=TypedCast(kind, values[value_index].typed))
            columns[number] = replace(column, type=kind)
        value_index += 1
    return replace(analysed, step=replace(analysed.step, values=tuple(values)), columns=tuple(columns))


def _target(name: str, at: Any, catalog: Catalog, reason: str) -> Source:
    source = catalog.sources.get(name)
    if source is None:
        meant = did_you_mean(name, catalog.sources)
        hint = f"{meant} Names in quotes keep their case." if meant else ""
        raise refusal(at, f"{reason} an unknown stream/table: {name}", hint)
    return source


def _insert_values(statement: s.InsertValues, catalog: Catalog, text: str) -> Applied:
    del text
    target = _target(statement.name, statement.at, catalog, "Cannot insert values into")
    row = insert_values(statement, target, library_of(catalog).scalars)
    return Applied(f"Inserted a row into {target.name}", None, None, row)


def _drop(statement: s.DropSource, catalog: Catalog, text: str) -> Applied:
    del text
    source = catalog.sources.get(statement.name)
    kind = statement.kind.capitalize()
    if source is None:
        if statement.if_exists:
            return Applied(f"{kind} {statement.name} does not exist")
        raise refusal(
            statement.at, f"{kind} {statement.name} does not exist.", did_you_mean(statement.name, catalog.sources)
        )
    if source.kind != statement.kind:
        raise refusal(
            statement.at, f"Incompatible data source type is {source.kind}, but statement was DROP {statement.kind}"
        )
    if statement.delete_topic and source.read_only:
        raise refusal(statement.at, f"DELETE TOPIC is refused: {source.name} is a read-only source")
    reading = catalog.readers(source.name)
    writing = [query_id for query_id in catalog.writers(source.name) if query_id != source.query]
    if reading or writing:
        raise refusal(
            statement.at,
            f"Cannot drop {source.name}. The following queries read from this source: {reading}. The following queries "
            f"write into this source: {writing}.",
            "Terminate them before dropping the source.",
        )
    if source.query is not None:
        catalog.queries.pop(source.query, None)
    del catalog.sources[source.name]
    return Applied(f"Source {source.name} was dropped")


def _alter(statement: s.AlterSource, catalog: Catalog, text: str) -> Applied:
    del text
    changed = alter_source(statement, catalog)
    catalog.sources[changed.name] = changed
    return Applied(f"{statement.kind.capitalize()} {changed.name} altered", changed)


def _create_type(statement: s.CreateType, catalog: Catalog, text: str) -> Applied:
    del text
    if statement.name in catalog.types:
        if statement.if_not_exists:
            return Applied(f"Type {statement.name} exists already")
        raise refusal(statement.at, f"Cannot register custom type '{statement.name}' since it is already registered.")
    catalog.types[statement.name] = sql_type(statement.type, catalog.types)
    return Applied(f"Registered custom type {statement.name}")


def _drop_type(statement: s.DropType, catalog: Catalog, text: str) -> Applied:
    del text
    if catalog.types.pop(statement.name, None) is None and not statement.if_exists:
        raise refusal(
            statement.at, f"Type {statement.name} does not exist.", did_you_mean(statement.name, catalog.types)
        )
    return Applied(f"Dropped type {statement.name}")


def _terminate(statement: s.Steer, catalog: Catalog, text: str) -> Applied:
    del text
    if statement.action != "TERMINATE":
        raise refusal(statement.at, f"{statement.action} cannot be run here")
    if statement.query_id is None:
        catalog.queries.clear()
        return Applied("Queries terminated")
    if catalog.queries.pop(statement.query_id, None) is None:
        raise refusal(statement.at, f"Unknown queryId: {statement.query_id}")
    return Applied(f"Query {statement.query_id} terminated")


def _set(statement: s.SetProperty, catalog: Catalog, text: str) -> Applied:
    del text
    catalog.settings[statement.name] = statement.value
    return Applied(f"{statement.name} is {statement.value}")


def _unset(statement: s.UnsetProperty, catalog: Catalog, text: str) -> Applied:
    del text
    catalog.settings.pop(statement.name, None)
    return Applied(f"{statement.name} is unset")


def _define(statement: s.Define, catalog: Catalog, text: str) -> Applied:
    del text
    catalog.variables[statement.name] = statement.value
    return Applied(f"{statement.name} is {statement.value}")


def _undefine(statement: s.Undefine, catalog: Catalog, text: str) -> Applied:
    del text
    catalog.variables.pop(statement.name, None)
    return Applied(f"{statement.name} is undefined")


def _query(statement: Query, catalog: Catalog, text: str) -> Applied:
    del catalog, text
    raise refusal(statement.at, "a SELECT alone cannot be run here", "CREATE STREAM ... AS SELECT writes a topic.")


_HANDLERS: dict[type, Callable[[Any, Catalog, str], Applied]] = {
    s.CreateSource: _create_source,
    s.CreateAs: _create_as,
    s.InsertInto: _insert_into,
    s.InsertValues: _insert_values,
    s.DropSource: _drop,
    s.AlterSource: _alter,
    s.CreateType: _create_type,
    s.DropType: _drop_type,
    s.Steer: _terminate,
    s.SetProperty: _set,
    s.UnsetProperty: _unset,
    s.Define: _define,
    s.Undefine: _undefine,
    Query: _query,
}


def partitions_of(analysed: Analysed, catalog: Catalog) -> int:
    """Return the partition count of the first source of a query, which its sink has unless another is given."""
    return catalog.topics.get(analysed.start.reads[0].source.topic, 1)


def sink_of(statement: s.CreateAs, properties: Properties, analysed: Analysed, catalog: Catalog) -> Source:
    """Return the source of a CREATE ... AS: formats are those of the first source unless others are given.

    Raises:
        SqlError: The formats cannot hold the columns, or a property does not fit.
    """
    columns = analysed.columns
    first = analysed.start.reads[0].source
    has_key = any(column.is_key for column in columns)
    if not has_key:
        if properties.text("KEY_FORMAT") is not None and properties.format_name("KEY") != "NONE":
            raise refusal(
                properties.at("KEY_FORMAT"), "KEY_FORMAT (the key format) is set, and the stream has no key columns."
            )
        key: DataFormat | None = DataFormat("NONE")
    else:
        default = properties.default_formats(catalog)[0]
        inherited = analysed.step.key_format
        key = properties.format("KEY", inherited if inherited.name != "NONE" else None, default)
    value = properties.format("VALUE", first.value_format, None)
    assert key is not None and value is not None, "a source has formats"  # noqa: S101, PT018
    _check_schema(properties, columns, (key, value), properties.text("KAFKA_TOPIC") or statement.name, catalog)
    count = sum(not column.is_key for column in columns)
    value = wrapping(properties.flag("WRAP_SINGLE_VALUE"), value, count, catalog, properties.at("WRAP_SINGLE_VALUE"))
    check_formats(columns, key, value, statement.at)
    timestamp = properties.timestamp()
    if timestamp is not None:
        check_timestamp(timestamp, columns, properties.at("TIMESTAMP"))
    topic = properties.text("KAFKA_TOPIC") or _topic_of(statement, catalog)
    return Source(
        name=statement.name,
        kind=statement.kind,
        columns=columns,
        topic=topic,
        key_format=key,
        value_format=value,
        window=analysed.step.window,
        timestamp=timestamp,
        partitions=properties.number("PARTITIONS") or _number(catalog, "ksql.sink.partitions"),
        replicas=properties.number("REPLICAS") or _number(catalog, "ksql.sink.replicas"),
    )


def _topic_of(statement: s.CreateAs, catalog: Catalog) -> str:
    """Return the topic that has the name of its stream or table."""
    topic = f"{catalog.setting('ksql.output.topic.name.prefix')}{statement.name}"
    try:
        return check_name(topic, "topic")
    except TopologyError as error:
        raise refusal(
            statement.at, f"{statement.name} cannot be a topic's name: {error.message}", "Add WITH (KAFKA_TOPIC='...')."
        ) from None


def _check_schema(
    properties: Properties,
    columns: Sequence[SourceColumn],
    forms: tuple[DataFormat, DataFormat],
    topic: str,
    catalog: Catalog,
) -> None:
    """Refuse columns that the schema of KEY_SCHEMA_ID or VALUE_SCHEMA_ID has not, or in another order."""
    for part, form in zip(("KEY", "VALUE"), forms, strict=True):
        setting = f"{part}_SCHEMA_ID"
        if properties.text(setting) is None or catalog.infer is None:
            continue
        held = [(column.name, column.type) for column in columns if column.is_key == (part == "KEY")]
        inferred = catalog.infer(topic, part.lower(), form)
        if inferred is None:
            continue  # several messages, or none of that name: the format says so when it writes
        if list(inferred)[: len(held)] != held:
            shown = ", ".join(f"{quoted(name)} {kind}" for name, kind in held if (name, kind) not in inferred)
            schema_text = ", ".join(f"{quoted(name)} {kind}" for name, kind in inferred)
            raise refusal(
                properties.at(setting),
                f"The {part.lower()} columns [{shown}] differ from the schema of the registry, [{schema_text}], "
                "by type, name or order",
            )


def _number(catalog: Catalog, name: str) -> int | None:
    text = catalog.setting(name)
    return int(text) if text.isdigit() else None


# Scripts


def steps_of(text: str, catalog: Catalog) -> Iterator[Applied]:
    """Apply the statements of a script to a catalog one after the other.

    Raises:
        SqlError: A statement is refused; those before it have been applied.
    """
    for parsed in parse_script(text, catalog.variables):
        try:
            yield apply(parsed.statement, catalog, parsed.text)
        except SqlSyntaxError:
            raise
        except SqlError as error:
            raise located(text, error, parsed.at) from error


def apply_script(text: str, catalog: Catalog) -> tuple[Catalog, list[Applied]]:
    """Apply a script as a whole: the catalog behind it, and the effect of each statement.

    Raises:
        SqlError: A statement is refused; the catalog that was given is as before.

    >>> script = "CREATE STREAM a (v INT) WITH (kafka_topic='a', value_format='JSON');"
    >>> catalog, effects = apply_script(script + "CREATE STREAM b AS SELECT v + 1 AS w FROM a;", Catalog())
    >>> [effect.message for effect in effects], catalog.sources["B"].schema()
    (['Stream A created', 'Created query with ID CSAS_B_0'], '`W` INTEGER')
    """
    changed = catalog.copy()
    return changed, list(steps_of(text, changed))
