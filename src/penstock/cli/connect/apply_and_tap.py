"""`penstock connect apply` and `penstock connect tap`: workers seen from outside."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.escapes import one_line
from penstock.base.terminal.human_numbers import counted
from penstock.cli.connect.run_connector import read_connector, shown_record
from penstock.cli.options import Json, LogOptions, grouped
from penstock.cli.output import confirm, console, print_json
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.connect.worker_client import ConnectClient, Plan

__all__ = ["register"]

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".properties")
STYLES = {"create": "green", "change": "yellow", "delete": "red"}
POLL_S = 0.3

Url = Annotated[
    str,
    typer.Option(
        "--url", "-u", envvar="PENSTOCK_CONNECT_URL", help="A worker of the group, Penstock's or Kafka Connect's."
    ),
]
User = Annotated[
    str | None,
    typer.Option(envvar="PENSTOCK_CONNECT_USER", help="name:password, for workers with basic authentication."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to `penstock connect`."""
    app.command("apply")(apply)
    app.command("tap")(grouped(tap))


def apply(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Files of connectors: .yaml, .json, .toml or .properties; or one file."),
    ],
    *,
    url: Url = "http://localhost:8083",
    user: User = None,
    prune: Annotated[bool, typer.Option("--prune", help="Delete connectors that no file names.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make the changes without a question.")] = False,
) -> None:
    """Create, change and delete connectors until the workers have those of a folder.

    The changes are shown and checked by the workers first. If a config is wrong, nothing is changed.
    """
    from penstock.connect.worker_client import ConnectClient, make_plan

    configs = _configs(folder)
    with ConnectClient(url, user) as client:
        plan = make_plan(configs, client.configs(), prunes=prune)
        _show(plan)
        if not plan.changes:
            return
        _check(plan, client)
        if dry_run:
            return
        confirm(f"Make {_count(len(plan.changes))}?", yes=yes)
        _make(plan, client)


def tap(
    name: Annotated[str, typer.Argument(help="The connector.")],
    *,
    url: Url = "http://localhost:8083",
    user: User = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records; otherwise at Ctrl-C.")
    ] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the oldest records.")] = False,
    as_json: Json = False,
    where: LogOptions,
) -> None:
    """Show the records of a running connector as they pass: what a source writes, or what a sink reads."""
    from penstock.connect.worker_client import ConnectClient, Tap

    with ConnectClient(url, user) as client:
        config, topics = client.config(name), client.topics(name)
    topics = topics or [topic.strip() for topic in config.get("topics", "").split(",") if topic.strip()]
    if not topics:
        raise ConfigError(
            f"the connector {name} has used no topic yet", hint="Wait for its first record, or look at its status."
        )
    out, shown = console(), 0
    with where.open() as log:
        reader = Tap(log, topics, config, from_start=from_start)
        console(stderr=True).print(f"{name}: {', '.join(topics)}; Ctrl-C ends it")
        try:
            while count is None or shown < count:
                for record in reader.read():
                    document = {"partition": record.partition, "offset": record.offset, **shown_record(record)}
                    if as_json:
                        print_json(document)
                    else:
                        position = f"{record.topic}-{record.partition}@{record.offset}"
                        parts = [part for part in ("key", "value", "headers") if part in document]
                        text = "  ".join(f"{part}={one_line(str(document[part]))}" for part in parts)
                        out.print(f"{position}  {text}", markup=False, highlight=False, soft_wrap=True)
                    shown += 1
                    if shown == count:
                        break
                else:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            return


def _configs(folder: Path) -> dict[str, dict[str, str]]:
    """Return the configs of all files, by the connectors' names."""
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist", hint="Name a folder of connectors' files, or one file.")
    files = [folder] if folder.is_file() else sorted(each for each in folder.iterdir() if each.suffix in SUFFIXES)
    if not files:
        raise ConfigError(f"{folder} has no files of connectors", hint=f"They end with {', '.join(SUFFIXES)}.")
    configs: dict[str, dict[str, str]] = {}
    places: dict[str, Path] = {}
    for file in files:
        config = read_connector(file)
        name = config["name"]
        if name in configs:
            raise ConfigError(f"{places[name]} and {file} both name the connector {name}", hint="Rename one of them.")
        configs[name], places[name] = config, file
    return configs


def _show(plan: Plan) -> None:
    out = console()
    for change in plan.changes:
        word = change.action.value
        out.print(f"{word} {change.name}", style=STYLES[word], markup=False)
        for line in change.lines:
            out.print(f"  {line}", style="green" if line.startswith("+") else "red", markup=False, highlight=False)
    for name in plan.unchanged:
        out.print(f"unchanged {name}", style="dim", markup=False)
    for name in plan.others:
        out.print(f"not in the folder: {name} (--prune deletes it)", style="dim", markup=False)


def _check(plan: Plan, client: ConnectClient) -> None:
    problems = {change.name: client.problems(change.config) for change in plan.changes if change.config}
    wrong = {name: sentences for name, sentences in problems.items() if sentences}
    if wrong:
        texts = [f"{name}: {text}" for name, sentences in wrong.items() for text in sentences]
        raise ConfigError(
            "the workers refuse:\n  " + "\n  ".join(texts), hint="Correct the files; nothing was changed."
        )


def _make(plan: Plan, client: ConnectClient) -> None:
    out = console()
    for done, change in enumerate(plan.changes):
        try:
            if change.config:
                client.put_config(change.name, change.config)
            else:
                client.delete(change.name)
        except Exception:
            console(stderr=True).print(f"{_count(done)} of {len(plan.changes)} made; run it again to continue")
            raise
        out.print(f"{change.name}: {change.action.value}d", markup=False)


def _count(number: int) -> str:
    return counted(number, "change")
