"""Scripts as applications: all queries of a file in one topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.api.builder import StreamsBuilder
from penstock.errors import SqlError, SqlSyntaxError
from penstock.log.base import TopicLog
from penstock.log.groups.group_admin import lag
from penstock.sql.analyse import Applied, QueryPlan, apply, located, refusal
from penstock.sql.catalog import Catalog
from penstock.sql.compile import compile_query
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.session.changing_statements import write_row
from penstock.sql.session.session_settings import SessionSettings
from penstock.sql.session.stream_topics import ensure_sink, ensure_source
from penstock.sql.session.workspace import inference

if TYPE_CHECKING:
    from penstock.topology.topology import Topology

__all__ = ["Script"]

DONE = (
    s.CreateSource, s.CreateAs, s.InsertInto, s.InsertValues, s.DropSource, s.AlterSource, s.CreateType, s.DropType,
    s.SetProperty, s.UnsetProperty, s.Define, s.Undefine,
)  # fmt: skip


@dataclass(slots=True)
class Script:
    """A script, analysed against an empty catalog: its queries make one application.

    A stream or table that one query writes and another reads goes through its topic, as in ksqlDB.

    Attributes:
        text: The statements.
        settings: The settings of the session that runs it.
        topics: The partition counts of the topics that are there.
        catalog: What the statements have made.
        steps: The statements with their effects.

    Raises:
        SqlError: A statement is refused, or is none for scripts. Nothing has been made.
    """

    text: str
    settings: SessionSettings
    topics: Mapping[str, int] = field(default_factory=dict)
    catalog: Catalog = field(init=False)
    steps: list[tuple[Parsed, Applied]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = Catalog(
            infer=inference(self.settings.app), topics=dict(self.topics), functions=self.settings.functions()
        )
        self.catalog.settings.update(self.settings.statements)
        for parsed in parse_script(self.text, tests=True):
            with _located(self.text, parsed):
                if not isinstance(parsed.statement, DONE):
                    raise refusal(
                        parsed.statement.at,
                        "a script that runs as an application takes no such statement",
                        "It is for the prompt (penstock sql) or penstock sql -e. Here stand CREATE, INSERT, DROP, "
                        "ALTER, SET and DEFINE.",
                    )
                self.steps.append((parsed, apply(parsed.statement, self.catalog, parsed.text)))
        self._check_settings()

    @property
    def plans(self) -> list[QueryPlan]:
        """The plans of its queries in their order."""
        return list(self.catalog.queries.values())

    def _check_settings(self) -> None:
        """Refuse queries with different settings of their application, as they have one."""
        first: dict[str, Any] | None = None
        for parsed, applied in self.steps:
            if applied.query is None or applied.query.id not in self.catalog.queries:
                continue
            own = self.settings.app_settings("", dict(applied.query.settings))
            if first is not None and own != first:
                changed = sorted(name for name in {*own, *first} if own.get(name) != first.get(name))
                raise located(
                    self.text,
                    refusal(
                        parsed.statement.at,
                        f"this query has another {', '.join(changed)} than those before it, and a script is one "
                        "application",
                        "Put SET before the first query, or run the statements in a session (penstock sql).",
                    ),
                    parsed.at,
                )
            first = own

    def topology(self) -> Topology:
        """Return the topology of all queries.

        Raises:
            SqlError: There is no query.
        """
        if not self.plans:
            raise SqlError(
                "the script has no query, so there is nothing to run",
                hint="CREATE STREAM ... AS SELECT, CREATE TABLE ... AS SELECT and INSERT INTO ... SELECT are queries.",
            )
        builder = StreamsBuilder()
        for plan in self.plans:
            compile_query(plan, builder, None, f"{plan.id}-")
        return builder.build()

    def app_settings(self, application_id: str) -> dict[str, Any]:
        """Return the settings of the application."""
        own = dict(self.plans[0].settings) if self.plans else {}
        return {**self.settings.app_settings("", own), "application.id": application_id}

    def prepare(self, log: TopicLog, application_id: str) -> None:
        """Make the topics that are missing; before the first run of the application, write the rows of INSERT VALUES.

        Raises:
            SqlError: A topic is missing, and the script does not say how many partitions it has.
        """
        is_new = not log.committed_offsets(application_id) and log.lease(application_id) is None
        for parsed, applied in self.steps:
            with _located(self.text, parsed):
                statement = parsed.statement
                if isinstance(statement, s.CreateSource) and applied.source is not None:
                    ensure_source(log, applied.source, statement)
                elif applied.query is not None:
                    properties = statement.properties if isinstance(statement, s.CreateAs) else ()
                    count = self.catalog.topics.get(applied.query.target.topic, 1)
                    ensure_sink(log, applied.query, count, properties)
                elif applied.row is not None and is_new:
                    write_row(log, applied.row, self.settings.app)

    def has_more(self, log: TopicLog, application_id: str) -> bool:
        """Return whether a run to the latest records has written records that a query of the script reads."""
        written = {plan.sink for plan in self.plans}
        reads_its_own = any(name in written for plan in self.plans for name in plan.reads)
        return reads_its_own and any(each.lag for each in lag(log, application_id))


class _located:  # noqa: N801 - a block, not a thing
    """Errors of the block show the line of the script."""

    def __init__(self, text: str, parsed: Parsed) -> None:
        self._text, self._parsed = text, parsed

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SqlError) and not isinstance(error, SqlSyntaxError):
            raise located(self._text, error, self._parsed.at) from error
