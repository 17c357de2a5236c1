"""Records from text, for `penstock topics produce` and the console."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import LogError, PenstockError, SerializationError
from penstock.log.partitioner import partition_for
from penstock.serde import Serdes

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["TextProducer", "append_records", "encode_text"]

_FLUSH_RECORDS = 10_000
_INTEGERS = ("long", "integer", "short")
_FLOATS = ("double", "float")


class TextProducer:
    """A producer of text, encoded by the formats and appended by the thousand.

    A record without a key goes to the partitions in turn.
    """

    def __init__(
        self, log: TopicLog, topic: str, key_format: str, value_format: str, *, partition: int | None = None
    ) -> None:
        self._log, self._topic = log, topic
        self._partitions = log.partitions(topic)
        if partition is not None and not 0 <= partition < self._partitions:
            raise LogError(f"{topic} has no partition {partition}", hint=f"It has {self._partitions}, from 0 on.")
        self._partition = partition
        self._key, self._value = Serdes.of(key_format), Serdes.of(value_format)
        self._waiting: list[tuple[int, int, bytes | None, bytes | None]] = []
        self.sent = 0

    def add(self, key: str | bytes | None, value: str | bytes | None, timestamp_ms: int) -> None:
        """Add one record; raises SerializationError if it does not have the format."""
        if timestamp_ms < 0:
            raise SerializationError(
                f"the timestamp {timestamp_ms} is before 1970", hint="Kafka's timestamps are 0 or more milliseconds."
            )
        key_bytes, value_bytes = encode_text(self._key, key, "key"), encode_text(self._value, value, "value")
        target = self._partition
        if target is None:
            number = self.sent + len(self._waiting)
            target = number % self._partitions if key_bytes is None else partition_for(key_bytes, self._partitions)
        self._waiting.append((target, timestamp_ms, key_bytes, value_bytes))
        if len(self._waiting) >= _FLUSH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Append the waiting records, in one transaction."""
        if self._waiting:
            append_records(self._log, self._topic, self._waiting)
            self.sent += len(self._waiting)
            self._waiting = []


def append_records(log: TopicLog, topic: str, records: Sequence[tuple[int, int, bytes | None, bytes | None]]) -> None:
    """Append (partition, timestamp, key, value) rows in one transaction."""
    with log.transaction("") as transaction:
        for partition in sorted({record[0] for record in records}):
            rows = [record for record in records if record[0] == partition]
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([row[1] for row in rows], pa.int64()),
                    pa.array([row[2] for row in rows], pa.large_binary()),
                    pa.array([row[3] for row in rows], pa.large_binary()),
                ],
                ["timestamp", "key", "value"],
            )
            transaction.append(topic, partition, batch)


def encode_text(serde: Any, content: str | bytes | None, what: str) -> bytes | None:
    """Encode a text by a serde, JSON for formats that are neither text nor numbers.

    Args:
        serde: The serde.
        content: The text; None is null.
        what: "key" or "value", for errors.

    Raises:
        SerializationError: The text does not have the format.
    """
    if content is None:
        return None
    if serde.name == "bytes":
        return content if isinstance(content, bytes) else content.encode()
    try:
        text = content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(
            f"the {what} {content!r} is not text in UTF-8", hint=f"--{what}-format bytes accepts any bytes."
        ) from error
    value: Any = text
    if serde.name != "string" and depth_of(text.encode()) > MOST_DEPTH:
        raise SerializationError(f"the {what} is nested more than {MOST_DEPTH} deep", hint="Check the text.")
    try:
        if serde.name in _INTEGERS:
            value = int(text)
        elif serde.name in _FLOATS:
            value = float(text)
        elif serde.name != "string":
            value = json.loads(text)
    except ValueError as error:
        raise SerializationError(
            f"the {what} {text!r} is not {with_article(serde.name)}: {error}", hint="Check the format."
        ) from error
    try:
        encoded: bytes | None = serde.serialize(value)
    except (PenstockError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = error.message if isinstance(error, PenstockError) else str(error)
        raise SerializationError(
            f"the {what} {text!r} does not fit: {f'it lacks {reason}' if isinstance(error, KeyError) else reason}",
            hint=f"--{what}-format names the format; the text has its fields as JSON.",
        ) from error
    return encoded
