"""Topics and partitions of an embedded log: create, list, alter, delete. Functions of one open connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.base.nearest_name import did_you_mean
from penstock.errors import ConfigError, LogError, TopicExistsError, UnknownTopicError
from penstock.log.base import TopicInfo, TopicPartition
from penstock.log.topic_settings import check_settings, check_topic_name

__all__ = [
    "Slot",
    "add_partitions",
    "alter",
    "create",
    "delete",
    "find",
    "identity",
    "listing",
    "slot",
    "slots",
    "topic_ids",
    "unknown",
]

_MOST_PARTITIONS = 10_000  # of one request: Kafka's MAX_PARTITIONS_PER_BATCH


@dataclass(frozen=True, slots=True)
class Slot:
    """The stored row of a partition."""

    topic: str
    partition: int
    id: int
    start_offset: int
    next_offset: int
    cleaned_to: int
    config: dict[str, str]


def create(
    connection: sqlite3.Connection, name: str, partitions: int, config: Mapping[str, str] | None, now_ms: int
) -> None:
    check_topic_name(name)
    if partitions < 1:
        raise ConfigError(f"topic {name!r} with {partitions} partitions", hint="give at least 1")
    settings = json.dumps(check_settings(name, config or {}))
    if connection.execute("SELECT 1 FROM topics WHERE name = ?", (name,)).fetchone():
        raise TopicExistsError(f"topic {name!r} exists", hint="use it as it is, or delete it first", topic=name)
    row = connection.execute("INSERT INTO topics (name, config, created_ms) VALUES (?, ?, ?)", (name, settings, now_ms))
    _insert_partitions(connection, row.lastrowid or 0, 0, partitions)


def add_partitions(connection: sqlite3.Connection, name: str, total: int) -> None:
    topic_id, now = connection.execute(
        "SELECT t.id, count(*) FROM topics t JOIN partitions p ON p.topic_id = t.id WHERE t.name = ?", (name,)
    ).fetchone()
    if topic_id is None:
        raise unknown(connection, name)
    if total <= now:
        raise ConfigError(
            f"topic {name!r} has {now} partitions, not fewer than {total}", hint="partitions can only be added"
        )
    _insert_partitions(connection, topic_id, now, total)


def _insert_partitions(connection: sqlite3.Connection, topic_id: int, first: int, end: int) -> None:
    if end - first > _MOST_PARTITIONS:
        raise ConfigError(
            f"{end - first:,} new partitions at once", hint=f"The most are {_MOST_PARTITIONS:,}, as of Kafka's brokers."
        )
    connection.executemany(
        "INSERT INTO partitions (topic_id, partition) VALUES (?, ?)", [(topic_id, each) for each in range(first, end)]
    )


def alter(connection: sqlite3.Connection, name: str, changes: Mapping[str, str | None]) -> None:
    config = dict(find(connection, name).config)
    new_settings = {key: value for key, value in changes.items() if value is not None}
    checked = check_settings(name, new_settings)
    check_settings(
        name, {key: config.get(key, "0") for key, value in changes.items() if value is None and key in config}
    )
    for key in changes:
        if key in checked:
            config[key] = checked[key]
        else:
            config.pop(key, None)
    connection.execute("UPDATE topics SET config = ? WHERE name = ?", (json.dumps(config), name))


def delete(connection: sqlite3.Connection, name: str) -> None:
    row = connection.execute("SELECT id FROM topics WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise unknown(connection, name)
    connection.execute("DELETE FROM batches WHERE partition_id IN (SELECT id FROM partitions WHERE topic_id = ?)", row)
    connection.execute("DELETE FROM partitions WHERE topic_id = ?", row)
    connection.execute("DELETE FROM topics WHERE id = ?", row)
    for table in ("group_offsets", "group_notes", "group_targets", "group_owners"):
        connection.execute(f"DELETE FROM {table} WHERE topic = ?", (name,))  # noqa: S608


def listing(connection: sqlite3.Connection) -> list[TopicInfo]:
    rows = connection.execute(
        "SELECT t.name, count(*), t.config FROM topics t JOIN partitions p ON p.topic_id = t.id "
        "GROUP BY t.id ORDER BY t.name"
    )
    return [TopicInfo(name, partitions, json.loads(config)) for name, partitions, config in rows.fetchall()]


def find(connection: sqlite3.Connection, name: str) -> TopicInfo:
    row = connection.execute(
        "SELECT count(*), t.config FROM topics t JOIN partitions p ON p.topic_id = t.id WHERE t.name = ?", (name,)
    ).fetchone()
    if not row[0]:
        raise unknown(connection, name)
    return TopicInfo(name, row[0], json.loads(row[1]))


def identity(connection: sqlite3.Connection) -> str:
    """Return the id of the log."""
    return str(connection.execute("SELECT id FROM identity").fetchone()[0])


def topic_ids(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, str]:
    """Return the ids of those topics that exist."""
    topic_names = list(names)
    marks = ", ".join("?" * len(topic_names))
    query = f"SELECT t.name, i.id FROM topics t JOIN topic_ids i ON i.topic_id = t.id WHERE t.name IN ({marks})"  # noqa: S608
    return dict(connection.execute(query, topic_names).fetchall())


def slot(connection: sqlite3.Connection, topic: str, partition: int) -> Slot:
    """Find a partition; raises LogError, with the number of partitions, if it does not exist."""
    row = connection.execute(
        "SELECT p.id, p.start_offset, p.next_offset, p.cleaned_to, t.config FROM topics t JOIN partitions p "
        "ON p.topic_id = t.id WHERE t.name = ? AND p.partition = ?",
        (topic, partition),
    ).fetchone()
    if row is None:
        count = find(connection, topic).partitions
        raise LogError(
            f"topic {topic!r} has no partition {partition}",
            hint=f"it has {count}, numbered from 0; create_partitions adds some",
            topic=topic,
            partition=partition,
        )
    return Slot(topic, partition, row[0], row[1], row[2], row[3], json.loads(row[4]))


def slots(connection: sqlite3.Connection, places: Iterable[TopicPartition]) -> dict[TopicPartition, Slot]:
    """Find many partitions by one query; raises as `slot` does."""
    places = list(places)
    names = sorted({tp.topic for tp in places})
    marks = ", ".join("?" * len(names))
    rows = connection.execute(
        "SELECT t.name, p.partition, p.id, p.start_offset, p.next_offset, p.cleaned_to, t.config FROM topics t "  # noqa: S608
        f"JOIN partitions p ON p.topic_id = t.id WHERE t.name IN ({marks})",
        names,
    ).fetchall()
    configs = {config: json.loads(config) for config in {row[6] for row in rows}}
    existing_slots = {
        TopicPartition(topic, partition): Slot(topic, partition, number, start, following, cleaned, configs[config])
        for topic, partition, number, start, following, cleaned, config in rows
    }
    return {tp: existing_slots.get(tp) or slot(connection, tp.topic, tp.partition) for tp in places}


def unknown(connection: sqlite3.Connection, name: str) -> UnknownTopicError:
    names = [row[0] for row in connection.execute("SELECT name FROM topics ORDER BY name")]
    hint = did_you_mean(name, names, 3)
    if not hint:
        hint = f"topics are {', '.join(names[:10])}" if names else "the log has no topics yet: create it first"
    return UnknownTopicError(f"there is no topic {name!r}", hint=hint, topic=name)
