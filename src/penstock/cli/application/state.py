"""`penstock state`: listing, verifying and rebuilding the stores of an application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AppOptions, Json, grouped
from penstock.cli.output import print_json, print_table, working

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.micro_batches.recovery.rebuild import Rebuilder, TaskReport
    from penstock.topology.topology import Topology

__all__ = ["app"]

app = typer.Typer(help="The state of an application: list, verify, rebuild from changelogs.", no_args_is_help=True)


@app.command("list")
@grouped
def list_state(
    *,
    options: AppOptions,
    as_json: Json = False,
) -> None:
    """List the tasks with state: stores, records of their changelogs, bytes on this machine. The application may run.

    In micro-batches: stores, newest batch, segments and their bytes.
    """
    from penstock.config import StreamsConfig
    from penstock.engines.micro_batches.recovery.rebuild import inspector_for

    topology, settings = options.load()
    config = StreamsConfig(settings)
    rows = _of_threads(topology, config)
    names = ["task", "stores", "changelog records#", "bytes here#"]
    if rows is None:
        with inspector_for(topology, config) as (rebuilder_now, _):
            rows = _listed(rebuilder_now)
        names = ["task", "stores", "batch#", "deltas#", "snapshots#", "bytes#", "changelog#"]
    if as_json:
        print_json(rows)
        return
    shown = [{**row, "stores": ", ".join(row["stores"])} for row in rows]
    print_table(names, (list(row.values()) for row in shown), empty="no task keeps state")


@app.command("verify")
@grouped
def verify(
    *,
    options: AppOptions,
    as_json: Json = False,
) -> None:
    """Read all segments and check that none is damaged or missing; exits with 1 if one is."""
    with _rebuilder(options) as rebuilder:
        tasks = list(rebuilder.tasks())
        reports = []
        with working("reading the segments of tasks", len(tasks)) as bar:
            for sub, partition in tasks:
                reports.append(rebuilder.look(sub, partition))
                bar.advance()
    rows = [{"task": each.task, "batch": each.chain.head, "gap": each.gap} for each in reports]
    if as_json:
        print_json(rows)
    else:
        print_table(["task", "batch#", "what is missing"], ([r["task"], r["batch"], r["gap"] or ""] for r in rows))
    if any(each.gap for each in reports):
        raise typer.Exit(1)


@app.command("rebuild")
@grouped
def rebuild(
    *,
    options: AppOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Continue without the records that an unfinished batch has passed to other tasks."
        ),
    ] = False,
    without_checkpoint: Annotated[
        bool,
        typer.Option("--without-checkpoint", help="The whole checkpoint is lost: create it again from the log."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuild tasks with missing segments from their changelog topics. The application must not run.

    A task with all segments does not change. A damaged segment counts as missing. With --without-checkpoint the state
    comes from the changelogs, the offsets from the group and the batches' numbers from the ledger; it is refused if
    that would lose or double anything.
    """
    reports = []
    with working("checking segments") as bar:

        def report_progress(what: str, done: int, total: int) -> None:
            bar.at(done, total, what)

        if without_checkpoint:
            reports = _made_anew(options, dry_run=dry_run, accept_loss=accept_loss, progress=report_progress)
        else:
            with _rebuilder(options) as rebuilder:
                for sub, partition in rebuilder.tasks():
                    reports.append(
                        rebuilder.rebuild(
                            sub, partition, dry_run=dry_run, accept_loss=accept_loss, progress=report_progress
                        )
                    )
    if as_json:
        print_json([asdict(report) for report in reports])
        return
    names = ["task", "outcome", "batch#", "records#", "rows#", "seconds#", "begins empty"]
    rows = (
        [
            r.task,
            r.outcome,
            r.batch,
            r.records,
            sum(r.rows.values()),
            round(r.seconds, 2),
            ", ".join(r.without_changelog),
        ]
        for r in reports
    )
    print_table(names, rows, empty="no task keeps state")


def _of_threads(topology: Topology, config: StreamsConfig) -> list[dict[str, Any]] | None:
    """Return the facts about each task of an application in stream threads; None if it is in micro-batches."""
    from penstock.engines.application.application_mode import CONTINUOUS, mode_of
    from penstock.engines.application.locations import Locations, open_app_log
    from penstock.engines.application.planning import plan_for
    from penstock.engines.threads.replicas.replica_folders import continuous_place
    from penstock.log.base import TopicPartition
    from penstock.topology.plan.internal_topics import changelogs_of

    with open_app_log(config) as log:
        if mode_of(log, config) != CONTINUOUS:
            return None
        plan, places = plan_for(topology, config, log), Locations.of(config, log)
        changelogs = {each.store: each.topic for each in changelogs_of(topology, plan, config) if each.store}
        there = {topic.name for topic in log.topics()}
        topics = [topic for topic in changelogs.values() if topic in there]
        first, ends = log.beginning_offsets(topics), log.end_offsets(topics)
        rows = []
        for sub in plan.subtopologies:
            for number in range(sub.tasks) if sub.stores else ():
                kept = [TopicPartition(changelogs[name], number) for name in sub.stores if name in changelogs]
                folder = continuous_place(places.replicas, plan.application_id, log.identity(), f"{sub.id}_{number}")[1]
                rows.append(
                    {
                        "task": f"{sub.id}_{number}",
                        "stores": list(sub.stores),
                        "changelog_records": sum(ends.get(tp, 0) - first.get(tp, 0) for tp in kept),
                        "bytes": sum(each.stat().st_size for each in folder.rglob("*.mdb")),
                    }
                )
        return rows


def _listed(rebuilder_now: Callable[[], Rebuilder], tries: int = 5) -> list[dict[str, Any]]:
    """Return the facts about each task; looked at again where a running application has merged segments meanwhile."""
    rows: list[dict[str, Any]] = []
    rebuilder = rebuilder_now()
    try:
        for sub, partition in rebuilder.tasks():
            facts = rebuilder.look(sub, partition)
            rows.append(
                {
                    "task": facts.task,
                    "stores": list(facts.stores),
                    "batch": facts.chain.head,
                    "deltas": facts.chain.deltas,
                    "snapshots": facts.chain.snapshots,
                    "bytes": rebuilder.storage(sub, partition).size_bytes(),
                    "changelog_batch": None if facts.numbers is None else facts.numbers.batch,
                }
            )
    except FileNotFoundError:
        if tries <= 1:
            raise
        return _listed(rebuilder_now, tries - 1)
    return rows


@contextmanager
def _rebuilder(options: AppOptions) -> Iterator[Rebuilder]:
    from penstock.config import StreamsConfig
    from penstock.engines.micro_batches.recovery.rebuild import rebuilder_for

    topology, settings = options.load()
    with rebuilder_for(topology, StreamsConfig(settings)) as rebuilder:
        yield rebuilder


def _made_anew(
    options: AppOptions, *, dry_run: bool, accept_loss: bool, progress: Callable[[str, int, int], None]
) -> list[TaskReport]:
    from penstock.config import StreamsConfig
    from penstock.engines.micro_batches.recovery.lost_checkpoint import lost_checkpoint_of

    topology, settings = options.load()
    with lost_checkpoint_of(topology, StreamsConfig(settings)) as lost_checkpoint:
        return lost_checkpoint.make(dry_run=dry_run, accept_loss=accept_loss, progress=progress)
