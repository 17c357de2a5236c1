"""A session: statements in, results out; persistent queries run until it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from penstock.errors import InvalidStateError, SqlError, SqlSyntaxError
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from penstock.sql.analyse import located
from penstock.sql.catalog import Catalog
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import command_nodes as c
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.query_nodes import Query as QueryNode
from penstock.sql.queries import select
from penstock.sql.results import StatementResult
from penstock.sql.session import changing
from penstock.sql.session.running import Query
from penstock.sql.session.settings import SessionSettings
from penstock.sql.session.workspace import Workspace

__all__ = ["SqlSession"]

Handler = Callable[[Parsed, Workspace], StatementResult]
HANDLERS: dict[type, Handler] = {
    s.CreateSource: changing.create_source,
    s.CreateAs: changing.create_as,
    s.InsertInto: changing.insert_into,
    s.InsertValues: changing.insert_values,
    s.DropSource: changing.drop,
    s.AlterSource: changing.change,
    s.AlterSystem: changing.set_property,
    s.CreateType: changing.change,
    s.DropType: changing.change,
    c.Steer: changing.steer,
    c.SetProperty: changing.set_property,
    c.UnsetProperty: changing.set_property,
    c.Define: changing.of_session,
    c.Undefine: changing.of_session,
}


class SqlSession:
    """A session of Penstock SQL over a topic log.

    What statements make outlives the session: the next one of the same log and service id goes on with it. Several
    threads may use a session; statements run one after the other.

    Args:
        config: ``bootstrap.servers`` (by default the file ``penstock.db`` in the current folder), settings of the
            language (``ksql.``), and settings of the applications that run queries, as `StreamsConfig` has them.
        queries: "run" runs persistent queries from now on; "wait" only notes them, for `catch_up` or another session.
        spark: The Spark session to run in; by default one of its own, started with the first query.

    Raises:
        ConfigError: A setting is wrong.
        LogError: The log cannot be opened, or the statements in it have been changed.

    >>> session = SqlSession({"bootstrap.servers": "memory://doc-session"}, queries="wait")
    >>> made = "CREATE STREAM clicks (page STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
    >>> [result.text for result in session.execute(made + "INSERT INTO clicks (page) VALUES ('/');")]
    ['Stream CLICKS created (topic clicks made)', 'Inserted a row into CLICKS']
    >>> session.close()
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        queries: Literal["run", "wait"] = "run",
        spark: Any = None,
    ) -> None:
        self.settings = SessionSettings.of(config)
        self._lock = threading.RLock()
        self._work = Workspace(self.settings, open_log(self.settings.log, self.settings.app), spark)
        self._work.runs = queries == "run" and self._work.holder is None
        self._closed = False
        if self._work.runs:
            self._resume()

    def _resume(self) -> None:
        """Start the queries of earlier sessions, in the background: the session can be used at once."""
        waiting = [query for query in self.queries.values() if not query.paused]
        if waiting:
            threading.Thread(
                target=self._work.start_all, args=(waiting,), name="penstock-sql-start", daemon=True
            ).start()

    @property
    def catalog(self) -> Catalog:
        """Streams, tables, types, settings and plans. Statements replace it: do not keep it."""
        return self._work.catalog

    @property
    def log(self) -> TopicLog:
        """The topic log."""
        return self._work.log

    @property
    def queries(self) -> Mapping[str, Query]:
        """The persistent queries by id."""
        return self._work.queries

    def app_settings(self, query_id: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """The settings of the application of a query."""
        return self.settings.app_settings(query_id, settings)

    def execute(self, text: str) -> list[StatementResult]:
        """Run statements in their order.

        Args:
            text: Statements with semicolons between them.

        Returns:
            One result for each statement.

        Raises:
            SqlError: A statement is refused; those before it have run, those behind it have not. If the text is no
                SQL, nothing has run.
        """
        with self._lock:
            if self._closed:
                raise InvalidStateError("the session is closed", hint="Make a new SqlSession.")
            return [self._located(text, parsed) for parsed in parse_script(text, self.catalog.variables)]

    def _located(self, text: str, parsed: Parsed) -> StatementResult:
        try:
            return self._one(parsed)
        except SqlSyntaxError:
            raise
        except SqlError as error:
            raise located(text, error, parsed.at) from error

    def _one(self, parsed: Parsed) -> StatementResult:
        statement = parsed.statement
        if isinstance(statement, QueryNode):
            return select(statement, parsed.text, self)
        handler = HANDLERS.get(type(statement))
        if handler is None:
            raise SqlError(f"{type(statement).__name__} cannot be run here yet")
        return handler(parsed, self._work)

    def catch_up(self) -> None:
        """Run the persistent queries until they have processed all records that exist now; for ``queries="wait"``.

        Raises:
            PenstockError: A query failed.
        """
        with self._lock:
            self._work.require_changes()
            self._work.runner.catch_up()

    def close(self) -> None:
        """Stop the queries, which the next session goes on with, and close the log. Safe to call twice."""
        self._closed = True
        self._work.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
