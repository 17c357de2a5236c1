"""ASSERT TOPIC and ASSERT SCHEMA: wait for something to be there, or to be gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.base.terminal.human_numbers import counted
from penstock.errors import SchemaRegistryError, UnknownTopicError
from penstock.sql.analyse import refusal
from penstock.sql.analyse.properties import UNIT_MS
from penstock.sql.parse import Parsed
from penstock.sql.parse import command_nodes as c
from penstock.sql.parse.query_nodes import Duration
from penstock.sql.results import Status
from penstock.sql.session.workspace import Workspace

__all__ = ["assert_of_tests", "assert_schema", "assert_topic"]

DEFAULT_MS = 1000
LOOK_S = 0.1


def assert_topic(parsed: Parsed, work: Workspace) -> Status:
    """Do ASSERT [NOT EXISTS] TOPIC.

    Raises:
        SqlError: It does not hold within the time.
    """
    statement = parsed.statement
    assert isinstance(statement, c.AssertTopic)  # noqa: S101 - dispatched by this type
    expected = {item.name.upper(): getattr(item.value, "value", None) for item in statement.properties}
    for item in statement.properties:
        if item.name.upper() not in ("PARTITIONS", "REPLICAS"):
            raise refusal(item.at, f"Cannot assert unknown topic property: {item.name}", "PARTITIONS or REPLICAS.")

    def look() -> str:
        try:
            topic = work.log.topic(statement.topic)
        except UnknownTopicError:
            return f"Topic {statement.topic} does not exist" if statement.exists else ""
        if not statement.exists:
            return f"Topic {statement.topic} exists"
        if (count := expected.get("PARTITIONS")) is not None and int(count) != topic.partitions:
            return f"Topic {statement.topic} has {counted(topic.partitions, 'partition')}, not {count}"
        return ""

    _wait(look, statement.timeout, statement)
    return Status(
        f"Topic {statement.topic} {'exists' if statement.exists else 'does not exist'}", statement=parsed.text
    )


def assert_schema(parsed: Parsed, work: Workspace) -> Status:
    """Do ASSERT [NOT EXISTS] SCHEMA.

    Raises:
        SqlError: It does not hold within the time, or the session has no registry.
    """
    statement = parsed.statement
    assert isinstance(statement, c.AssertSchema)  # noqa: S101 - dispatched by this type
    if "schema.registry.url" not in work.settings.app:
        raise refusal(statement.at, "ASSERT SCHEMA needs a registry", "Give the session schema.registry.url.")
    from penstock.serde.schemas.client import client_for
    from penstock.serde.schemas.schema_settings import SchemaSettings

    client = client_for(SchemaSettings.of(dict(work.settings.app)))
    named = f"subject {statement.subject}" if statement.subject else f"id {statement.schema_id}"

    def look() -> str:
        try:
            if statement.subject is not None:
                client.latest(statement.subject)
            if statement.schema_id is not None:
                client.schema(statement.schema_id)
        except SchemaRegistryError as error:
            if error.facts.get("status") != 404:
                raise
            return f"Schema with {named} does not exist" if statement.exists else ""
        return "" if statement.exists else f"Schema with {named} exists"

    _wait(look, statement.timeout, statement)
    return Status(f"Schema with {named} {'exists' if statement.exists else 'does not exist'}", statement=parsed.text)


def assert_of_tests(parsed: Parsed, work: Workspace) -> Status:
    """Refuse the kinds of ASSERT that compare rows: they belong to test files."""
    del work
    raise refusal(
        parsed.statement.at,
        "ASSERT of rows, tombstones, streams and tables is for test files",
        "Run the file with `penstock sql test`.",
    )


def _wait(look: Callable[[], str], timeout: Duration | None, statement: c.Command) -> None:
    limit_ms = DEFAULT_MS if timeout is None else timeout.amount * UNIT_MS[timeout.unit]
    deadline = time.monotonic() + limit_ms / 1000
    while reason := look():
        if time.monotonic() >= deadline:
            raise refusal(statement.at, reason)
        time.sleep(LOOK_S)
