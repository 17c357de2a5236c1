"""`penstock app plan`: compares a new version of a topology with the stored state of an older one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.option_groups import AppOptions, grouped
from penstock.cli.options import Json, open_log_at
from penstock.cli.output import console, print_json
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.topology.plan.stored import StoredPlan
    from penstock.topology.topology import Topology

__all__ = ["register"]

_VERDICTS = {
    "same": "same: no stored state changes",
    "safe": "safe: the new topology continues with the state as it is",
    "migrate": "migrate: the new topology continues; the stored state changes as listed",
    "refuse": "refused: the new topology would not start with this state",
}


def register(app: typer.Typer) -> None:
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
    from penstock.topology.plan.document import document_of
    from penstock.topology.plan.evolution import compare
    from penstock.topology.plan.identity import plan_after

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
    from penstock.cli.loader import load_topology
    from penstock.config import StreamsConfig
    from penstock.state.checkpoint import read_plan
    from penstock.topology.plan.document import document_of
    from penstock.topology.plan.plan import plan_of
    from penstock.topology.plan.stored import StoredPlan

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
