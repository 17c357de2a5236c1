"""`penstock app`: operations on a whole application."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.moving import MovingOptions, show_moves
from penstock.cli.option_groups import AppOptions, grouped
from penstock.cli.options import (
    Bootstrap,
    CommandConfig,
    ConfigFile,
    ConfigPairs,
    Json,
    open_log_at,
    read_command_config,
    read_config,
)
from penstock.cli.output import console, print_json

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.topology import Topology

__all__ = ["app"]

app = typer.Typer(
    help="Compare versions of an application, convert it to another mode, or reset it.", no_args_is_help=True
)
_NONE: list[str] = []
_LOG = "penstock.db"


@dataclass(frozen=True, slots=True)
class ApplicationOptions:
    """An application, by its id and settings, or by its topology, whose module has them."""

    application: Annotated[
        str, typer.Argument(metavar="APPLICATION", help="The application.id, or MODULE:TOPOLOGY of the application.")
    ]
    bootstrap: Bootstrap = ""
    command_config: CommandConfig = None
    config: ConfigPairs = field(default_factory=list)
    config_file: ConfigFile = None

    def load(self) -> tuple[Topology | None, StreamsConfig]:
        """Load its topology, if given, and its settings."""
        from penstock.config import StreamsConfig

        if ":" in self.application or self.application.endswith(".py"):
            options = AppOptions(self.application, self.bootstrap, self.command_config, self.config, self.config_file)
            topology, settings = options.load()
            config = StreamsConfig(settings)
            config.require("application.id", "bootstrap.servers")
            return topology, config
        settings = {"bootstrap.servers": _LOG, **read_command_config(self.command_config)}
        settings |= {**read_config(self.config, self.config_file), "application.id": self.application}
        if self.bootstrap:
            settings["bootstrap.servers"] = self.bootstrap
        return None, StreamsConfig(settings)


@app.callback()
def root() -> None:
    """Compare versions of an application, convert it to another mode, or reset it."""


@app.command()
@grouped
def reset(
    *,
    application_options: ApplicationOptions,
    input_topic: Annotated[
        list[str],
        typer.Option("--input-topic", metavar="TOPIC[:0,1]", help="By default all topics of its group; repeatable."),
    ] = _NONE,
    internal_topic: Annotated[
        list[str], typer.Option("--internal-topic", help="Delete only these of its internal topics; repeatable.")
    ] = _NONE,
    moving: MovingOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Reset even if an instance seems to run: it then fails.")
    ] = False,
    without_checkpoint: Annotated[
        bool, typer.Option("--without-checkpoint", help="The checkpoint is lost: reset only the log.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reset an application to its beginning. Prints the plan; --execute executes it.

    It moves the input offsets (by default to the beginning) and deletes state, checkpoint, ledger and those internal
    topics that its stored plan or its topology names. Everything else stays, also the records of output topics.

    The location of the state comes from --config (state.dir, penstock.checkpoint.location) as for `penstock run`.
    """
    from penstock.engines.application.app_log import log_settings
    from penstock.engines.application_reset import ApplicationReset
    from penstock.errors import LogError
    from penstock.log.groups.resets import Target, choose

    does = moving.wants_execution()
    target = choose(moving.targets(), Target.earliest())
    topology, settings = application_options.load()
    application = settings["application.id"]
    with open_log_at(str(settings["bootstrap.servers"]), settings=log_settings(settings)) as log:
        tool = ApplicationReset(log, settings, topology, without_checkpoint=without_checkpoint)
        if not tool.is_known():
            groups = ", ".join(log.groups()) or "none"
            raise LogError(f"no application {application!r} has run on this log", hint=f"Groups: {groups}.")
        plan = tool.plan(target, input_topic, internal_topic)
        deleted = tool.run(plan, force=force) if does else (*plan.topics, *plan.places)
    if as_json:
        print_json({**asdict(plan), "executed": does, "deleted": deleted if does else ()})
        return
    out = console()
    verb = "deleted" if does else "to delete"
    for name in deleted:
        out.print(f"{verb}: {'topic ' if name in plan.topics else ''}{name}")
    for name in plan.kept:
        out.print(f"kept: {name} (not in the application's plan)")
    show_moves(application, plan.moves, does=does, as_json=False)
    if not does and not plan.moves:
        console(stderr=True).print("nothing was changed: --execute does it")
