"""`penstock app`: reset, plan and convert a whole application."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.offset_moves import MovingOptions, show_moves
from penstock.cli.options import (
    AppOptions,
    Bootstrap,
    CommandConfig,
    ConfigFile,
    ConfigPairs,
    Json,
    grouped,
    open_log_at,
    read_command_config,
    read_config,
)
from penstock.cli.output import console, print_json, waiting
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.conversion import ConversionReport
    from penstock.topology.plan.plan_json import StoredPlan
    from penstock.topology.topology import Topology

__all__ = ["app", "register_convert", "register_plan"]

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
    from penstock.engines.application.locations import log_settings
    from penstock.engines.reset import ApplicationReset
    from penstock.errors import LogError
    from penstock.log.groups.reset_targets import Target, choose

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


_VERDICTS = {
    "same": "same: no stored state changes",
    "safe": "safe: the new topology continues with the state as it is",
    "migrate": "migrate: the new topology continues; the stored state changes as listed",
    "refuse": "refused: the new topology would not start with this state",
}


def register_plan(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(grouped(plan))


def plan(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A checkpoint location, or MODULE:TOPOLOGY.")],
    *,
    options: AppOptions,
    drop: Annotated[
        list[str], typer.Option("--drop", metavar="STORE", help="Like penstock.state.drop; repeatable.")
    ] = [],  # noqa: B006 - Typer wants a list
    partitions: Annotated[int, typer.Option(help="Partitions to assume for unknown topics.")] = 1,
    as_json: Json = False,
) -> None:
    """Compare a new topology with an old one, or with a checkpoint: safe, with a migration, or refused, with reasons.

    Nothing is started or changed. With --bootstrap-servers the topics' present partitions count, else those in the
    checkpoint. Exits with 1 if a start would be refused.
    """
    from penstock.config import StreamsConfig
    from penstock.topology.plan.evolution import compare, plan_after
    from penstock.topology.plan.plan_json import document_of

    topology, settings = options.load()
    partition_counts: dict[str, int] = {}
    if options.bootstrap:
        with open_log_at(options.bootstrap) as log:
            partition_counts = {topic.name: topic.partitions for topic in log.topics()}
    stored = _stored(old, settings, options.given(), partition_counts, partitions)
    application = stored.plan["application"]
    noted = {f"default.{fact.replace('_', '.')}": name for fact, name in stored.plan.get("defaults", {}).items()}
    config = StreamsConfig({**noted, **settings, "application.id": settings.get("application.id", application)})
    counts = {**_assumed(topology, partitions), **_noted(stored.plan), **partition_counts}
    new = document_of(plan_after(stored, topology, config["application.id"], counts), topology, config)
    change = compare(stored, new, (*config["penstock.state.drop"], *drop))
    if new["application"] != application:
        raise ConfigError(
            f"{old} is of application {application!r}, the new topology has application.id {new['application']!r}",
            hint="Compare versions of one application: --config application.id=...",
        )
    if as_json:
        findings = {name: list(getattr(change, name)) for name in ("reasons", "migrations", "notes")}
        print_json({"verdict": change.verdict, **findings})
    else:
        out = console()
        out.print(_VERDICTS[change.verdict], markup=False, soft_wrap=True)
        for mark, lines in (("refused", change.reasons), ("migration", change.migrations), ("note", change.notes)):
            for line in lines:
                out.print(f"  {mark}: {line}", markup=False, soft_wrap=True)
    if change.verdict == "refuse":
        raise typer.Exit(1)


def _stored(
    old: str,
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    partition_counts: Mapping[str, int],
    partitions: int,
) -> StoredPlan:
    """Load the plan of a checkpoint, or make that of a topology."""
    from penstock.cli.topology_loader import load_topology
    from penstock.config import StreamsConfig
    from penstock.state.checkpoint import read_plan
    from penstock.topology.plan.plan import plan_of
    from penstock.topology.plan.plan_json import StoredPlan, document_of

    if "://" in old or Path(old).is_dir():
        facts = read_plan(old.rstrip("/"))
        if facts is None:
            raise ConfigError(
                f"there is no checkpoint at {old}",
                hint="It is the directory with plan.json: penstock.checkpoint.location.",
            )
        return StoredPlan.of(facts)
    topology, own = load_topology(old)
    stored_as = {"dsl.store.format": {**own, **given}.get("dsl.store.format"), "processing.mode": None}
    config = StreamsConfig({**own, "processing.mode": None}).with_settings({**settings, **stored_as})
    plan = plan_of(topology, config["application.id"] or "app", {**_assumed(topology, partitions), **partition_counts})
    document = document_of(plan, topology, config)
    return StoredPlan.first(json.loads(json.dumps(document)), "")


def _assumed(topology: Topology, partitions: int) -> dict[str, int]:
    return {topic: partitions for node in topology.sources if not node.internal for topic in node.topics}


def _noted(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return the partitions of input topics when the checkpoint was written; early ones only have the tasks."""
    of_tasks: dict[str, int] = {
        topic: sub["tasks"] for sub in plan["subtopologies"].values() for topic in sub["topics"]
    }
    return {**of_tasks, **plan.get("partitions", {})}


class Mode(enum.StrEnum):
    """The modes of processing."""

    CONTINUOUS = "continuous"
    MICRO_BATCH = "micro_batch"


def register_convert(app: typer.Typer) -> None:
    """Add the command."""
    app.command("convert")(grouped(convert))


def convert(
    *,
    options: AppOptions,
    to: Annotated[Mode, typer.Option("--to", help="The mode to run in from now on.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what is found, and what would be done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Convert a stopped application to another processing mode, with its state and positions.

    Nothing is lost and nothing counted twice. A start with another processing.mode does the same. An interrupted
    conversion is repeated. Spark is started only if a batch, or records between sub-topologies, have to be finished.
    """
    from penstock.config import StreamsConfig
    from penstock.engines.application.locations import log_settings
    from penstock.engines.application_figures import BatchMeter
    from penstock.engines.application_run import Run
    from penstock.engines.conversion import convert as convert_application

    topology, settings = options.load()
    config = StreamsConfig(settings)
    config.require("application.id", "bootstrap.servers")
    run = Run(topology, config, None, (), BatchMeter(config["application.id"]))
    with (
        open_log_at(str(config["bootstrap.servers"]), settings=log_settings(config)) as log,
        waiting("converting"),
    ):
        report = convert_application(topology, config, log, to.value, run.finish_in, dry_run=dry_run)
    if as_json:
        print_json(asdict(report))
    else:
        _show(report, dry_run=dry_run)


def _show(report: ConversionReport, *, dry_run: bool) -> None:
    out = console()
    if report.before is None:
        out.print(f"{report.application} has not run: it starts in any mode", markup=False)
    elif report.before == report.after:
        out.print(f"{report.application} is in mode {report.after} already", markup=False)
    for line in report.found:
        out.print(f"found: {line}", markup=False, soft_wrap=True)
    for line in report.steps:
        out.print(f"{'done' if report.is_done else 'to do'}: {line}", markup=False, soft_wrap=True)
    if report.is_done:
        text = f"{report.application}: {report.before} -> {report.after}; run it with processing.mode={report.after}"
        out.print(text, markup=False, soft_wrap=True)
    elif dry_run and report.steps:
        console(stderr=True).print("nothing was changed: leave out --dry-run")
