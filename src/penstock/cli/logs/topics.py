"""`penstock topics`: list, describe, create, delete, produce, consume with records as text."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.clock import unix_ms
from penstock.base.escapes import json_text, one_line
from penstock.base.terminal.human_numbers import counted, span_of, time_of, with_article
from penstock.cli.options import Json, LogOptions, grouped, instant_ms, read_config
from penstock.cli.output import confirm, console, print_json, print_table, working
from penstock.console.filtering import Columns, Selection
from penstock.console.messages import serdes_of
from penstock.errors import ConfigError, LogError, SerializationError
from penstock.log.base import TopicLog, TopicPartition
from penstock.serde.plain import plain, text_of
from penstock.serde.windowed import Windowed

if TYPE_CHECKING:
    from penstock.console.producing import TextProducer

__all__ = ["LineConversion", "ReadRange", "TextConsumer", "app", "line_of", "owner_of"]


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


_WINDOW_SIZES_MS = (60_000, 3_600_000, 86_400_000)


def _serde_names(incomplete: str) -> list[str]:
    """Complete the name of a serde; of a nested one first the outer name, then the inner one.

    >>> _serde_names("lo"), _serde_names("list<lo")
    (['long'], ['list<long>'])
    >>> _serde_names("windowed<st")[0]
    'windowed<string,60000>'
    """
    from penstock.serde.serdes import NESTED_NAMES, SIMPLE_NAMES

    outer, bracket, inner = incomplete.partition("<")
    if not bracket:
        names = [*SIMPLE_NAMES, *(f"{name}<" for name in NESTED_NAMES)]
        return [name for name in names if name.startswith(incomplete)]
    if outer not in NESTED_NAMES:
        return []
    insides = [name for name in SIMPLE_NAMES if name.startswith(inner)]
    if outer in ("windowed", "time_windowed"):
        return [f"{outer}<{name},{size}>" for name in insides for size in _WINDOW_SIZES_MS]
    return [f"{outer}<{name}>" for name in insides]


app = typer.Typer(help="Topics: list, describe, create, delete, produce, consume.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
KeyFormat = Annotated[
    str,
    typer.Option("--key-format", help="string, json, long, windowed<string,60000>, ...", autocompletion=_serde_names),
]
NotedKeyFormat = Annotated[
    str | None,
    typer.Option(
        "--key-format", help="By default the writing application's format, else string.", autocompletion=_serde_names
    ),
]
NotedValueFormat = Annotated[
    str | None, typer.Option("--value-format", help="Like --key-format.", autocompletion=_serde_names)
]
ValueFormat = Annotated[str, typer.Option("--value-format", help="Like --key-format.", autocompletion=_serde_names)]
_REST = re.compile(r"-(?:.+-(?:changelog|repartition|dataframe)|penstock-.+|.+SUBSCRIPTION-.+-topic)")  # of the name


@app.command("list")
@grouped
def list_topics(
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="List internal topics of applications too.")] = False,
    where: LogOptions,
    as_json: Json = False,
) -> None:
    """List topics with their partitions and records; the internal topics of an application share a line."""
    with where.open() as log:
        topics, applications = log.topics(), log.groups()
        names = [topic.name for topic in topics]
        ends, starts = log.end_offsets(names), log.beginning_offsets(names)
    records = dict.fromkeys(names, 0)
    for tp, end in ends.items():
        records[tp.topic] += end - starts[tp]
    owners = {name: owner_of(name, applications) for name in names}
    if as_json:
        print_json(
            [
                {
                    "name": t.name,
                    "partitions": t.partitions,
                    "records": records[t.name],
                    "internal": bool(owners[t.name]),
                }
                for t in topics
            ]
        )
        return
    shown = [topic for topic in topics if everything or not owners[topic.name]]
    rows = [(topic.name, topic.partitions, records[topic.name]) for topic in shown]
    print_table(["topic", "partitions#", "records#"], rows, empty="no topics")
    folded = Counter(owner for owner in owners.values() if owner and not everything)
    for owner, count in sorted(folded.items()):
        console().print(
            f"and {counted(count, 'internal topic')} of {owner}: --all lists them", style="dim", markup=False
        )


@app.command()
@grouped
def describe(topic: Name, *, where: LogOptions, as_json: Json = False) -> None:
    """Show a topic's partitions, offsets and settings."""
    with where.open() as log:
        info = log.topic(topic)
        starts, ends = log.beginning_offsets([topic]), log.end_offsets([topic])
    partitions = [{"partition": tp.partition, "beginning": starts[tp], "end": end} for tp, end in sorted(ends.items())]
    if as_json:
        print_json({"name": info.name, "config": dict(info.config), "partitions": partitions})
        return
    settings = ", ".join(f"{name}={value}" for name, value in sorted(info.config.items()))
    console().print(f"{info.name}: {counted(info.partitions, 'partition')}; settings: {settings or 'all default'}")
    print_table(["partition#", "beginning#", "end#"], (list(row.values()) for row in partitions))


@app.command()
@grouped
def create(
    topic: Name,
    *,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="The number of partitions.")] = 1,
    config: Annotated[
        list[str], typer.Option("--config", "-c", metavar="KEY=VALUE", help="cleanup.policy=compact, retention.ms=...")
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    where: LogOptions,
) -> None:
    """Create a topic (and the log's file, if it does not exist)."""
    settings = {name: str(value) for name, value in read_config(config, None).items()}
    with where.open(create=True) as log:
        log.create_topic(topic, partitions, settings)
    console().print(f"created {topic} with {counted(partitions, 'partition')}")


@app.command()
@grouped
def delete(
    topic: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    where: LogOptions,
) -> None:
    """Delete a topic and all its records."""
    with where.open() as log:
        log.partitions(topic)
        confirm(f"Delete {topic} and all its records?", yes=yes)
        log.delete_topic(topic)
    console().print(f"deleted {topic}")


@app.command()
@grouped
def produce(
    topic: Name,
    *,
    key: Annotated[str | None, typer.Option(help="The key of a single record, or of all lines.")] = None,
    value: Annotated[str | None, typer.Option(help="The value of a single record; without it, lines are read.")] = None,
    file: Annotated[Path | None, typer.Option(help="Read lines from this file instead of the standard input.")] = None,
    separator: Annotated[str | None, typer.Option(help="The text between key and value in a line.")] = None,
    key_format: KeyFormat = "string",
    value_format: ValueFormat = "string",
    timestamp: Annotated[
        str | None, typer.Option(help="The time of all records: ISO time or milliseconds; by default now.")
    ] = None,
    null_value: Annotated[str | None, typer.Option(help="The text for null (a tombstone).")] = None,
    partition: Annotated[int | None, typer.Option(help="By default the key's partition, as in Kafka.")] = None,
    where: LogOptions,
) -> None:
    """Append records: one from --key and --value, or one per line.

    With --value-format bytes (and --key-format bytes) a line may have any bytes except line feeds.
    """
    from penstock.console.producing import TextProducer

    when = instant_ms(timestamp, "--timestamp")
    with where.open() as log:
        producer = TextProducer(log, topic, key_format, value_format, partition=partition)

        lines = LineConversion(null_value, separator, key, when)
        if value is not None:
            lines.one(producer, key, value)
        else:
            lines.all(producer, file)
        producer.flush()
    console(stderr=True).print(f"{counted(producer.sent, 'record')} to {topic}")


@app.command()
@grouped
def consume(
    topic: Name,
    *,
    start: Annotated[str, typer.Option("--from", help="beginning, end, an offset, or an ISO time.")] = "beginning",
    to: Annotated[str | None, typer.Option("--to", help="The end time, exclusive: ISO time.")] = None,
    from_time: Annotated[str | None, typer.Option(help="The first timestamp: ISO time or milliseconds.")] = None,
    to_time: Annotated[str | None, typer.Option(help="The end timestamp, exclusive.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    maximum: Annotated[int | None, typer.Option("--max", "-n", min=0, help="Stop after this many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    key_format: NotedKeyFormat = None,
    value_format: NotedValueFormat = None,
    condition: Annotated[
        str, typer.Option("--filter", metavar="FILTER", help='Only such records: value.total > 100 and key ~ "u1".')
    ] = "",
    headers: Annotated[bool, typer.Option(help="Print headers too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    where: LogOptions,
) -> None:
    """Print a topic's records, oldest first in each partition.

    Keys and values are decoded with the serdes of the application that writes the topic; those of other topics as text.
    """
    from penstock.console.filtering import Selection

    only = Selection.of(condition)
    if re.match(r"\d+-", start):
        start, from_time = "beginning", start
    span = (instant_ms(from_time, "--from-time"), instant_ms(to or to_time, "--to"))
    with where.open() as log:
        consumer = TextConsumer(log, topic, key_format, value_format, ReadRange(start, span, partition))
        shown = 0
        record: dict[str, Any]
        total = None if follow else consumer.waiting() if maximum is None else min(maximum, consumer.waiting())
        with working("reading", total, prints=True) as bar:
            while True:
                for record in only.among(consumer.poll(only)):
                    if maximum is not None and shown >= maximum:
                        break
                    print(line_of(record, headers=headers, as_json=as_json), flush=follow)
                    shown += 1
                    bar.at(shown)
                if not follow or (maximum is not None and shown >= maximum):
                    break
                consumer.wait(0.5)
    if consumer.undecoded:
        number = counted(consumer.undecoded, "key or value is", "keys and values are")
        note = f"{number} not of the topic's format: see the bytes. Other formats: --key-format, --value-format."
        console(stderr=True).print(note, markup=False, highlight=False)


def owner_of(topic: str, applications: Iterable[str]) -> str | None:
    """Return the application that owns an internal topic; None for other topics.

    >>> owner_of("shop-orders-changelog", ["shop", "shop-orders"]), owner_of("orders-changelog", ["shop"])
    ('shop', None)

    Args:
        topic: The topic's name.
        applications: Groups that have committed offsets; an application's is its ``application.id``.
    """
    owners = [name for name in applications if topic.startswith(name) and _REST.fullmatch(topic[len(name) :])]
    return max(owners, key=len, default=None)


@dataclass(frozen=True, slots=True)
class LineConversion:
    """The conversion of lines to records.

    Attributes:
        null_value: The text for null.
        separator: The text between key and value; None: a line is a value.
        key: The key of lines without one.
        timestamp_ms: The timestamp of all records; None: now.
    """

    null_value: str | None
    separator: str | None
    key: str | None
    timestamp_ms: int | None

    def one(self, producer: TextProducer, key: str | bytes | None, value: str | bytes) -> None:
        """Add one record."""
        now = unix_ms() if self.timestamp_ms is None else self.timestamp_ms
        null = self.null_value
        is_null = null is not None and value in (null, null.encode())
        producer.add(key, None if is_null else value, now)

    def all(self, producer: TextProducer, file: Path | None) -> None:
        """Add the lines of a file, or of the standard input.

        Raises:
            LogError: The file cannot be read.
            SerializationError: A line does not have the format; the message has its number.
        """
        size = file.stat().st_size if file is not None and file.is_file() else None
        with _opened(file) as lines, working("producing", size, in_bytes=True) as bar:
            for number, line in enumerate(lines, 1):
                bar.advance(len(line))
                try:
                    self._line(producer, line.removesuffix(b"\n").removesuffix(b"\r"))
                except SerializationError as error:
                    raise SerializationError(
                        f"line {number} of {file or 'the standard input'}: {error.message}",
                        hint=f"{error.hint} {counted(producer.sent, 'record')} before it were appended.",
                    ) from error

    def _line(self, producer: TextProducer, line: bytes) -> None:
        if self.separator is None:
            self.one(producer, self.key, line)
            return
        left, separator, right = line.partition(self.separator.encode())
        self.one(producer, left if separator else self.key, right if separator else line)


@contextmanager
def _opened(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        lines = file.open("rb")
    except OSError as error:
        raise LogError(f"{file} cannot be read: {error.strerror}", hint="Check the path.") from error
    with lines:
        yield lines
