"""What the statements of a session work on: log, catalog, journal, running queries, columns of a registry."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, InvalidStateError, PenstockError, SqlError
from penstock.log.base import TopicLog
from penstock.log.leases import LeaseKeeper
from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES
from penstock.sql.analyse import Applied, apply
from penstock.sql.catalog import Catalog, DataFormat
from penstock.sql.compile.serdes import format_properties
from penstock.sql.formats import inferred_columns
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse.statement_nodes import Steer
from penstock.sql.parse.tokens import tokenize
from penstock.sql.session.journal import JournalEntry, StatementJournal
from penstock.sql.session.persistent_queries import QueryRunner, SessionQuery
from penstock.sql.session.session_settings import SessionSettings
from penstock.sql.session.stream_topics import known_topics
from penstock.sql.types import SqlType

__all__ = ["StatementScope", "Workspace", "inference"]

Infer = Callable[[str, str, DataFormat], Sequence[tuple[str, SqlType]] | None]


def inference(app: Mapping[str, Any]) -> Infer | None:
    """Make the function that finds the columns of a topic's keys or values; None without a registry in the settings."""
    registry = {name: str(value) for name, value in app.items() if name.startswith(REGISTRY_PREFIXES)}
    if "schema.registry.url" not in registry:
        return None

    def infer(topic: str, part: str, form: DataFormat) -> Sequence[tuple[str, SqlType]] | None:
        return inferred_columns(form.name, topic, replace(format_properties(form, part), registry=registry))

    return infer


_log = own_logger(__name__)
LEASE_MS = 30_000


@dataclass(frozen=True, slots=True)
class StatementScope:
    """Settings and variables of one request, in place of those of the session.

    Attributes:
        settings: What SET and UNSET of the request change.
        variables: What DEFINE and UNDEFINE of the request change, by names in upper case.
    """

    settings: dict[str, str]
    variables: dict[str, str]


class Workspace:
    """The catalog, the journal and the queries that the statements of a session work on.

    One session at a time may change a catalog, and runs its queries: it has the lease ``<service id>sql`` of the log.
    Others may look at it.

    Args:
        settings: The settings of the session.
        log: The log; closed with the workspace.
        spark: The Spark session to run in.
        functions: Python functions, beside those of the settings.

    Raises:
        SqlError: A statement of the catalog cannot be applied; nothing is held or open.

    Attributes:
        shared: Streams, tables, types, and the settings and variables of the session.
        runner: The persistent queries.
        paused: The ids of queries that PAUSE has stopped.
        runs: Whether queries run as soon as they are made.
        holder: The session that may change the catalog, if it is not this one.
    """

    def __init__(
        self, settings: SessionSettings, log: TopicLog, spark: Any = None, functions: Sequence[Any] = ()
    ) -> None:
        self.settings = settings
        self.log = log
        self.runner = QueryRunner(settings, spark)
        self.holder: str | None = None
        self.paused: set[str] = set()
        self.runs = False
        self.journal = StatementJournal(log, f"_penstock-{settings.service}sql-statements")
        self.shared = Catalog(infer=inference(settings.app), functions=settings.functions())
        self._scope: StatementScope | None = None
        self._keeper: LeaseKeeper | None = None
        self._closed = threading.Event()
        try:
            self.catalog.functions.add(*functions)
            self._take_lease()
            self._restore()
        except BaseException:  # also a KeyboardInterrupt in a notebook, whose process would hold the lease on
            self.close()
            raise
        self.catalog.settings.update(settings.statements)

    @property
    def catalog(self) -> Catalog:
        """The catalog that the running statement sees: within `scoped`, with the settings of its request."""
        scope = self._scope
        return (
            self.shared if scope is None else replace(self.shared, settings=scope.settings, variables=scope.variables)
        )

    @contextmanager
    def scoped(self, scope: StatementScope | None) -> Iterator[None]:
        """Run statements with the settings and variables of a request; the caller holds the session's lock."""
        before, self._scope = self._scope, scope or self._scope
        try:
            yield
        finally:
            self._scope = before

    def _take_lease(self) -> None:
        name = f"{self.settings.service}sql"
        try:
            lease = self.log.acquire_lease(name, f"sql@{socket.gethostname()}", LEASE_MS)
        except FencedError:
            held = self.log.lease(name)
            self.holder = f"process {held.pid} on {held.host}" if held is not None else "another process"
            return
        self._keeper = LeaseKeeper(self.log, lease, self._lose)
        self.journal.hold(lease)

    def _lose(self) -> None:
        self.holder = "another process"

    def _restore(self) -> None:
        """Apply the statements of the journal to the empty catalog."""
        for entry in self.journal.read():
            self.shared.topics = known_topics(self.log)
            self.shared.settings = dict(entry.settings)
            self.shared.query_count = entry.query_count
            try:
                for parsed in parse_script(entry.text):
                    self.replay(parsed)
            except SqlError as error:
                raise self._not_restored(entry, error) from error
        self.shared.settings = {}
        for plan in self.catalog.queries.values():
            self.runner.add(plan, paused=plan.id in self.paused)
        self.shared.topics = known_topics(self.log)

    def _not_restored(self, entry: JournalEntry, error: SqlError) -> SqlError:
        text = " ".join(entry.text.split())[:120]
        where = f"the catalog of service {self.settings.service!r} cannot be opened: {text}"
        declared = self.catalog.functions.declared
        missing = [f"{name} ({origin})" for name, origin in entry.functions.items() if name not in declared]
        if not missing:
            return SqlError(f"{where} cannot be applied again: {error.message}", hint=error.hint)
        return SqlError(
            f"{where} calls Python functions that are not loaded: {', '.join(missing)}",
            hint="Name their file or module: penstock sql -c ksql.extension.modules=FILE; or pass them: "
            "SqlSession(config, functions=[...]).",
        )

    def _functions_in(self, text: str) -> dict[str, str]:
        """Return the Python functions that a statement may call, each with the place where it is."""
        declared = self.catalog.functions.declared
        words = {token.key for token in tokenize(text).tokens} if declared else set()
        return {name: notes[0].about.origin for name, notes in declared.items() if notes and name in words}

    def replay(self, parsed: Parsed) -> None:
        """Apply a statement of the journal."""
        statement = parsed.statement
        if isinstance(statement, Steer) and statement.action != "TERMINATE":
            ids = self.catalog.queries if statement.query_id is None else {statement.query_id}
            self.paused = self.paused | set(ids) if statement.action == "PAUSE" else self.paused - set(ids)
            return
        apply(statement, self.catalog, parsed.text)

    @property
    def queries(self) -> Mapping[str, SessionQuery]:
        """The persistent queries by id."""
        return self.runner.queries

    def start_all(self, queries: Iterable[SessionQuery]) -> None:
        """Start queries one after the other; those that fail have their error."""
        for query in queries:
            try:
                if not self._closed.is_set():
                    self.runner.start(query)
            except PenstockError as error:
                _log.error("query %s did not start: %s", query.id, error)
            except Exception:  # noqa: BLE001 - logged; the others start all the same
                _log.exception("query %s did not start", query.id)

    def require_changes(self) -> None:
        """Refuse to change a catalog that another session holds."""
        if self.holder is not None:
            raise InvalidStateError(
                f"the catalog of service {self.settings.service!r} is in use by {self.holder}",
                hint="Run the statement there, end that session, or give this one another ksql.service.id.",
            )

    def tried(self, parsed: Parsed) -> tuple[Catalog, Applied]:
        """Return a statement's effect on a copy of the catalog, which is not yet in use."""
        changed = self.catalog.copy()
        changed.topics = known_topics(self.log)
        return changed, apply(parsed.statement, changed, parsed.text)

    def commit(self, changed: Catalog, text: str) -> None:
        """Write a statement to the journal, and use the catalog that it has made."""
        entry = JournalEntry(
            f"{text};", dict(self.catalog.settings), self.catalog.query_count, self._functions_in(text)
        )
        self.journal.append(entry)
        if self._scope is not None:
            changed = replace(changed, settings=self.shared.settings, variables=self.shared.variables)
        self.shared = changed

    def close(self) -> None:
        """Stop queries, release the lease, close the log."""
        if self._closed.is_set():
            return
        self._closed.set()
        self.runner.close()
        if self._keeper is not None and self._keeper.end():
            self.log.release_lease(self._keeper.lease)
        self.log.close()
