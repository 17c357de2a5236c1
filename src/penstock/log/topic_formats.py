"""The serdes of output topics, by name, stored in the log so that tools can decode the topics.

Each application has a compacted topic for them, ``<application.id>-penstock-formats``: key: a topic, value: JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = ["TopicFormat", "format_of", "formats_topic", "note_formats"]

_ENDING = "-penstock-formats"
_MOST_BYTES = 10_000  # of an entry: anybody with write access to the topic may have written it


@dataclass(frozen=True, slots=True)
class TopicFormat:
    """The serdes of a topic's keys and values: names that ``Serdes.of`` knows.

    Attributes:
        key: The serde of keys.
        value: The serde of values.
        registry: The URL of the schema registry, if one of them needs it.
    """

    key: str
    value: str
    registry: str = ""


def formats_topic(application: str) -> str:
    """Return the topic in which an application stores the formats of its sinks."""
    return f"{application}{_ENDING}"


def note_formats(log: TopicLog, application: str, formats: Mapping[str, TopicFormat]) -> None:
    """Store the formats that are new or have changed."""
    topic = formats_topic(application)
    if topic not in {each.name for each in log.topics()}:
        if not formats:
            return
        ensure_topic(log, topic, 1, {"cleanup.policy": "compact"})
    stored_formats = {name: topic_format for name, _, topic_format in _entries(log, topic)}
    new = {name: topic_format for name, topic_format in formats.items() if stored_formats.get(name) != topic_format}
    if new:
        now = unix_ms()
        columns = {
            "timestamp": pa.array([now] * len(new), pa.int64()),
            "key": pa.array([name.encode() for name in new], pa.large_binary()),
            "value": pa.array(
                [json.dumps(asdict(topic_format)).encode() for topic_format in new.values()], pa.large_binary()
            ),
        }
        log.append(topic, 0, pa.RecordBatch.from_pydict(columns))


def format_of(log: TopicLog, topic: str) -> TopicFormat | None:
    """Return the newest format that an application has stored for a topic; None if there is none."""
    notes = [each.name for each in log.topics() if each.name.endswith(_ENDING)]
    entries = [(time_ms, entry) for note in notes for name, time_ms, entry in _entries(log, note) if name == topic]
    return max(entries, key=lambda each: each[0])[1] if entries else None


def _entries(log: TopicLog, topic: str) -> Iterator[tuple[str, int, TopicFormat]]:
    end, offset = log.end_offsets([topic])[TopicPartition(topic, 0)], log.beginning_offset(topic, 0)
    while offset < end:
        fetched = log.read(topic, 0, offset)
        for row in fetched.records.to_pylist():
            entry = _parsed(row["value"])
            if entry is not None and row["key"] is not None:
                yield row["key"].decode("utf-8", "replace"), row["timestamp"], entry
        if fetched.next_offset <= offset:
            return
        offset = fetched.next_offset


def _parsed(data: bytes | None) -> TopicFormat | None:
    if data is None or len(data) > _MOST_BYTES:
        return None
    with suppress(ValueError, RecursionError):
        document = json.loads(data)
        if isinstance(document, dict):
            facts = {name: document.get(name, "") for name in ("key", "value", "registry")}
            if all(isinstance(fact, str) for fact in facts.values()):
                return TopicFormat(**facts)
    return None
