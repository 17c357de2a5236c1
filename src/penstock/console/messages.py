"""Messages of a topic, decoded, a bounded part at a time, with how far it has been searched."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.escapes import json_text, visible
from penstock.console.exposure import LETTER_HEADERS, Exposure
from penstock.console.filtering import Columns, Selection
from penstock.console.producing import encode_text
from penstock.console.request_limits import (
    CELL_CHARACTERS,
    HEADERS,
    PIECE_BYTES,
    REQUEST_BYTES,
    SHOWN_CHARACTERS,
    cut,
    piece_before,
    piece_from,
    reading,
)
from penstock.errors import ConfigError
from penstock.log.base import TopicPartition
from penstock.log.partitioner import partition_for
from penstock.log.topic_formats import format_of
from penstock.serde import Serdes

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "LETTER_HEADERS",
    "MessageQuery",
    "Messages",
    "neighbours",
    "one_message",
    "original_of",
    "read_messages",
    "record_at",
    "serdes_of",
]

_TEXT = "string"


def serdes_of(log: TopicLog, topic: str, key_format: str | None, value_format: str | None) -> tuple[Any, Any]:
    """Return the named serdes; by default those stored by the application that writes the topic, else text.

    Raises:
        ConfigError: There is no serde of a name.
    """
    noted = None if key_format and value_format else format_of(log, topic)
    registry = noted.registry if noted else ""

    def serde(name: str) -> Any:
        if registry and name in ("avro", "json_schema"):
            return (Serdes.avro if name == "avro" else Serdes.json_schema)(registry=registry)
        return Serdes.of(name)

    names = (key_format or (noted.key if noted else _TEXT), value_format or (noted.value if noted else _TEXT))
    return serde(names[0]), serde(names[1])


_CHUNK = 2_000
_MOST_CHUNK = 50_000  # of a search that finds little
_SECONDS = 2.0
_RECORDS = 100_000  # that are decoded
_STEPS_BACK = (1, 100, 10_000)  # offsets in which the record before one is looked for


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """What to read.

    Attributes:
        topic: The topic.
        start: "newest", "oldest", an offset, or ``time:`` and milliseconds.
        partition: The only partition; None: all.
        limit: The most messages.
        wanted: The filter; empty: all.
        key_format: The serde of keys; empty: the noted one, else text.
        value_format: The serde of values.
        cursor: Where the last answer ended, from `Messages.cursor`.
        masked: Paths that are hidden, such as ``value.card``.
        messages: Whether messages are shown at all.
        text: A plain text that is in the key, the value or a header; empty: any.
        key: The key, as text; empty: any. Only its partition is searched, unless `is_in_all`.
        is_in_all: Whether all partitions are searched for a key.
        characters: The most characters of a key, value or header.
    """

    topic: str
    start: str = "newest"
    partition: int | None = None
    limit: int = 50
    wanted: str = ""
    key_format: str = ""
    value_format: str = ""
    cursor: str = ""
    masked: tuple[str, ...] = ()
    messages: bool = True
    text: str = ""
    key: str = ""
    is_in_all: bool = False
    characters: int = CELL_CHARACTERS

    @property
    def exposure(self) -> Exposure:
        """What of the messages is shown."""
        return Exposure.of(messages=self.messages, masked=self.masked)


@dataclass(frozen=True, slots=True)
class Messages:
    """A part of a topic.

    Attributes:
        rows: The messages, the newest first if that was asked for, else the oldest first.
        searched: Offsets that have been looked at.
        total: Offsets that the topic has, between those asked for.
        cursor: Where to go on; empty at the end.
        partition: The only partition that is searched; None: all.
    """

    rows: list[dict[str, Any]]
    searched: int
    total: int
    cursor: str
    partition: int | None = None


def read_messages(log: TopicLog, query: MessageQuery) -> Messages:
    """Read messages until there are enough, the range ends, or the limits of a request are reached.

    It never waits for new messages. The limits are two seconds and those of `penstock.console.request_limits`; the
    cursor of the answer goes on from there.

    Raises:
        UnknownTopicError: There is no such topic.
        ConfigError: The filter, the start or a format is wrong.
    """
    with reading():
        return _read(log, query)


def _read(log: TopicLog, query: MessageQuery) -> Messages:
    partitions = log.partitions(query.topic)
    if query.partition is not None and query.partition >= partitions:
        raise ConfigError(f"{query.topic} has no partition {query.partition}", hint=f"It has {partitions}, from 0 on.")
    exposure = query.exposure
    serdes = serdes_of(log, query.topic, query.key_format or None, query.value_format or None)
    key = _key(query, serdes[0])
    only, partition = Selection.of(query.wanted, query.text, key), query.partition
    if key is not None and partition is None and not query.is_in_all:
        partition = partition_for(key, partitions)
    numbers = range(partitions) if partition is None else [partition]
    ends, firsts = log.end_offsets([query.topic]), log.beginning_offsets([query.topic])
    backwards = query.start == "newest"
    spans = {n: (firsts[TopicPartition(query.topic, n)], ends[TopicPartition(query.topic, n)]) for n in numbers}
    if not backwards:
        spans = {n: (_start(log, query, n, span), span[1]) for n, span in spans.items()}
    total = sum(max(0, end - start) for start, end in spans.values())
    places = _places(query.cursor) or {n: (span[1] if backwards else span[0]) for n, span in spans.items()}
    places = {n: min(max(at, spans[n][0]), spans[n][1]) for n, at in places.items() if n in spans}
    deadline, read, size, rows = time.monotonic() + _SECONDS, 0, 0, list[dict[str, Any]]()
    fitting: dict[int, int] = {}  # offsets that one read of the partition may take
    opaque = {root for root in ("key", "value") if exposure.hides(root)}
    chunk = max(query.limit, 1) if only.is_everything else _CHUNK
    while read < _RECORDS and len(rows) < query.limit:
        open_ones = [n for n, at in places.items() if (at > spans[n][0] if backwards else at < spans[n][1])]
        matching = 0
        for n in open_ones:
            if size >= REQUEST_BYTES or (size and time.monotonic() > deadline):
                break
            at = places[n]
            if backwards:
                piece = piece_before(log, query.topic, n, (spans[n][0], at), min(chunk, fitting.get(n, chunk)))
                fitting[n] = (1 if piece.size > PIECE_BYTES // 2 else 2) * (at - piece.start)
            else:
                piece = piece_from(log, query.topic, n, (at, min(at + chunk, spans[n][1])))
            places[n] = piece.start if backwards else piece.end
            size += piece.size
            if piece.records is None:
                continue
            columns = Columns(piece.records, n, (serdes[0].name, serdes[1].name), opaque)
            records = only.candidates(columns)
            read, matching = read + records.num_rows, matching + records.num_rows
            messages = (_message(each, n, serdes, exposure) for each in records.to_pylist())
            rows += [_row(each, query.characters) for each in messages if only.holds(each)]
        if not open_ones or size >= REQUEST_BYTES or time.monotonic() > deadline:
            break
        if not only.is_everything and matching < len(open_ones) * chunk // 10:
            chunk = min(2 * chunk, _MOST_CHUNK)
    rows.sort(key=lambda each: (each["timestamp"], each["partition"], each["offset"]), reverse=backwards)
    kept = rows[: query.limit]
    for n in places:  # go on behind the last one that is shown
        left = [each["offset"] for each in rows[query.limit :] if each["partition"] == n]
        if left:
            places[n] = max(left) + 1 if backwards else min(left)
    at_end = all(at <= spans[n][0] if backwards else at >= spans[n][1] for n, at in places.items())
    searched = sum((spans[n][1] - at) if backwards else (at - spans[n][0]) for n, at in places.items())
    cursor = "" if at_end else ".".join(f"{n}-{at}" for n, at in places.items())
    return Messages(kept, searched, total, cursor, partition)


def _key(query: MessageQuery, serde: Any) -> bytes | None:
    """Return the bytes of the key that is looked for; None: any."""
    if not query.key:
        return None
    if query.exposure.hides("key"):
        raise ConfigError("fields of keys are hidden, so they cannot be searched for", hint="Search for a text.")
    return encode_text(serde, query.key, "key")


def one_message(log: TopicLog, query: MessageQuery, partition: int, offset: int) -> dict[str, Any] | None:
    """Return a whole message; None if the log has it no longer."""
    serdes = serdes_of(log, query.topic, query.key_format or None, query.value_format or None)
    record = record_at(log, query.topic, partition, offset)
    if record is None:
        return None
    message = _message(record, partition, serdes, query.exposure)
    return {**_with_texts(message, SHOWN_CHARACTERS, indent=2), "original": original_of(message["headers"])}


def neighbours(log: TopicLog, topic: str, partition: int, offset: int) -> tuple[int | None, int | None]:
    """Return the offsets of the records before and behind an offset; None where there is none near.

    Args:
        log: The log.
        topic: The topic.
        partition: The partition.
        offset: The offset.
    """
    tp = TopicPartition(topic, partition)
    first, end = log.beginning_offsets([topic])[tp], log.end_offsets([topic])[tp]
    before = None
    for count in _STEPS_BACK:
        if before is None and offset > first:
            piece = piece_before(log, topic, partition, (first, offset), count)
            before = None if piece.records is None else int(piece.records.column("offset")[-1].as_py())
    behind = log.read(topic, partition, offset + 1, 1).records if offset + 1 < end else None
    return before, None if behind is None or not behind.num_rows else int(behind.column("offset")[0].as_py())


def original_of(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of the record that a dead letter was; None if the headers do not say.

    >>> names = ("topic", "partition", "offset")
    >>> original_of([(f"__streams.errors.{name}", text) for name, text in zip(names, (b"orders", b"3", b"17"))])
    ('orders', 3, 17)

    Args:
        headers: Those of Kafka Streams' dead letters (KIP-1034), or of Connect's.
    """
    named = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    for prefix in LETTER_HEADERS:
        topic, partition, offset = (named.get(f"{prefix}{name}", "") for name in ("topic", "partition", "offset"))
        if topic and partition.isdecimal() and offset.isdecimal() and len(partition) < 10 and len(offset) < 19:
            return topic, int(partition), int(offset)
    return None


def record_at(log: TopicLog, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
    """Return the record at an offset, its key, value and headers as bytes; None if the log has it no longer."""
    records: list[dict[str, Any]] = log.read(topic, partition, offset, 1).records.to_pylist()
    return records[0] if records and records[0]["offset"] == offset else None


def _start(log: TopicLog, query: MessageQuery, partition: int, span: tuple[int, int]) -> int:
    if query.start in ("oldest", ""):
        return span[0]
    if query.start.startswith("time:") and query.start[5:].lstrip("-").isdecimal():
        first_at = log.offset_for_time(query.topic, partition, int(query.start[5:]))
        return span[1] if first_at is None else first_at.offset
    if query.start.isdecimal():
        return min(max(int(query.start), span[0]), span[1])
    raise ConfigError(f"the start is {query.start[:40]!r}", hint="Use newest, oldest, an offset, or a time.")


def _places(cursor: str) -> dict[int, int]:
    """Parse a cursor: ``partition-offset`` joined by dots."""
    try:
        return {int(n): int(at) for n, _, at in (part.partition("-") for part in cursor.split(".") if part)}
    except ValueError:
        raise ConfigError("the cursor is not one of this console", hint="Search again.") from None


def _message(record: Mapping[str, Any], partition: int, serdes: tuple[Any, Any], exposure: Exposure) -> dict[str, Any]:
    key, key_problem = exposure.decoded("key", serdes[0], record["key"])
    value, value_problem = exposure.decoded("value", serdes[1], record["value"])
    return {
        "partition": partition,
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "key": key,
        "value": value,
        "headers": exposure.headers([(each["key"], each["value"]) for each in record["headers"] or ()]),
        "bytes": len(record["key"] or b"") + len(record["value"] or b""),
        "problem": key_problem or value_problem,
    }


def _row(message: dict[str, Any], most: int) -> dict[str, Any]:
    """Return a message for a list: what is large is cut, and not kept."""
    shortened = _with_texts(message, most)
    headers = [(cut(name), None if value is None else value[:most]) for name, value in message["headers"][:HEADERS]]
    left_out = max(len(message["headers"]) - HEADERS, 0)
    return {**shortened, "headers": headers, "headers_left_out": left_out}


def _with_texts(message: dict[str, Any], most: int, indent: int | None = None) -> dict[str, Any]:
    """Add the texts of key and value; where one is cut, it takes the place of the value."""
    shown = dict(message)
    for side in ("key", "value"):
        text = _shown(message[side], indent)
        text = None if text is None else visible(text)
        shown[f"{side}_text"] = cut(text, most)
        shown[f"{side}_is_cut"] = text is not None and len(text) > most
        if shown[f"{side}_is_cut"]:
            shown[side] = shown[f"{side}_text"]
    return shown


def _shown(value: Any, indent: int | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json_text(value, indent=indent)
