"""Statements that change the catalog, topics, queries or rows: what they do beside the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.base.nearest_name import did_you_mean
from penstock.errors import CheckpointMismatchError, PenstockError, SqlError
from penstock.log.base import TopicLog
from penstock.log.partitioner import partition_for
from penstock.serde.bound_serdes import bound, configured
from penstock.sql.analyse import InsertedRow, QueryPlan, apply, refusal
from penstock.sql.analyse.plans import has_state, obstacles
from penstock.sql.catalog import Catalog
from penstock.sql.compile import source_serdes
from penstock.sql.parse import Parsed
from penstock.sql.parse import statement_nodes as s
from penstock.sql.results import QueryStarted, StatementResult, Status
from penstock.sql.session.persistent_queries import QueryRunner, topology_of
from penstock.sql.session.session_settings import check_setting, has_effect
from penstock.sql.session.stream_topics import delete_topic, ensure_sink, ensure_source
from penstock.sql.session.workspace import Workspace

__all__ = [
    "change",
    "create_as",
    "create_source",
    "drop",
    "insert_into",
    "insert_values",
    "of_session",
    "set_property",
    "steer",
    "write_row",
]


def write_row(log: TopicLog, row: InsertedRow, app: Mapping[str, Any]) -> None:
    """Write a row as a record of its topic.

    Args:
        log: The log.
        row: The row.
        app: Settings of applications, such as those of the registry.

    Raises:
        PenstockError: The format cannot hold the values, or there is no such topic.
    """
    topic = row.source.topic
    serdes = (configured(serde, app) for serde in source_serdes(row.source))
    key_serde, value_serde = (bound(serde, topic, part) for serde, part in zip(serdes, ("key", "value"), strict=True))
    key, value = key_serde.serialize(row.key), value_serde.serialize(row.value)
    count = log.partitions(topic)
    now = unix_ms()
    columns = {
        "timestamp": pa.array([now if row.timestamp is None else row.timestamp], pa.int64()),
        "key": pa.array([key], pa.large_binary()),
        "value": pa.array([value], pa.large_binary()),
    }
    target = partition_for(key, count) if key is not None else now % count
    log.append(topic, target, pa.RecordBatch.from_pydict(columns))


def change(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do a statement that changes the catalog alone: ALTER, CREATE TYPE, DROP TYPE."""
    work.require_changes()
    changed, applied = work.tried(parsed)
    work.commit(changed, parsed.text)
    return Status(applied.message, statement=parsed.text)


def create_source(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do CREATE STREAM or TABLE over a topic, which is made if it is missing."""
    work.require_changes()
    assert isinstance(parsed.statement, s.CreateSource)  # noqa: S101 - dispatched by this type
    changed, applied = work.tried(parsed)
    if applied.source is None:
        return Status(applied.message, statement=parsed.text)
    note = ensure_source(work.log, applied.source, parsed.statement)
    work.commit(changed, parsed.text)
    return Status(f"{applied.message}{f' ({note})' if note else ''}", statement=parsed.text)


def create_as(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do CREATE ... AS SELECT: make the topic, write the journal, start the query."""
    work.require_changes()
    assert isinstance(parsed.statement, s.CreateAs)  # noqa: S101 - dispatched by this type
    changed, applied = work.tried(parsed)
    if applied.query is None:
        return Status(applied.message, statement=parsed.text)
    return _begin(parsed, work, changed, applied.query)


def insert_into(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do INSERT INTO ... SELECT."""
    work.require_changes()
    changed, applied = work.tried(parsed)
    assert applied.query is not None  # noqa: S101 - it always has one
    return _begin(parsed, work, changed, applied.query)


def _begin(parsed: Parsed, work: Workspace, changed: Catalog, plan: QueryPlan) -> StatementResult:
    topology_of(plan)  # refused here, not when it runs
    if plan.replaces is not None:
        _require_its_state(work.runner, plan, parsed)
    properties = parsed.statement.properties if isinstance(parsed.statement, s.CreateAs) else ()
    ensure_sink(work.log, plan, changed.topics.get(plan.target.topic, 1), properties)
    if plan.replaces is None:
        work.commit(changed, parsed.text)
        query = work.runner.add(plan)
        if work.runs:
            work.runner.start(query)
        return QueryStarted(f"Created query with ID {plan.id}", plan.id, statement=parsed.text)
    is_paused = plan.id in work.paused
    _replace(work.runner, plan, parsed, runs=work.runs, is_paused=is_paused)
    work.commit(changed, parsed.text)
    kept = "which continues with its state" if has_state(plan) else "which continues"
    if is_paused:
        kept = "which stays paused"
    return QueryStarted(f"Replaced query with ID {plan.id}, {kept}", plan.id, statement=parsed.text)


def _require_its_state(runner: QueryRunner, plan: QueryPlan, parsed: Parsed) -> None:
    """Refuse to replace a query by one whose state would mean something else."""
    before = runner.queries.get(plan.id)
    if before is not None and (reasons := obstacles(before.plan, plan)):
        raise _not_replaced(plan, parsed, "; ".join(reasons))


def _not_replaced(plan: QueryPlan, parsed: Parsed, reason: str) -> SqlError:
    return refusal(
        parsed.statement.at,
        f"{plan.sink} cannot be replaced with its state kept: {reason}",
        f"The query {plan.id} continues as it was. To start from nothing: DROP {plan.target.kind} {plan.sink}; "
        "then create it.",
    )


def _replace(runner: QueryRunner, plan: QueryPlan, parsed: Parsed, *, runs: bool, is_paused: bool) -> None:
    """Put a plan in the place of the one that runs under its id; it goes on with the state of that one."""
    before = runner.queries.get(plan.id)
    if before is not None:
        runner.stop(before)
    query = runner.add(plan, paused=is_paused)
    if not runs:
        return
    try:
        runner.start(query)
    except PenstockError as error:
        runner.stop(query)
        if before is not None:
            runner.queries[plan.id] = before
            runner.start(before)
        if isinstance(error, CheckpointMismatchError):
            raise _not_replaced(plan, parsed, error.message) from error
        raise


def insert_values(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do INSERT ... VALUES: write one record."""
    _, applied = work.tried(parsed)
    assert applied.row is not None  # noqa: S101 - it always has one
    write_row(work.log, applied.row, work.settings.app)
    return Status(applied.message, statement=parsed.text)


def drop(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do DROP: end the query that writes it, and delete the topic if the statement says so."""
    work.require_changes()
    assert isinstance(parsed.statement, s.DropSource)  # noqa: S101 - dispatched by this type
    source = work.catalog.sources.get(parsed.statement.name)
    changed, applied = work.tried(parsed)
    work.commit(changed, parsed.text)
    if source is None:
        return Status(applied.message, statement=parsed.text)
    if source.query is not None:
        work.paused.discard(source.query)
        work.runner.remove(source.query)
    if parsed.statement.delete_topic:
        delete_topic(work.log, source.topic)
        return Status(f"{applied.message}, and its topic {source.topic} deleted", statement=parsed.text)
    return Status(applied.message, statement=parsed.text)


def steer(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do TERMINATE, PAUSE and RESUME of one query or all."""
    work.require_changes()
    assert isinstance(parsed.statement, s.Steer)  # noqa: S101 - dispatched by this type
    statement = parsed.statement
    if statement.query_id is not None and statement.query_id not in work.queries:
        hint = did_you_mean(statement.query_id, work.queries) or "SHOW QUERIES lists the queries."
        raise refusal(statement.at, f"Unknown queryId: {statement.query_id}", hint)
    ids = [statement.query_id] if statement.query_id is not None else list(work.queries)
    if statement.action == "TERMINATE":
        changed, applied = work.tried(parsed)
        work.commit(changed, parsed.text)
        for query_id in ids:
            work.paused.discard(query_id)
            work.runner.remove(query_id)
        return Status(applied.message, statement=parsed.text)
    pauses = statement.action == "PAUSE"
    work.commit(work.catalog, parsed.text)
    for query_id in ids:
        query = work.queries[query_id]
        query.paused = pauses
        (work.paused.add if pauses else work.paused.discard)(query_id)
        if pauses:
            work.runner.stop(query)
        elif query.app is None and work.runs:
            work.runner.start(query)
    word = "paused" if pauses else "resumed"
    named = f"Query {ids[0]}" if statement.query_id is not None else "Queries"
    return Status(f"{named} {word}", statement=parsed.text)


def set_property(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do SET, UNSET and ALTER SYSTEM: for the queries that the session, or with SET the request, makes from now on."""
    statement = parsed.statement
    assert isinstance(statement, s.SetProperty | s.UnsetProperty | s.AlterSystem)  # noqa: S101 - dispatched by these
    if isinstance(statement, s.UnsetProperty):
        return of_session(parsed, work)
    try:
        check_setting(statement.name, statement.value)
    except PenstockError as error:
        raise refusal(statement.at, error.message, error.hint) from error
    work.catalog.settings[statement.name] = statement.value
    if isinstance(statement, s.AlterSystem):
        work.shared.settings[statement.name] = statement.value
    idle = "" if has_effect(statement.name) else ", which has no effect here"
    return Status(f"{statement.name} is {statement.value}{idle}", statement=parsed.text)


def of_session(parsed: Parsed, work: Workspace) -> StatementResult:
    """Do UNSET, DEFINE and UNDEFINE, which last as long as the session."""
    return Status(apply(parsed.statement, work.catalog, parsed.text).message, statement=parsed.text)
