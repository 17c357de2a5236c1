"""`penstock simulate`: a topology and its functions under crashes and other faults."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.escapes import json_text
from penstock.cli.options import ConfigFile, ConfigPairs, Target, read_config
from penstock.cli.output import print_text, working
from penstock.errors import ConfigError, PenstockError, SerializationError

if TYPE_CHECKING:
    from penstock.testing.simulation.records import SourceRecords

__all__ = ["register"]

_FIELDS = frozenset({"topic", "key", "value", "timestamp", "headers", "partition", "offset"})
_MOST_LINE_BYTES = 16 << 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(simulate)


def simulate(
    target: Target,
    *,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            "-i",
            metavar="[TOPIC=]FILE",
            help="Records as JSON lines: topic, key, value, timestamp. TOPIC= for those of `topics consume --json`.",
        ),
    ] = [],  # noqa: B006 - Typer wants a list
    seeds: Annotated[int, typer.Option(min=0, help="The number of schedules with faults.")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this schedule alone, and print its story.")] = None,
    partitions: Annotated[int, typer.Option(min=1, max=16, help="The partitions of each topic.")] = 3,
    records: Annotated[int, typer.Option(min=1, help="How many records a schedule processes, the first ones.")] = 100,
    accept: Annotated[
        list[str],
        typer.Option(metavar="KIND", help="A kind of mistakes that is none here, such as order; repeatable."),
    ] = [],  # noqa: B006 - Typer wants a list
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as JSON, too.")] = None,
    config: ConfigPairs = [],  # noqa: B006 - Typer wants a list
    config_file: ConfigFile = None,
) -> None:
    """Run a topology in this process under crashes, lost requests, power cuts and pauses, and report its mistakes.

    Looks for functions whose results are not the same the next time, that remember something outside of stores, that
    depend on the wall clock or on the order of partitions, and for stores that grow without end. Then each seed is a
    schedule of threads and faults, after which the results must be those of a run without any. Needs no Spark and no
    log. Exit codes: 0 if all held, 1 if not, 130 after Ctrl-C.
    """
    from penstock.cli.topology_loader import load_topology
    from penstock.testing.simulation.checking import Simulation, SimulationReport

    if report is not None and seed is not None:
        raise ConfigError(
            "--report is of many schedules, and --seed runs one", hint=f"Use --first-seed {seed} --seeds 1."
        )
    topology, own = load_topology(target)
    settings = {**own, **read_config(config, config_file)}
    simulation = Simulation(topology, settings, partitions=partitions, accept=accept, most_records=records)
    if not inputs:
        raise ConfigError(
            "there is no input",
            hint=f"Give --input FILE with records of {', '.join(sorted(simulation.records.topics))}.",
        )
    for each in inputs:
        _read(each, simulation.records)
    if seed is not None:
        schedule = simulation.run(seed)
        if isinstance(schedule, SimulationReport):
            print_text(str(schedule))
            raise typer.Exit(1)
        print_text(schedule.story())
        print_text("failed" if schedule.outcome.violations else "all held")
        raise typer.Exit(1 if schedule.outcome.violations else 0)
    with _interruptible() as stopped, working("schedules", seeds) as bar:
        result = simulation.report(range(first_seed, first_seed + seeds), is_stopped=stopped.is_set, on_run=bar.at)
    print_text(str(result))
    if report is not None:
        _write(report, result.document())
    if result.was_stopped and not result.has_failed:
        raise typer.Exit(130)
    if result.has_failed:
        raise typer.Exit(1)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Have the first Ctrl-C end the work after the present schedule; the second one ends the process."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json_text(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the report {path} cannot be written: {error.strerror}") from error


def _read(option: str, records: SourceRecords) -> None:
    """Add the records of a file."""
    topic, separator, name = option.partition("=")
    if not separator or Path(option).is_file():
        topic, name = "", option
    try:
        with Path(name).open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_LINE_BYTES + 1), b""), 1):
                if line.strip():
                    _add(line, f"{name}:{number}", topic, records)
    except OSError as error:
        raise ConfigError(f"the input {name} cannot be read: {error.strerror}") from error


def _add(line: bytes, location: str, topic: str, records: SourceRecords) -> None:
    record = _record(line, location)
    topic = topic or record.get("topic") or (records.topics[0] if len(records.topics) == 1 else "")
    if not topic:
        raise ConfigError(
            f"{location}: the record names no topic",
            hint=f'Add "topic" to it, or give --input TOPIC=FILE; topics are {", ".join(sorted(records.topics))}.',
        )
    headers = record.get("headers")
    try:
        records.add(
            topic,
            record.get("key"),
            record.get("value"),
            record.get("timestamp"),
            [tuple(pair) for pair in headers] if isinstance(headers, list) else headers,
            record.get("partition"),
        )
    except PenstockError as error:
        raise type(error)(f"{location}: {error.message}", hint=error.hint, **error.facts) from error
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"{location}: {error}", hint="Are the fields of the types that records have?"
        ) from error


def _record(line: bytes, location: str) -> dict[str, Any]:
    hint = 'A line is one record: {"topic": "orders", "key": "1", "value": {"item": "lamp"}, "timestamp": 1000}.'
    if len(line) > _MOST_LINE_BYTES:
        raise SerializationError(f"{location}: the line has more than {_MOST_LINE_BYTES >> 20} MiB", hint=hint)
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"{location}: not JSON: {error}", hint=hint) from error
    if not isinstance(record, dict):
        raise SerializationError(f"{location}: not a JSON object", hint=hint)
    if unknown := sorted(set(record) - _FIELDS):
        raise SerializationError(f"{location}: a record has no field {unknown[0]!r}", hint=hint)
    for name, kinds, what in (
        ("topic", str, "a text"),
        ("partition", int, "a whole number"),
        ("timestamp", (int, str), "milliseconds or an ISO time"),
        ("headers", (list, dict), "a list of pairs or an object"),
    ):
        if record.get(name) is not None and (not isinstance(record[name], kinds) or isinstance(record[name], bool)):
            raise SerializationError(f"{location}: {name} is {json.dumps(record[name])[:60]}, not {what}", hint=hint)
    return record
