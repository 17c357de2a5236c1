"""`penstock state`: the stores of an application, whether their segments are all there, and rebuilding them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.option_groups import AppOptions, grouped
from penstock.cli.options import Json
from penstock.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from penstock.spark.rebuild import Rebuilder

__all__ = ["app"]

app = typer.Typer(help="The state of an application: list, verify, rebuild from changelogs.", no_args_is_help=True)


@app.command("list")
@grouped
def list_state(
    *,
    options: AppOptions,
    as_json: Json = False,
) -> None:
    """List the tasks that keep state: stores, newest batch, segments and their bytes."""
    with _rebuilder(options) as rebuilder:
        rows: list[dict[str, Any]] = []
        for sub, partition in rebuilder.tasks():
            facts = rebuilder.look(sub, partition)
            size = rebuilder.storage(sub, partition).size_bytes()
            rows.append(
                {
                    "task": facts.task,
                    "stores": list(facts.stores),
                    "batch": facts.chain.head,
                    "deltas": facts.chain.deltas,
                    "snapshots": facts.chain.snapshots,
                    "bytes": size,
                    "changelog_batch": None if facts.numbers is None else facts.numbers.batch,
                }
            )
    if as_json:
        print_json(rows)
        return
    shown = [{**row, "stores": ", ".join(row["stores"])} for row in rows]
    names = ["task", "stores", "batch#", "deltas#", "snapshots#", "bytes#", "changelog#"]
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
        found = [rebuilder.look(sub, partition) for sub, partition in rebuilder.tasks()]
    rows = [{"task": each.task, "batch": each.chain.head, "gap": each.gap} for each in found]
    if as_json:
        print_json(rows)
    else:
        print_table(["task", "batch#", "what is missing"], ([r["task"], r["batch"], r["gap"] or ""] for r in rows))
    if any(each.gap for each in found):
        raise typer.Exit(1)


@app.command("rebuild")
@grouped
def rebuild(
    *,
    options: AppOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on without what a half-finished batch had handed to other tasks."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuild tasks of which segments are missing, from their changelog topics. The application must not run.

    A task whose segments are all there is left alone. A damaged segment counts as missing.
    """
    out = console(stderr=True)
    shows = sys.stderr.isatty()
    reports = []
    with _rebuilder(options) as rebuilder, out.status("looking") as status:
        for sub, partition in rebuilder.tasks():

            def told(what: str, done: int, total: int) -> None:
                if shows:
                    status.update(f"{what}: {done} of {total}")

            reports.append(rebuilder.rebuild(sub, partition, dry_run=dry_run, accept_loss=accept_loss, progress=told))
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


@contextmanager
def _rebuilder(options: AppOptions) -> Iterator[Rebuilder]:
    from penstock.config import StreamsConfig
    from penstock.spark.rebuild import rebuilder_for

    topology, settings = options.load()
    with rebuilder_for(topology, StreamsConfig(settings)) as found:
        yield found
