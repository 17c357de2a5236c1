"""Answers to statements, and errors, as ksqlDB's documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.secrets import shown
from penstock.errors import ConfigError, PenstockError, SqlError
from penstock.sql.analyse.statements import library_of
from penstock.sql.catalog import Source
from penstock.sql.parse import Parsed
from penstock.sql.parse import statement_nodes as s
from penstock.sql.results import Described, Explained, Listing, QueryStarted, StatementResult, Status
from penstock.sql.session import SqlSession
from penstock.sql.session.describing_statements import errors_of
from penstock.sql.session.workspace import StatementScope
from penstock.sql.types import ArrayType, DecimalType, MapType, SqlType, StructType
from penstock.sql.types.sql_type import base_name

__all__ = ["BadRequestError", "RefusedStatementError", "document", "entity", "shown_refusal", "status_of"]

BAD_REQUEST = 40000
BAD_STATEMENT = 40001
QUERY_ENDPOINT = 40002
NOT_FOUND = 40400
TOO_MANY = 42900
SERVER_ERROR = 50000


class BadRequestError(PenstockError):
    """A request that the server cannot take.

    Cause: A body that is not JSON, lacks a field, or has a value of another type; an id that the server does not know.

    Remedy: Send what the message asks for; docs/sql/server.md has an example for each endpoint.
    """

    def __init__(self, message: str, code: int = BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = code


class RefusedStatementError(PenstockError):
    """A statement of a request that was refused, with the answers of those before it.

    Cause: The statement; the error that it holds has the reason.

    Remedy: Correct the statement. Those before it have run.
    """

    def __init__(self, error: PenstockError, statement: str, entities: list[dict[str, Any]], code: int) -> None:
        super().__init__(str(error))
        self.statement = statement
        self.entities = entities
        self.code = code


def document(error: PenstockError) -> dict[str, Any]:
    """Return the document of an error.

    >>> document(BadRequestError("no body"))["error_code"]
    40000
    """
    if isinstance(error, RefusedStatementError):
        details = {"statementText": error.statement, "entities": error.entities}
        return {**_document("statement_error", error.code, error.message), **details}
    if isinstance(error, BadRequestError):
        return _document("generic_error", error.code, error.message)
    if isinstance(error, SqlError | ConfigError):
        return _document("statement_error", BAD_STATEMENT, str(error))
    return _document("generic_error", SERVER_ERROR, str(error))


def _document(kind: str, code: int, message: str) -> dict[str, Any]:
    return {"@type": kind, "error_code": code, "message": message, "stackTrace": []}


def status_of(problem: dict[str, Any]) -> int:
    """Return the HTTP status of an error's document."""
    return int(problem["error_code"]) // 100


def shown_refusal(status: int, message: str) -> dict[str, Any]:
    """Return the document of a request that is refused before it is looked at."""
    return _document("generic_error", status * 100, message)


Document = dict[str, Any]


def entity(
    parsed: Parsed, result: StatementResult, session: SqlSession, scope: StatementScope, number: int
) -> Document | None:
    """Return the document of a statement that has run; None for those that ksqlDB answers with nothing.

    Args:
        parsed: The statement.
        result: Its result.
        session: The session that it ran in.
        scope: The settings and variables of its request.
        number: The number of the command.
    """
    body = _entity(parsed, result, session, scope, number)
    return None if body is None else {**body, "statementText": f"{parsed.text.rstrip(';')};", "warnings": []}


def _entity(
    parsed: Parsed, result: StatementResult, session: SqlSession, scope: StatementScope, number: int
) -> Document | None:
    statement = parsed.statement
    match result:
        case Listing() if isinstance(statement, s.Show) and statement.what == "PROPERTIES":
            return _properties(session, scope)
        case Listing() if isinstance(statement, s.Show) and statement.what == "VARIABLES":
            return _variables(scope)
        case Listing() if isinstance(statement, s.Show):
            return _LISTED[statement.what](session)
        case Described(name=name) if isinstance(statement, s.Describe) and statement.kind == "SOURCE":
            return {"@type": "sourceDescription", "sourceDescription": _source(session.catalog.sources[name], session)}
        case Described():
            return _function(result)
        case Explained():
            return {"@type": "queryDescription", "queryDescription": _explained(result, session)}
        case Listing():
            rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
            return {"@type": "source_descriptions", "sourceDescriptions": rows}
        case Status(text=text):
            return _status(statement, text, result.id if isinstance(result, QueryStarted) else None, number)
    return None


def _status(statement: s.Statement, text: str, query_id: str | None, number: int) -> Document | None:
    if isinstance(statement, s.InsertValues | s.SetProperty | s.UnsetProperty | s.Define | s.Undefine):
        return None
    if isinstance(statement, s.AssertTopic):
        return {"@type": "assert_topic", "topicName": statement.topic, "exists": statement.exists}
    if isinstance(statement, s.AssertSchema):
        named = {"subject": statement.subject, "id": statement.schema_id}
        return {"@type": "assert_schema", **named, "exists": statement.exists}
    return {
        "@type": "currentStatus",
        "commandId": command_id(statement),
        "commandStatus": {"status": "SUCCESS", "message": text, "queryId": query_id},
        "commandSequenceNumber": number,
    }


def command_id(statement: s.Statement) -> str:
    """Return the id of a command, by which `/status` finds it: kind, name, what it does.

    >>> from penstock.sql.parse import parse_statement
    >>> command_id(parse_statement("DROP STREAM clicks;"))
    'stream/`CLICKS`/drop'
    """
    match statement:
        case s.CreateSource(kind=kind, name=name) | s.CreateAs(kind=kind, name=name):
            return f"{kind.lower()}/`{name}`/create"
        case s.DropSource(kind=kind, name=name):
            return f"{kind.lower()}/`{name}`/drop"
        case s.AlterSource(kind=kind, name=name):
            return f"{kind.lower()}/`{name}`/alter"
        case s.InsertInto(name=name):
            return f"stream/`{name}`/create"
        case s.CreateType(name=name):
            return f"type/{name}/create"
        case s.DropType(name=name):
            return f"type/{name}/drop"
        case s.Steer(action=action, query_id=query_id):
            return f"{action.lower()}/{query_id or 'ALL'}/execute"
    return f"cluster/{type(statement).__name__}/alter"


def _listed(source: Source) -> Document:
    return {
        "type": source.kind,
        "name": source.name,
        "topic": source.topic,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "isWindowed": source.window is not None,
    }


def _sources(session: SqlSession, kind: str) -> list[Document]:
    sources = sorted(session.catalog.sources.values(), key=lambda source: source.name)
    return [_listed(source) for source in sources if source.kind == kind]


def _topics(session: SqlSession) -> Document:
    topics = [{"name": topic.name, "replicaInfo": [1] * topic.partitions} for topic in session.log.topics()]
    return {"@type": "kafka_topics", "topics": topics}


def _queries(session: SqlSession) -> Document:
    entries = []
    for query_id, query in session.queries.items():
        plan, state = query.plan, query.state
        entries.append(
            {
                "id": query_id,
                "queryString": plan.text,
                "sinks": [plan.sink],
                "sinkKafkaTopics": [plan.target.topic],
                "queryType": "PERSISTENT",
                "state": state,
                "statusCount": {state: 1},
                "errorCounts": dict(query.errors),
            }
        )
    return {"@type": "queries", "queries": entries}


def _functions(session: SqlSession) -> Document:
    library = library_of(session.catalog)
    registries = (("SCALAR", library.scalars), ("AGGREGATE", library.aggregates), ("TABLE", library.tables))
    functions = [
        {"name": function.name, "type": kind, "category": getattr(function, "family", "aggregates")}
        for kind, registry in registries
        for function in registry
    ]
    return {"@type": "function_names", "functions": sorted(functions, key=lambda each: each["name"])}


def _properties(session: SqlSession, scope: StatementScope) -> Document:
    settings: Mapping[str, Any] = {**session.settings.app, **scope.settings}
    properties = [
        {"name": name, "scope": "KSQL" if name.startswith("ksql.") else "STREAMS", "value": str(shown(name, value))}
        for name, value in sorted(settings.items())
    ]
    overwritten = sorted(scope.settings)
    return {
        "@type": "properties",
        "properties": properties,
        "overwrittenProperties": overwritten,
        "defaultProperties": [],
    }


def _types(session: SqlSession) -> Document:
    return {"@type": "type_list", "types": {n: described_type(kind) for n, kind in session.catalog.types.items()}}


def _variables(scope: StatementScope) -> Document:
    variables = [{"name": name, "value": value} for name, value in sorted(scope.variables.items())]
    return {"@type": "variables", "variables": variables}


_LISTED: Mapping[str, Callable[[SqlSession], Document]] = {
    "STREAMS": lambda session: {"@type": "streams", "streams": _sources(session, "STREAM")},
    "TABLES": lambda session: {"@type": "tables", "tables": _sources(session, "TABLE")},
    "TOPICS": _topics,
    "QUERIES": _queries,
    "FUNCTIONS": _functions,
    "TYPES": _types,
}


def described_type(kind: SqlType) -> Document:
    """Return a type as a document: its base, the type of its elements, its fields.

    >>> from penstock.sql.types import INTEGER
    >>> described_type(ArrayType(INTEGER))["memberSchema"]["type"]
    'INTEGER'
    """
    document: Document = {"type": base_name(kind), "fields": None, "memberSchema": None}
    match kind:
        case ArrayType(element):
            document["memberSchema"] = described_type(element)
        case MapType(_, value):
            document["memberSchema"] = described_type(value)
        case StructType(fields):
            document["fields"] = [{"name": field.name, "schema": described_type(field.type)} for field in fields]
        case DecimalType(precision, scale):
            document["parameters"] = {"precision": precision, "scale": scale}
    return document


def _source(source: Source, session: SqlSession) -> Document:
    catalog = session.catalog
    writers = catalog.writers(source.name)
    failed = [f"{query.id}: {errors_of(query)}" for query in map(session.queries.get, writers) if query is not None]
    fields = [
        {"name": column.name, "schema": described_type(column.type), **({"type": "KEY"} if column.is_key else {})}
        for column in source.columns
    ]
    return {
        "name": source.name,
        "windowType": None if source.window is None else source.window.kind,
        "readQueries": [{"id": query_id} for query_id in catalog.readers(source.name)],
        "writeQueries": [{"id": query_id} for query_id in writers],
        "fields": fields,
        "type": source.kind,
        "timestamp": source.timestamp.name if source.timestamp is not None else "",
        "statistics": "",
        "errorStats": "; ".join(failed),
        "extended": False,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "topic": source.topic,
        "partitions": catalog.topics.get(source.topic, source.partitions or 0),
        "replication": source.replicas or 1,
        "statement": source.text,
    }


def _function(described: Described) -> Document:
    facts = dict(described.facts)
    functions = [{"arguments": [], "returnType": "", "signature": name} for name, _, _ in described.columns]
    return {
        "@type": "describe_function",
        "name": described.name,
        "description": facts.get("meaning", ""),
        "functions": functions,
    }


def _explained(explained: Explained, session: SqlSession) -> Document:
    query = session.queries.get(explained.id)
    return {
        "id": explained.id,
        "statementText": query.plan.text if query is not None else explained.statement,
        "sources": list(explained.plan.get("reads", [])),
        "sinks": [query.plan.sink] if query is not None else [],
        "topology": explained.topology,
        "executionPlan": explained.plan,
        "queryType": "PERSISTENT",
        "state": query.state if query is not None else None,
        "queryErrors": [] if query is None or query.error is None else [{"errorMessage": query.error.message}],
        "errorCounts": {} if query is None else dict(query.errors),
    }
