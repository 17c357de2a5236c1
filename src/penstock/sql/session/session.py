"""A session: statements in, results out; persistent queries run until it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from penstock.errors import InvalidStateError, SqlError, SqlSyntaxError
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from penstock.sql.analyse import located, refusal
from penstock.sql.catalog import Catalog
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query as QueryNode
from penstock.sql.parse.tokens import quoted
from penstock.sql.queries import select
from penstock.sql.queries.host import CommittedQueries
from penstock.sql.results import Rows, StatementResult
from penstock.sql.session import changing_statements as changing
from penstock.sql.session import describing_statements as describing
from penstock.sql.session import topic_statements
from penstock.sql.session.journal import JournalEntry
from penstock.sql.session.persistent_queries import SessionQuery
from penstock.sql.session.session_settings import SessionSettings
from penstock.sql.session.workspace import StatementScope, Workspace

__all__ = ["SqlSession", "exported"]

Handler = Callable[[Parsed, Workspace], StatementResult]
MOST_SCRIPTS = 10
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
    s.Steer: changing.steer,
    s.SetProperty: changing.set_property,
    s.UnsetProperty: changing.set_property,
    s.Define: changing.of_session,
    s.Undefine: changing.of_session,
    s.Show: describing.show,
    s.Describe: describing.describe,
    s.DescribeAll: describing.describe_all,
    s.Explain: describing.explain,
    s.Print: topic_statements.print_topic,
    s.AssertTopic: topic_statements.assert_topic,
    s.AssertSchema: topic_statements.assert_schema,
    s.AssertValues: topic_statements.assert_of_tests,
    s.AssertTombstone: topic_statements.assert_of_tests,
    s.AssertSource: topic_statements.assert_of_tests,
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
        scripts: Whether RUN SCRIPT may read files; not for statements that come from elsewhere.
        functions: Python functions, or modules with such, that statements of earlier sessions call.

    Raises:
        SqlError: A statement of an earlier session cannot be applied, as a Python function that it calls is missing.
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
        scripts: bool = False,
        functions: Sequence[Any] = (),
    ) -> None:
        self._scripts, self._runs_scripts = 0, scripts
        self.settings = SessionSettings.of(config)
        self._lock = threading.RLock()
        self._committed = CommittedQueries(self.app_settings)
        self._work = Workspace(self.settings, open_log(self.settings.log, self.settings.app), spark, functions)
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

    def register(self, *functions: Any) -> tuple[str, ...]:
        """Make decorated Python functions, or those of modules, functions of the statements that follow.

        Args:
            functions: Functions and classes with ``@udf``, ``@udaf`` or ``@udtf``, or modules with such.

        Raises:
            SqlFunctionError: One is none, or its name is that of a built-in function.
        """
        return self._work.catalog.functions.add(*functions)

    @property
    def catalog(self) -> Catalog:
        """Streams, tables, types, settings and plans. Statements replace it: do not keep it."""
        return self._work.shared

    def scope(self, settings: Mapping[str, str], variables: Mapping[str, str]) -> StatementScope:
        """Return settings and variables for `execute` that hold for one request alone, over those of the session."""
        catalog = self.catalog
        return StatementScope({**catalog.settings, **settings}, {**catalog.variables, **variables})

    @property
    def log(self) -> TopicLog:
        """The topic log."""
        return self._work.log

    @property
    def queries(self) -> Mapping[str, SessionQuery]:
        """The persistent queries by id."""
        return self._work.queries

    @property
    def committed(self) -> CommittedQueries:
        """The committed state of queries that do not run in this process."""
        return self._committed

    @property
    def holder(self) -> str | None:
        """The process that runs this catalog's queries, if it is not this session; then it cannot be changed here."""
        return self._work.holder

    def export(self) -> str:
        """Return the statements that make the present streams, tables, types and queries again, as plain SQL."""
        return exported(self._work)

    def app_settings(self, query_id: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of the application of a query."""
        return self.settings.app_settings(query_id, settings)

    def execute(self, text: str, scope: StatementScope | None = None) -> list[StatementResult]:
        """Run statements in their order.

        Args:
            text: Statements with semicolons between them.
            scope: Settings and variables in place of those of the session, which SET and DEFINE then leave alone.

        Returns:
            One result for each statement.

        Raises:
            SqlError: A statement is refused; those before it have run, those behind it have not. If the text is not
                SQL, nothing has run.
        """
        with self._lock, self._work.scoped(scope):
            if self._closed:
                raise InvalidStateError("the session is closed", hint="Make a new SqlSession.")
            statements = parse_script(text, self._work.catalog.variables, tests=True)
            return [result for parsed in statements for result in self._located(text, parsed)]

    def _located(self, text: str, parsed: Parsed) -> list[StatementResult]:
        try:
            if isinstance(parsed.statement, s.RunScript):
                return self._script(parsed.statement)
            return [self._one(parsed)]
        except SqlSyntaxError:
            raise
        except SqlError as error:
            raise located(text, error, parsed.at) from error

    def _script(self, statement: s.RunScript) -> list[StatementResult]:
        if self._scripts >= MOST_SCRIPTS:
            raise refusal(statement.at, f"RUN SCRIPT: more than {MOST_SCRIPTS} scripts run each other")
        path = Path(statement.path).expanduser()
        if not self._runs_scripts:
            raise refusal(statement.at, "RUN SCRIPT is for prompts and files", "Send the statements of the file.")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise refusal(statement.at, f"The script {path} cannot be read: {reason}") from error
        self._scripts += 1
        try:
            return self.execute(text)
        except SqlError as error:
            raise SqlError(f"{path}: {error.message}", hint=error.hint) from error
        finally:
            self._scripts -= 1

    def _one(self, parsed: Parsed) -> StatementResult:
        statement = parsed.statement
        if isinstance(statement, QueryNode):
            return select(statement, parsed.text, self)
        handler = HANDLERS.get(type(statement))
        if handler is None:
            raise refusal(
                statement.at,
                "Connectors are not run by Penstock SQL",
                "`penstock topics produce` and Kafka Connect write topics; see docs/sql/from-ksqldb.md.",
            )
        return handler(parsed, self._work)

    def table(self, name: str) -> Rows:
        """Read all rows of a table, or of a stream as it is now: ``SELECT * FROM name``.

        Args:
            name: Its name; the case matters only for names that were made in quotes.

        Raises:
            SqlError: There is none of this name.
        """
        source_name = name if name in self.catalog.sources else name.upper()
        (rows,) = self.execute(f"SELECT * FROM {quoted(source_name)};")  # noqa: S608 - quoted
        assert isinstance(rows, Rows)  # noqa: S101 - a SELECT without EMIT
        return rows

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
        self._committed.close()
        self._work.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def exported(work: Workspace) -> str:
    """Return the journal's statements whose streams, tables, types and queries are still there, with their settings."""
    lines: list[str] = []
    settings: Mapping[str, str] = {}
    for entry, parsed in _kept(work):
        own = {name: value for name, value in entry.settings.items() if work.settings.statements.get(name) != value}
        lines += [f"UNSET '{name}';" for name in settings if name not in own]
        changed = {name: value for name, value in own.items() if settings.get(name) != value}
        lines += [f"SET '{name}' = '{value.replace(chr(39), chr(39) * 2)}';" for name, value in changed.items()]
        settings = own
        lines.append(f"{parsed.text.strip()};")
    return "\n".join([*lines, ""]) if lines else ""


def _kept(work: Workspace) -> Iterator[tuple[JournalEntry, Parsed]]:
    entries = [(entry, parsed) for entry in work.journal.read() for parsed in parse_script(entry.text)]
    last_made: dict[tuple[str, str], int] = {}
    for number, (_, parsed) in enumerate(entries):
        statement = parsed.statement
        if isinstance(statement, s.CreateSource | s.CreateAs):
            last_made["source", statement.name] = number
        elif isinstance(statement, s.CreateType):
            last_made["type", statement.name] = number
    inserts = _inserts(work.catalog)
    for number, (entry, parsed) in enumerate(entries):
        statement = parsed.statement
        match statement:
            case s.CreateSource(name=name) | s.CreateAs(name=name):
                if name in work.catalog.sources and last_made.get(("source", name)) == number:
                    yield entry, parsed
            case s.AlterSource(name=name):
                if name in work.catalog.sources and last_made.get(("source", name), number) < number:
                    yield entry, parsed
            case s.CreateType(name=name):
                if name in work.catalog.types and last_made.get(("type", name)) == number:
                    yield entry, parsed
            case s.InsertInto():
                if parsed.text in inserts:
                    yield entry, parsed
            case s.Steer(action="PAUSE", query_id=str(query_id)):
                if query_id in work.paused:
                    yield entry, parsed


def _inserts(catalog: Catalog) -> set[str]:
    return {plan.text for plan in catalog.queries.values() if not plan.text.lstrip().upper().startswith("CREATE")}
