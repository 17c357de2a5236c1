"""Records of a topic as text, for `topics consume`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.base.escapes import json_text, one_line
from penstock.base.terminal.human_numbers import span_of, time_of, with_article
from penstock.console.filtering import Columns, Selection
from penstock.console.messages import serdes_of
from penstock.errors import ConfigError, LogError, SerializationError
from penstock.log.base import TopicLog, TopicPartition
from penstock.serde.plain_json import plain, text_of
from penstock.serde.windowed import Windowed

__all__ = ["ReadRange", "TextConsumer", "line_of"]


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The part of a topic to read.

    Attributes:
        start: "beginning", "end" or an offset.
        times: The first timestamp, and the end timestamp, exclusive; None is open.
        partition: The only partition to read; None: all.
    """

    start: str = "beginning"
    times: tuple[int | None, int | None] = (None, None)
    partition: int | None = None


_EVERYTHING = ReadRange()
_ALL = Selection()


class TextConsumer:
    """A consumer that decodes a topic by the formats; None: the stored format, else text.

    Attributes:
        undecoded: How many keys and values are not of a format that nobody named: they come as their bytes.
    """

    def __init__(
        self,
        log: TopicLog,
        topic: str,
        key_format: str | None,
        value_format: str | None,
        read_range: ReadRange = _EVERYTHING,
    ) -> None:
        partition = read_range.partition
        self._log, self._topic, self._span = log, topic, read_range.times
        self._key, self._value = serdes_of(log, topic, key_format, value_format)
        self._is_named = {"key": key_format is not None, "value": value_format is not None}
        self.undecoded = 0
        count = log.partitions(topic)
        if partition is not None and not 0 <= partition < count:
            raise LogError(f"{topic} has no partition {partition}", hint=f"It has {count}, from 0 on.")
        numbers = range(count) if partition is None else [partition]
        self._next = self._starts([TopicPartition(topic, number) for number in numbers], read_range.start)
        self._seen = {TopicPartition(topic, number): offset for number, offset in self._next.items()}

    def _starts(self, places: list[TopicPartition], start: str) -> dict[int, int]:
        """Return the start offset of each partition."""
        ends = self._log.end_offsets([self._topic])
        if self._span[0] is not None:
            by_time = self._log.offsets_for_times(dict.fromkeys(places, self._span[0]))
            return {tp.partition: ends[tp] if each is None else each.offset for tp, each in by_time.items()}
        beginnings = self._log.beginning_offsets([self._topic])
        if start == "beginning":
            return {tp.partition: beginnings[tp] for tp in places}
        if start == "end":
            return {tp.partition: ends[tp] for tp in places}
        if not start.isdigit():
            raise ConfigError(f"--from is {start!r}", hint="Use beginning, end, or an offset such as 42.")
        return {tp.partition: min(max(int(start), beginnings[tp]), ends[tp]) for tp in places}

    def poll(self, only: Selection = _ALL) -> Iterator[dict[str, Any]]:
        """Yield the present records, partition by partition, without those whose bytes meet no filter."""
        self._seen = ends = self._log.end_offsets([self._topic])
        for partition in self._next:
            end = ends[TopicPartition(self._topic, partition)]
            while self._next[partition] < end:
                fetched = self._log.read(self._topic, partition, self._next[partition])
                formats = (self._key.name, self._value.name)
                for row in only.candidates(Columns(fetched.records, partition, formats)).to_pylist():
                    if self._wanted(row["timestamp"]):
                        decoded = self._decoded(partition, row)
                        self._next[partition] = row["offset"] + 1  # one record at a time: the caller may end after any
                        yield decoded
                self._next[partition] = fetched.next_offset

    def waiting(self) -> int:
        """Return the number of offsets that are left to read."""
        ends = self._log.end_offsets([self._topic])
        return sum(ends[TopicPartition(self._topic, number)] - offset for number, offset in self._next.items())

    def wait(self, timeout_s: float) -> None:
        """Wait until there are new records."""
        self._log.wait_for_data(self._seen, timeout_s)

    def _wanted(self, timestamp: int) -> bool:
        first, end = self._span
        return (first is None or timestamp >= first) and (end is None or timestamp < end)

    def _decoded(self, partition: int, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "partition": partition,
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "key": self._decode(self._key, row["key"], f"{partition}@{row['offset']}", "key"),
            "value": self._decode(self._value, row["value"], f"{partition}@{row['offset']}", "value"),
            "headers": [(h["key"], h["value"]) for h in row["headers"] or ()],
        }

    def _decode(self, serde: Any, data: bytes | None, position: str, part: str) -> Any:
        try:
            return serde.deserialize(data)
        except SerializationError as error:
            if not self._is_named[part]:
                self.undecoded += 1
                return data
            raise SerializationError(
                f"{self._topic}-{position}: the {part} is not {with_article(serde.name)}: {error.message}",
                hint="Give --key-format and --value-format (bytes shows anything).",
            ) from error


def line_of(record: dict[str, Any], *, headers: bool, as_json: bool) -> str:
    """Format a record as one line: JSON, or ``partition@offset  time  key  value``."""
    if as_json:
        shown = {**record, "key": plain(record["key"]), "value": plain(record["value"])}
        shown["headers"] = [[name, None if value is None else text_of(value)] for name, value in record["headers"]]
        return json_text(shown)
    parts = [
        f"{record['partition']}@{record['offset']}",
        time_of(record["timestamp"]),
        _shown(record["key"]),
        _shown(record["value"]),
    ]
    if headers:
        parts.append(", ".join(f"{one_line(name)}={_shown(value)}" for name, value in record["headers"]))
    return "  ".join(parts)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return one_line(text_of(value))
    if isinstance(value, Windowed):
        return f"{_shown(value.key)} {span_of(value.window.start, value.window.end)}"
    shown = plain(value)
    return json_text(shown) if isinstance(shown, dict | list) else one_line(str(shown))
