"""`penstock datagen`: made-up records of an access log, a shop, or page views."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.terminal.human_numbers import counted
from penstock.cli.options import LogOptions, grouped, instant_ms
from penstock.cli.output import console, working

if TYPE_CHECKING:
    from penstock.connect.record_generators import Generated, GeneratorSettings
    from penstock.log.base import TopicLog

__all__ = ["register"]


class Generator(enum.StrEnum):
    """The generators."""

    ACCESS_LOG = "access-log"
    SHOP = "shop"
    CLICKS = "clicks"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(grouped(datagen))


def datagen(
    kind: Annotated[Generator, typer.Argument(help="access-log; shop: users, items and orders; clicks: page views.")],
    *,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="The number of records; by default endless.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Records per second of event time.")] = 100.0,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal records.")] = 0,
    disorder: Annotated[str, typer.Option(help="The largest delay of a record, e.g. 5s.")] = "0",
    start: Annotated[str | None, typer.Option(help="Time of the first event; by default now.")] = None,
    paced: Annotated[
        bool | None,
        typer.Option("--paced/--at-once", help="Keep the rate in real time too; by default only without --count."),
    ] = None,
    to_topics: Annotated[
        bool, typer.Option("--to-topics", help="Write to topics of the log: access_log, users, items, orders, clicks.")
    ] = False,
    partitions: Annotated[int, typer.Option(min=1, help="The partitions of created topics.")] = 1,
    where: LogOptions,
) -> None:
    """Generate records: lines on the standard output (JSON for shop and clicks), or into topics."""
    from penstock.base.durations import duration_ms
    from penstock.connect.record_generators import GeneratorSettings
    from penstock.connect.record_generators import paced as at_pace

    settings = GeneratorSettings(
        seed=seed,
        count=count,
        rate=rate,
        start_ms=instant_ms(start, "--start"),
        disorder_ms=duration_ms(disorder, "--disorder"),
    )
    records = _generator(kind, settings)
    real_time = count is None if paced is None else paced
    groups = at_pace(records, rate) if real_time else _grouped(records)
    if to_topics:
        sent = 0
        with where.open(create=True) as log, working("generating", count) as bar:
            for group in groups:
                sent += _append(log, group, partitions)
                bar.at(sent)
        console(stderr=True).print(counted(sent, "record"))
        return
    with working("generating", count, prints=True) as bar:
        for group in groups:
            for record in group:
                sys.stdout.write((record.value if kind is Generator.ACCESS_LOG else _as_json(record)) + "\n")
            bar.advance(len(group))
            if real_time:
                sys.stdout.flush()


def _generator(kind: Generator, settings: GeneratorSettings) -> Iterator[Generated]:
    from penstock.connect.record_generators import access_log, clicks, shop

    if kind is Generator.SHOP:
        return shop(settings)
    return clicks(settings) if kind is Generator.CLICKS else access_log(settings)


def _grouped(records: Iterator[Generated], size: int = 10_000) -> Iterator[list[Generated]]:
    import itertools

    while group := list(itertools.islice(records, size)):
        yield group


def _as_json(record: Generated) -> str:
    return json.dumps(
        {"topic": record.topic, "key": record.key, "timestamp": record.timestamp_ms, "value": json.loads(record.value)}
    )


def _append(log: TopicLog, group: Iterable[Generated], partitions: int) -> int:
    from penstock.console.producing import TextProducer
    from penstock.log.ensure_topic import ensure_topic

    producers: dict[str, TextProducer] = {}
    for record in group:
        if record.topic not in producers:
            ensure_topic(log, record.topic, partitions)
            producers[record.topic] = TextProducer(log, record.topic, "string", "string")
        producers[record.topic].add(record.key, record.value, record.timestamp_ms)
    for producer in producers.values():
        producer.flush()
    return sum(producer.sent for producer in producers.values())
