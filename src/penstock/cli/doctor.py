"""`penstock doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.terminal.human_numbers import size
from penstock.cli.options import CommandConfig, Json, read_command_config
from penstock.cli.output import console, print_json, print_table
from penstock.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from penstock.cli.environment import CheckResult

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    *,
    state_dir: Annotated[Path | None, typer.Option(help="The directory for state.")] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="Check the packages that Kafka needs.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", help="Brokers to read something from; includes --kafka.")
    ] = None,
    command_config: CommandConfig = None,
    faster_start: Annotated[
        bool,
        typer.Option(
            "--faster-start",
            help="Create Java's archive of Spark's classes (150 MB in the cache) if there is none yet.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the requirements of a run: Java, packages, disk, ports; explain how to repair what is missing.

    Exits with 1 if something is missing.
    """
    from penstock.cli.environment import CheckResult, examine, kafka_packages

    findings = examine(state_dir)
    if all(f.ok for f in findings if f.name in ("Java", "pyspark")):
        findings.append(_class_archive(make=faster_start))
    if kafka or bootstrap:
        settings = read_command_config(command_config)
        clients = kafka_packages()
        findings += clients
        if bootstrap and all(f.ok for f in clients):
            from penstock.cli.servers.broker_check import check_broker

            name, fact, remedy = check_broker(bootstrap, settings)
            findings.append(CheckResult(name, fact, ok=not remedy, remedy=remedy))
    missing = [f for f in findings if not f.ok]
    if as_json:
        print_json({"ok": not missing, "findings": [asdict(f) for f in findings]})
    else:
        print_table(["", "what", "found"], (["ok" if f.ok else "MISSING", f.name, f.found] for f in findings))
        for finding in missing:
            console().print(f"\n{finding.name}: {finding.remedy}")
        console().print("\neverything is fine" if not missing else f"\n{len(missing)} to repair")
    if missing:
        raise typer.Exit(1)


def _class_archive(*, make: bool) -> CheckResult:
    from penstock.cli.environment import CheckResult
    from penstock.cli.java_archive import make_archive
    from penstock.engines.spark.java_archive import archive_path

    name = "Java's class archive"
    try:
        path = archive_path()
        if not path.exists() and not make:
            return CheckResult(name, "none; `penstock doctor --faster-start` makes it", ok=True)
        if not path.exists():
            path = make_archive()
        return CheckResult(name, f"{path} ({size(path.stat().st_size)})", ok=True)
    except EnvironmentProblemError as error:
        return CheckResult(name, error.message, ok=False, remedy=error.hint or "")
