"""`penstock app`: what is done to a whole application from outside."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.moving import MovingOptions, show_moves
from penstock.cli.option_groups import LogOptions, grouped
from penstock.cli.options import ConfigFile, ConfigPairs, Json, read_config
from penstock.cli.output import console, print_json

__all__ = ["app"]

app = typer.Typer(help="An application from outside: start it over.", no_args_is_help=True)
_NONE: list[str] = []


@app.callback()
def root() -> None:
    """An application from outside."""


@app.command()
@grouped
def reset(
    application: Annotated[str, typer.Argument(help="The application.id.")],
    *,
    input_topic: Annotated[
        list[str], typer.Option("--input-topic", metavar="TOPIC[:0,1]", help="By default all of its group; repeatable.")
    ] = _NONE,
    internal_topic: Annotated[
        list[str], typer.Option("--internal-topic", help="Delete only these of its internal topics; repeatable.")
    ] = _NONE,
    moving: MovingOptions,
    force: Annotated[bool, typer.Option("--force", help="Even if an instance seems to run: it then fails.")] = False,
    config: ConfigPairs = _NONE,
    config_file: ConfigFile = None,
    where: LogOptions,
    as_json: Json = False,
) -> None:
    """Start an application over. Shows what it would do; --execute does it.

    It moves the input (by default to the beginning) and deletes internal topics, state, checkpoint and ledger. Output
    topics keep their records.

    Where the state is comes from --config (state.dir, penstock.checkpoint.location) as for `penstock run`.
    """
    from penstock.config import StreamsConfig
    from penstock.errors import LogError
    from penstock.groups.application import ApplicationReset
    from penstock.groups.resets import Target, choose

    does = moving.wants_execution()
    target = choose(moving.targets(), Target.earliest())
    own = {"application.id": application, "bootstrap.servers": where.bootstrap}
    settings = StreamsConfig({**read_config(config, config_file), **own})
    with where.open() as log:
        tool = ApplicationReset(log, settings)
        if not tool.is_known():
            known = ", ".join(log.groups()) or "none"
            raise LogError(f"no application {application!r} has run over this log", hint=f"Groups: {known}.")
        plan = tool.plan(target, input_topic, internal_topic)
        if does:
            tool.run(plan, force=force)
    if as_json:
        print_json({**asdict(plan), "executed": does})
        return
    out = console()
    verb = "deleted" if does else "to delete"
    for topic in plan.topics:
        out.print(f"{verb}: topic {topic}")
    for place in plan.places:
        out.print(f"{verb}: {place}")
    show_moves(application, plan.moves, does=does, as_json=False)
    if not does and not plan.moves:
        console(stderr=True).print("nothing was changed: --execute does it")
