"""ASSERT of topics and schemas, which waits for them, and PRINT of a topic's records."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import counted
from penstock.errors import SchemaRegistryError, UnknownTopicError
from penstock.log.client_interfaces import ConsumerRecord
from penstock.log.clients.consumer import Consumer
from penstock.serde.bound_serdes import bound, configured
from penstock.serde.windowed import Windowed
from penstock.sql.analyse import refusal
from penstock.sql.analyse.properties import UNIT_MS
from penstock.sql.catalog import Source, SourceColumn
from penstock.sql.compile import source_serdes
from penstock.sql.formats.json_values import json_writer
from penstock.sql.parse import Parsed
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Duration
from penstock.sql.results import Status, Stream
from penstock.sql.session.stream_topics import known_topics
from penstock.sql.session.workspace import Workspace

__all__ = ["assert_of_tests", "assert_schema", "assert_topic", "print_topic"]

DEFAULT_MS = 1000
LOOK_S = 0.1


def assert_topic(parsed: Parsed, work: Workspace) -> Status:
    """Do ASSERT [NOT EXISTS] TOPIC.

    Raises:
        SqlError: It does not hold within the time.
    """
    statement = parsed.statement
    assert isinstance(statement, s.AssertTopic)  # noqa: S101 - dispatched by this type
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
    assert isinstance(statement, s.AssertSchema)  # noqa: S101 - dispatched by this type
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


def _wait(look: Callable[[], str], timeout: Duration | None, statement: s.Command) -> None:
    limit_ms = DEFAULT_MS if timeout is None else timeout.amount * UNIT_MS[timeout.unit]
    deadline = time.monotonic() + limit_ms / 1000
    while reason := look():
        if time.monotonic() >= deadline:
            raise refusal(statement.at, reason)
        time.sleep(LOOK_S)


COLUMNS = ("ROWTIME", "KEY", "VALUE", "PARTITION", "OFFSET")
TYPES = ("BIGINT", "STRING", "STRING", "INTEGER", "BIGINT")
WAIT_S = 0.25
Decode = Callable[[bytes | None], Any]


def print_topic(parsed: Parsed, work: Workspace) -> Stream:
    """Answer PRINT with a stream of records: keys and values as the first stream or table over the topic reads them.

    Raises:
        SqlError: There is no such topic.
    """
    statement = parsed.statement
    assert isinstance(statement, s.Print)  # noqa: S101 - dispatched by this type
    topics = known_topics(work.log)
    if statement.topic not in topics:
        meant = did_you_mean(statement.topic, topics)
        hint = f"{meant} Names of topics keep their case." if meant else "SHOW TOPICS lists the topics."
        raise refusal(statement.at, f"Could not find topic '{statement.topic}'", hint)
    source = next((each for each in work.catalog.sources.values() if each.topic == statement.topic), None)
    stopped = threading.Event()
    rows = _rows(statement, work, _decoders(source, work), stopped)
    return Stream(COLUMNS, TYPES, rows, stopped.set, statement=parsed.text)


def _rows(
    statement: s.Print, work: Workspace, decoders: tuple[Decode, Decode], stopped: threading.Event
) -> Iterator[tuple[Any, ...] | None]:
    key, value = decoders
    left, seen = statement.limit, -1
    reset: Any = "earliest" if statement.from_beginning else "latest"
    with Consumer(work.log, auto_offset_reset=reset) as consumer:
        consumer.subscribe([statement.topic])
        while not stopped.is_set() and left != 0:
            has_records = False
            for record in consumer.poll(timeout_s=WAIT_S):
                seen += 1
                if seen % (statement.interval or 1):
                    continue
                if stopped.is_set() or left == 0:
                    return
                left = None if left is None else left - 1
                has_records = True
                yield _row(record, key, value)
            if not has_records:
                yield None


def _row(record: ConsumerRecord, key: Decode, value: Decode) -> tuple[Any, ...]:
    return record.timestamp, key(record.key), value(record.value), record.partition, record.offset


def _decoders(source: Source | None, work: Workspace) -> tuple[Decode, Decode]:
    if source is None:
        return _as_text, _as_text
    key, value = (
        bound(configured(serde, work.settings.app), source.topic, part)
        for serde, part in zip(source_serdes(source), ("key", "value"), strict=True)
    )
    return _row_text(key, source.keys), _row_text(value, source.values)


def _row_text(serde: Any, columns: Sequence[SourceColumn]) -> Decode:
    names = [json.dumps(column.name, ensure_ascii=False) for column in columns]
    writers = [json_writer(column.type) for column in columns]

    def decode(data: bytes | None) -> Any:
        if not names:
            return _as_text(data)
        try:
            row = serde.deserialize(data)
        except Exception:  # noqa: BLE001 - a record of another format is shown as it is
            return _as_text(data)
        if row is None:
            return None
        window = f" in {row.window}" if isinstance(row, Windowed) else ""
        values = row.key if isinstance(row, Windowed) else row
        if len(names) == 1 and not isinstance(values[0], dict | list):
            return f"{values[0]}{window}"
        cells = [f"{name}: {write(item)}" for name, write, item in zip(names, writers, values, strict=True)]
        return f"{{{', '.join(cells)}}}{window}"

    return decode


def _as_text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"
