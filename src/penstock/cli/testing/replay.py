"""`penstock replay`: records of production processed again, with the state of their moment."""

from __future__ import annotations

import json
import pdb  # noqa: T100 - what --pdb is for
import re
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AppOptions, Json, grouped
from penstock.cli.output import print_text
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.testing.replay import PartitionRecords, Replay
    from penstock.topology.topology import Topology

__all__ = ["register"]

_AT = re.compile(r"(?P<topic>.+):(?P<partition>[0-9]{1,9}):(?P<first>[0-9]{1,18})(?:-(?P<last>[0-9]{1,18}))?")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(grouped(replay))


def replay(
    app: AppOptions,
    *,
    at: Annotated[
        str,
        typer.Option("--at", metavar="TOPIC:PARTITION:OFFSET", help="The record; OFFSET-OFFSET: from one to another."),
    ],
    to: Annotated[int | None, typer.Option("--to", min=0, metavar="OFFSET", help="The last record.")] = None,
    debug: Annotated[
        bool, typer.Option("--pdb", help="Stop in the topology's functions, and where one of them raises an error.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Process records of an application's log again in this process, with the state that its stores had then.

    Shows what each record changes in the stores and what it writes, or its error. Nothing is written to the log, and
    the application may run. Breakpoints of an IDE work. Exit codes: 0, or 1 if a record raises an error.
    """
    from penstock.config import StreamsConfig

    span = _place(at, to)
    topology, app_settings = app.load()
    settings = StreamsConfig(app_settings)
    settings.require("application.id", "bootstrap.servers")
    has_failed = False
    for each in _replays(topology, settings, span, _debugged(topology) if debug else lambda run: run()):
        print_text(json.dumps(_document(each)) if as_json else _shown(each))
        for step in each.steps:
            if step.error is not None:
                has_failed = True
                if debug:
                    pdb.post_mortem((step.error.__cause__ or step.error).__traceback__)
    if has_failed:
        raise typer.Exit(1)


def _replays(
    topology: Topology, config: StreamsConfig, span: PartitionRecords, call: Callable[..., Any]
) -> list[Replay]:
    from penstock.cli.options import open_log_at
    from penstock.engines.application.locations import Locations, log_settings
    from penstock.engines.committed_state.opening import ThreadsPlanner
    from penstock.testing.replay import replays_of
    from penstock.topology.configured import with_settings

    with open_log_at(str(config["bootstrap.servers"]), settings=log_settings(config)) as log:
        app = ThreadsPlanner(with_settings(topology, config), config, log, Locations.of(config, log)).planned()
        if app is None:
            raise ConfigError(
                f"{config['application.id']} has not run on this log: topics that it needs are not there",
                hint="Name its log with --bootstrap-servers, and its application.id with --config.",
            )
        return list(replays_of(app, log, span, call))


def _place(at: str, to: int | None) -> PartitionRecords:
    from penstock.testing.replay import PartitionRecords

    parts = _AT.fullmatch(at)
    if parts is None:
        raise ConfigError(f"--at {at!r} is no record", hint="Give TOPIC:PARTITION:OFFSET, for example orders:0:100.")
    if parts["last"] is not None and to is not None:
        raise ConfigError("--at names the last record already", hint="Leave --to out.")
    first = int(parts["first"])
    last = int(parts["last"]) if parts["last"] is not None else first if to is None else to
    if last < first:
        raise ConfigError(f"the last record, {last}, is before the first one, {first}", hint="Give them in order.")
    return PartitionRecords(parts["topic"], int(parts["partition"]), first, last)


def _debugged(topology: Topology) -> Callable[[Callable[[], Any]], Any]:
    """Return a call under pdb, with a breakpoint in each function of the topology."""
    from penstock.topology.operations.definitions import Process
    from penstock.topology.operations.functions import functions_of

    functions = [function.fn for node in topology.nodes.values() for function in functions_of(node)]
    operations = [getattr(node, "operation", None) for node in topology.nodes.values()]
    functions += [getattr(each.supplier, "process", None) for each in operations if isinstance(each, Process)]
    codes = [fn.__code__ for fn in functions if hasattr(fn, "__code__")]

    def call(run: Callable[[], Any]) -> Any:
        debugger = pdb.Pdb(nosigint=True)
        for code in codes:
            lines = sorted({line for _, _, line in code.co_lines() if line is not None})
            inner = [line for line in lines if line > code.co_firstlineno] or lines
            debugger.set_break(code.co_filename, inner[0])
        debugger.rcLines.append("continue")  # to the first of them
        return debugger.runcall(run)

    return call


def _shown(replay: Replay) -> str:
    span = replay.span
    lines = [
        f"task {replay.task}, from {replay.moment.text}"
        + (f" over {replay.before:,} record{'s' if replay.before != 1 else ''}" if replay.before else "")
    ]
    lines += [f"note: {note}" for note in replay.notes]
    for step in replay.steps:
        lines += ["", f"{span.topic}:{span.partition}:{step.offset}  {step.key}: {step.value}  time {step.timestamp}"]
        if step.error is not None:
            lines.append(f"  ERROR  {_error(step.error)}")
            continue
        for change in step.changes:
            lines.append(f"  store {change.store}: {change.before or 'no row'} -> {change.after or 'no row'}")
        for each in step.outputs:
            where = f"{each.topic}-{each.partition}" if each.partition >= 0 else each.topic
            lines.append(f"  wrote {where}: {each.text}  time {each.timestamp}")
        if not step.changes and not step.outputs:
            lines.append("  changes nothing and writes nothing")
    return "\n".join(lines)


def _error(error: Exception) -> str:
    text = error.message if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    if error.__cause__ is not None and (frames := traceback.extract_tb(error.__cause__.__traceback__)):
        text += f", raised at {frames[-1].filename}:{frames[-1].lineno}"
    return f"{text}. {error.hint}" if isinstance(error, PenstockError) and error.hint else text


def _document(replay: Replay) -> dict[str, Any]:
    return {
        "task": replay.task,
        "from": replay.moment.text,
        "records_before": replay.before,
        "notes": replay.notes,
        "records": [
            {
                "offset": step.offset,
                "timestamp": step.timestamp,
                "key": step.key,
                "value": step.value,
                "changes": [{"store": c.store, "before": c.before, "after": c.after} for c in step.changes],
                "outputs": [
                    {"topic": o.topic, "partition": o.partition, "timestamp": o.timestamp, "record": o.text}
                    for o in step.outputs
                ],
                "error": None if step.error is None else _error(step.error),
            }
            for step in replay.steps
        ],
    }
