"""The topic of dead letters: records that failed, with headers that say where and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.connect.connectors.http_requests import plain
from penstock.connect.data import SourceRecord, java_name
from penstock.connect.delivery.record_errors import FailedRecord, error_message, trace_text
from penstock.connect.delivery.topic_creation import ensure_output_topic
from penstock.connect.tasks.task_parts import TaskParts
from penstock.log import Producer
from penstock.log.base import TopicLog

__all__ = ["DeadLetters", "dead_letters"]

_DLQ = "errors.deadletterqueue."


class DeadLetters:
    """The `Reporter` that writes failed records to the topic of dead letters.

    Args:
        log: The log.
        topic: The topic, which is created if there is none.
        task: The connector's name and the number of the task, for the headers.
        headers: Whether headers say what failed.
        settings: The settings of the topic, if it is created.
    """

    def __init__(
        self,
        log: TopicLog,
        topic: str,
        task: tuple[str, int],
        *,
        headers: bool,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._topic = topic
        self._task = task
        self._headers = headers
        ensure_output_topic(log, topic, 1, settings or {})
        self._producer = Producer(log, linger_ms=0)

    def report(self, failed: FailedRecord) -> None:
        """Write a record, and wait until it is written: its bytes as they were; that of a source as JSON."""
        record = failed.record
        if record is not None:
            origin: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            self._send(failed, (record.key, record.value), list(record.headers), origin, record.timestamp)
        elif isinstance(failed.shown, SourceRecord):
            source_record = failed.shown
            origin = {"topic": source_record.topic, "source.partition": _json(source_record.source_partition)}
            origin["source.offset"] = _json(source_record.source_offset)
            headers = [(each.key, _bytes(each.value)) for each in source_record.headers]
            self._send(
                failed,
                (_bytes(source_record.key), _bytes(source_record.value)),
                headers,
                origin,
                source_record.timestamp,
            )

    def _send(
        self,
        failed: FailedRecord,
        pair: tuple[bytes | None, bytes | None],
        headers: list[tuple[str, bytes | None]],
        origin: Mapping[str, Any],
        timestamp: int | None,
    ) -> None:
        more = self._context(failed, origin) if self._headers else []
        self._producer.send(self._topic, pair[1], key=pair[0], headers=[*headers, *more], timestamp=timestamp)
        self._producer.flush()

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()

    def _context(self, failed: FailedRecord, origin: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
        context: dict[str, Any] = {
            **origin,
            "connector.name": self._task[0],
            "task.id": self._task[1],
            "stage": failed.stage,
            "class.name": failed.java_class,
            "exception.class.name": java_name(failed.error),
            "exception.message": error_message(failed.error),
            "exception.stacktrace": trace_text(failed.error),
        }
        return [(f"__connect.errors.{name}", str(value).encode()) for name, value in context.items()]


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else _json(value)).encode("utf-8", "replace")


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, default=str)


def dead_letters(parts: TaskParts) -> DeadLetters | None:
    """Return the dead letters of a task, if its connector's config names a topic for them."""
    config = parts.connector
    topic = (config.get(f"{_DLQ}topic.name") or "").strip()
    if not topic:
        return None
    headers = (config.get(f"{_DLQ}context.headers.enable") or "").strip().lower() == "true"
    copies = (config.get(f"{_DLQ}topic.replication.factor") or "").strip()
    settings = {"replication.factor": copies} if copies else {}
    return DeadLetters(parts.open_log("producer"), topic, parts.spec.task, headers=headers, settings=settings)
