"""`penstock app convert`: moves an application from micro-batches to continuous mode, or back."""

from __future__ import annotations

import enum
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.option_groups import AppOptions, grouped
from penstock.cli.options import Json, open_log_at
from penstock.cli.output import console, print_json, waiting

if TYPE_CHECKING:
    from penstock.engines.conversion.report import ConversionReport

__all__ = ["register"]


class Mode(enum.StrEnum):
    """The modes of processing."""

    CONTINUOUS = "continuous"
    MICRO_BATCH = "micro_batch"


def register(app: typer.Typer) -> None:
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
    from penstock.engines.application.app_log import log_settings
    from penstock.engines.conversion.convert import convert as convert_application
    from penstock.engines.figures import BatchMeter
    from penstock.engines.running import Run

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
