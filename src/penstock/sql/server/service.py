"""What the endpoints do, over one session: statements one after the other, queries and PRINT side by side."""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.base.properties import setting_text
from penstock.base.version import __version__
from penstock.errors import ConfigError, PenstockError, SqlSyntaxError
from penstock.sql.catalog import Catalog
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query
from penstock.sql.queries import answer
from penstock.sql.queries.answer import Answer
from penstock.sql.results import Stream
from penstock.sql.server.documents import (
    BAD_STATEMENT,
    NOT_FOUND,
    QUERY_ENDPOINT,
    TOO_MANY,
    BadRequestError,
    RefusedStatementError,
    entity,
)
from penstock.sql.session import SqlSession
from penstock.sql.session.session_settings import check_setting
from penstock.sql.session.workspace import StatementScope

__all__ = ["Printed", "SqlService"]

UNKNOWN = "text, or bytes in hexadecimal"


class Printed:
    """The records of a topic as text.

    Args:
        topic: The topic.
        stream: The result of the statement.
        catalog: The streams and tables, of which the first over the topic says how its records are read.
    """

    content_type = "text/plain; charset=utf-8"
    runs_on = True

    def __init__(self, topic: str, stream: Stream, catalog: Catalog) -> None:
        self.query_id = f"print_{secrets.token_hex(8)}"
        self._stream = stream
        source = next((each for each in catalog.sources.values() if each.topic == topic), None)
        forms = (UNKNOWN, UNKNOWN) if source is None else (source.key_format.name, source.value_format.name)
        self._formats = f"Key format: {forms[0]}\nValue format: {forms[1]}\n"

    def chunks(self) -> Iterator[str]:
        """Yield the lines; an empty text whenever no record comes for a while."""
        yield self._formats
        for row in self._stream.rows:
            yield "" if row is None else _line(row)

    def stop(self) -> None:
        """End the lines; from any thread, and more than once."""
        self._stream.close()


def _line(row: tuple[Any, ...]) -> str:
    r"""Return a record as ksqlDB prints it.

    >>> _line((1000, None, '{"A": 1}', 0, 5))
    'rowtime: 1970/01/01 00:00:01.000 Z, key: <null>, value: {"A": 1}, partition: 0\n'
    """
    time, key, value, partition, _ = row
    key, value = ("<null>" if part is None else part for part in (key, value))
    return f"rowtime: {_time(time)}, key: {key}, value: {value}, partition: {partition}\n"


def _time(milliseconds: int) -> str:
    try:
        at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return f"{at:%Y/%m/%d %H:%M:%S}.{milliseconds % 1000:03d} Z"


MOST_COMMANDS = 10_000  # whose status is kept
Document = dict[str, Any]


class SqlService:
    """The work of a server of Penstock SQL.

    Args:
        session: The session, which stays open when the server ends.
        most_queries: The number of push queries that may run at once; any further one is refused.
    """

    def __init__(self, session: SqlSession, *, most_queries: int = 32) -> None:
        self.session = session
        self._lock = threading.RLock()
        self._keeping = threading.Lock()
        self._most_queries = most_queries
        self._running: dict[str, Answer | Printed] = {}
        self._commands: OrderedDict[str, str] = OrderedDict()
        self._number = -1

    def run(self, body: Mapping[str, Any]) -> list[Document]:
        """Run the statements of a request to ``/ksql``; SET holds for this request alone.

        Raises:
            BadRequestError: The body has no statements.
            RefusedStatementError: A statement is refused; it has the documents of those before it.
        """
        text = _text(body, "ksql")
        with self._lock:
            scope = self.session.scope(_settings(body, "streamsProperties"), _variables(body))
            documents: list[Document] = []
            for parsed in _parsed(text, scope.variables):
                try:
                    documents += self._statement(parsed, scope)
                except BadRequestError as error:
                    raise RefusedStatementError(error, parsed.text, documents, error.code) from error
                except PenstockError as error:
                    raise RefusedStatementError(error, parsed.text, documents, BAD_STATEMENT) from error
            return documents

    def _statement(self, parsed: Parsed, scope: StatementScope) -> list[Document]:
        statement = parsed.statement
        if isinstance(statement, Query | s.Print):
            raise BadRequestError(
                "SELECT and PRINT queries must use the /query endpoint. Send them there, or to /query-stream.",
                QUERY_ENDPOINT,
            )
        documents = []
        for result in self.session.execute(f"{parsed.text};", scope):
            self._number += 1
            document = entity(parsed, result, self.session, scope, self._number)
            if document is not None:
                documents.append(document)
                if "commandId" in document:
                    self._remember(document["commandId"], document["commandStatus"]["message"])
        return documents

    def _remember(self, command: str, message: str) -> None:
        self._commands[command] = message
        self._commands.move_to_end(command)
        while len(self._commands) > MOST_COMMANDS:
            self._commands.popitem(last=False)

    def query(self, body: Mapping[str, Any], *, field: str, settings: str) -> Answer | Printed:
        """Start the query of a request to ``/query`` or ``/query-stream``; the first also takes PRINT.

        Args:
            body: The body.
            field: The name of the field with the statement.
            settings: The name of the field with settings.

        Raises:
            BadRequestError: It has no statement, or too many queries run.
            PenstockError: The query is refused.
        """
        text = _text(body, field)
        parsed = _parsed(text, {**self.session.catalog.variables, **_variables(body)})
        if len(parsed) != 1:
            raise BadRequestError(f"Expected exactly one KSQL statement; found {len(parsed)} instead", BAD_STATEMENT)
        statement = parsed[0].statement
        is_print = isinstance(statement, s.Print) and field == "ksql"
        if not (is_print or isinstance(statement, Query)):
            raise RefusedStatementError(
                BadRequestError("Statement type is not supported on this endpoint: send it to /ksql."),
                parsed[0].text,
                [],
                BAD_STATEMENT,
            )
        try:
            running_query = self._started(parsed[0], _settings(body, settings))
        except PenstockError as error:
            raise RefusedStatementError(error, parsed[0].text, [], BAD_STATEMENT) from error
        if running_query.runs_on and not self._noted(running_query):
            running_query.stop()
            raise BadRequestError(f"{self._most_queries} push queries run already; close one", TOO_MANY)
        return running_query

    def _noted(self, running_query: Answer | Printed) -> bool:
        """Keep a push query, which can be closed from now on; False if as many run as may."""
        with self._keeping:
            if len(self._running) >= self._most_queries:
                return False
            self._running[running_query.query_id] = running_query
            return True

    def _started(self, parsed: Parsed, settings: Mapping[str, str]) -> Answer | Printed:
        if isinstance(parsed.statement, Query):
            return answer(parsed.statement, parsed.text, self.session, settings)
        assert isinstance(parsed.statement, s.Print)  # noqa: S101 - dispatched by these
        (stream,) = self.session.execute(f"{parsed.text};")
        assert isinstance(stream, Stream)  # noqa: S101 - of PRINT
        return Printed(parsed.statement.topic, stream, self.session.catalog)

    def ended(self, running_query: Answer | Printed) -> None:
        """Stop a query whose client has gone, or that has ended."""
        running_query.stop()
        self._running.pop(running_query.query_id, None)

    def close_query(self, body: Mapping[str, Any]) -> Document:
        """End a push query.

        Raises:
            BadRequestError: No query of this id runs.
        """
        query_id = _text(body, "queryId")
        running_query = self._running.get(query_id)
        if running_query is None:
            raise BadRequestError(f"No query with id {query_id}")
        self.ended(running_query)
        return {}

    def close(self) -> None:
        """End all push queries."""
        for running_query in list(self._running.values()):
            self.ended(running_query)

    def info(self) -> Document:
        """Return the version, the log, the service id."""
        service = self.session.settings.service
        facts = {"version": __version__, "kafkaClusterId": self.session.log.identity(), "ksqlServiceId": service}
        return {"KsqlServerInfo": {**facts, "serverStatus": "RUNNING"}}

    def health(self) -> Document:
        """Return whether the log answers, and whether queries have failed."""
        parts = {"metastore": True, "kafka": self._answers(), "commandRunner": not self._failed()}
        details = {name: {"isHealthy": good} for name, good in parts.items()}
        return {"isHealthy": all(parts.values()), "details": details}

    def _answers(self) -> bool:
        try:
            self.session.log.topics()
        except PenstockError:
            return False
        return True

    def _failed(self) -> bool:
        return any(query.state == "ERROR" for query in self.session.queries.values())

    def status(self, command: str | None = None) -> Document:
        """Return the state of one command, or of all that are remembered.

        Raises:
            BadRequestError: No such command is known.
        """
        if command is None:
            return {"commandStatuses": dict.fromkeys(self._commands, "SUCCESS")}
        message = self._commands.get(command)
        if message is None:
            raise BadRequestError(f"Command not found: {command[:200]}", NOT_FOUND)
        return {"status": "SUCCESS", "message": message, "queryId": None}

    def is_valid_property(self, name: str) -> bool:
        """Return whether statements may set a property.

        Raises:
            BadRequestError: They may not.
        """
        try:
            check_setting(name, "")
        except ConfigError as error:
            if "Unknown" in error.message or "no setting" in error.message:
                raise BadRequestError(error.message) from error
        return True

    def terminate(self, body: Mapping[str, Any]) -> Document:
        """Terminate all persistent queries; sources and topics stay.

        Raises:
            BadRequestError: Topics are to be deleted, which is DROP's work.
        """
        if body.get("deleteTopicList"):
            raise BadRequestError("deleteTopicList is not supported: DROP STREAM ... DELETE TOPIC deletes a topic")
        with self._lock:
            self.session.execute("TERMINATE ALL;")
        return {"status": "SUCCESS", "message": "Queries terminated", "queryId": None}


def _parsed(text: str, variables: Mapping[str, str]) -> tuple[Parsed, ...]:
    try:
        return parse_script(text, variables)
    except SqlSyntaxError as error:
        raise RefusedStatementError(error, text, [], BAD_STATEMENT) from error


def _text(body: Mapping[str, Any], field: str) -> str:
    text = body.get(field)
    if not isinstance(text, str) or not text.strip():
        raise BadRequestError(f'the body has no text "{field}"')
    return text


def _settings(body: Mapping[str, Any], field: str) -> dict[str, str]:
    body_settings = body.get(field) or {}
    if not isinstance(body_settings, dict):
        raise BadRequestError(f'"{field}" is an object of settings')
    settings = {}
    for name, value in body_settings.items():
        plain = name.removeprefix("ksql.streams.") if name == "ksql.streams.auto.offset.reset" else name
        text = setting_text(value)
        try:
            check_setting(plain, text)
        except ConfigError as error:
            raise BadRequestError(error.message) from error
        settings[plain] = text
    return settings


def _variables(body: Mapping[str, Any]) -> dict[str, str]:
    variables = body.get("sessionVariables") or {}
    if not isinstance(variables, dict):
        raise BadRequestError('"sessionVariables" is an object of texts')
    return {name.upper(): str(value) for name, value in variables.items()}
