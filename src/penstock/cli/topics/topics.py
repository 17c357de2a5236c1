"""`penstock topics`: list, describe, create, delete, produce, consume."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.clock import unix_ms
from penstock.base.terminal.human_numbers import counted
from penstock.cli.options import Json, LogOptions, grouped, instant_ms, read_config
from penstock.cli.output import confirm, console, print_json, print_table, working
from penstock.errors import LogError, SerializationError
from penstock.log.application_needs import owner_of

if TYPE_CHECKING:
    from penstock.console.producing import TextProducer

__all__ = ["LineConversion", "app"]

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
    from penstock.cli.topics.records import ReadRange, TextConsumer, line_of
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
