"""`penstock topics`: list, describe, create, delete, produce, consume."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.option_groups import LogOptions, grouped
from penstock.cli.options import Json, instant_ms, read_config
from penstock.cli.output import console, print_json, print_table

__all__ = ["app"]

app = typer.Typer(help="Topics: list, describe, create, delete, produce, consume.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
KeyFormat = Annotated[str, typer.Option("--key-format", help="string, json, long, double, windowed<string,60000>, ...")]
ValueFormat = Annotated[str, typer.Option("--value-format", help="As for keys.")]


@app.command("list")
@grouped
def list_topics(*, where: LogOptions, as_json: Json = False) -> None:
    """List all topics with their partitions and records."""
    with where.open() as log:
        rows = []
        for topic in log.topics():
            ends, starts = log.end_offsets([topic.name]), log.beginning_offsets([topic.name])
            rows.append((topic.name, topic.partitions, sum(ends.values()) - sum(starts.values())))
    if as_json:
        print_json([{"name": name, "partitions": count, "records": size} for name, count, size in rows])
    else:
        print_table(["topic", "partitions#", "records#"], rows, empty="no topics")


@app.command()
@grouped
def describe(topic: Name, *, where: LogOptions, as_json: Json = False) -> None:
    """Show a topic's partitions, offsets and settings."""
    with where.open() as log:
        info = log.topic(topic)
        starts, ends = log.beginning_offsets([topic]), log.end_offsets([topic])
    partitions = [
        {"partition": place.partition, "beginning": starts[place], "end": end} for place, end in sorted(ends.items())
    ]
    if as_json:
        print_json({"name": info.name, "config": dict(info.config), "partitions": partitions})
        return
    settings = ", ".join(f"{name}={value}" for name, value in sorted(info.config.items()))
    console().print(f"{info.name}: {info.partitions} partition(s); settings: {settings or 'all default'}")
    print_table(["partition#", "beginning#", "end#"], (list(row.values()) for row in partitions))


@app.command()
@grouped
def create(
    topic: Name,
    *,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many partitions.")] = 1,
    config: Annotated[
        list[str], typer.Option("--config", "-c", metavar="KEY=VALUE", help="cleanup.policy=compact, retention.ms=...")
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    where: LogOptions,
) -> None:
    """Create a topic (and the log's file, if it is not there)."""
    settings = {name: str(value) for name, value in read_config(config, None).items()}
    with where.open(create=True) as log:
        log.create_topic(topic, partitions, settings)
    console().print(f"created {topic} with {partitions} partition(s)")


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
        if not yes:
            typer.confirm(f"Delete {topic} and all its records?", abort=True)
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
    separator: Annotated[str | None, typer.Option(help="What separates key and value in a line.")] = None,
    key_format: KeyFormat = "string",
    value_format: ValueFormat = "string",
    timestamp: Annotated[
        str | None, typer.Option(help="Of all records: ISO time or milliseconds; by default now.")
    ] = None,
    null_value: Annotated[str | None, typer.Option(help="Text that stands for null (a tombstone).")] = None,
    partition: Annotated[int | None, typer.Option(help="By default chosen by the key, as Kafka does.")] = None,
    where: LogOptions,
) -> None:
    """Append records: one of --key and --value, or one a line."""
    from penstock.cli.records import Producer
    from penstock.errors import LogError

    when = instant_ms(timestamp, "--timestamp")
    with where.open() as log:
        producer = Producer(log, topic, key_format, value_format, partition=partition)

        def add(one_key: str | None, one_value: str | None) -> None:
            now = time.time_ns() // 1_000_000 if when is None else when
            producer.add(one_key, None if one_value == null_value else one_value, now)

        if value is not None:
            add(key, value)
        else:
            try:
                lines = file.open(encoding="utf-8") if file else sys.stdin
            except OSError as error:
                raise LogError(f"{file} cannot be read: {error.strerror}", hint="Check the path.") from error
            with lines:
                for line in lines:
                    text = line.rstrip("\n")
                    if separator is None:
                        add(key, text)
                        continue
                    left, found, right = text.partition(separator)
                    add(left if found else key, right if found else text)
        producer.flush()
    console(stderr=True).print(f"{producer.sent:,} record(s) to {topic}")


@app.command()
@grouped
def consume(
    topic: Name,
    *,
    start: Annotated[str, typer.Option("--from", help="beginning, end, an offset, or an ISO time.")] = "beginning",
    to: Annotated[str | None, typer.Option("--to", help="First time that is left out: ISO time; then it ends.")] = None,
    from_time: Annotated[str | None, typer.Option(help="First timestamp: ISO time or milliseconds.")] = None,
    to_time: Annotated[str | None, typer.Option(help="First timestamp that is left out.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    maximum: Annotated[int | None, typer.Option("--max", "-n", min=0, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    key_format: KeyFormat = "string",
    value_format: ValueFormat = "string",
    headers: Annotated[bool, typer.Option(help="Print headers too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    where: LogOptions,
) -> None:
    """Print a topic's records, oldest first in each partition."""
    from penstock.cli.records import Consumer, line_of

    if re.match(r"\d+-", start):
        start, from_time = "beginning", start
    span = (instant_ms(from_time, "--from-time"), instant_ms(to or to_time, "--to"))
    with where.open() as log:
        consumer = Consumer(log, topic, key_format, value_format, start=start, span=span, partition=partition)
        shown = 0
        record: dict[str, Any]
        while True:
            for record in consumer.poll():
                if maximum is not None and shown >= maximum:
                    return
                print(line_of(record, headers=headers, as_json=as_json), flush=follow)
                shown += 1
            if maximum is not None and shown >= maximum:
                return
            if not follow:
                return
            consumer.wait(0.5)
