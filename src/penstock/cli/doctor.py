"""`penstock doctor`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.terminal.human_numbers import counted, size
from penstock.cli.options import CommandConfig, Json, read_command_config
from penstock.cli.output import console, print_json, print_table
from penstock.errors import AuthorizationError, EnvironmentProblemError, LogError, LogUnavailableError, PenstockError

if TYPE_CHECKING:
    from penstock.cli.environment import CheckResult

__all__ = ["register"]

_PATIENCE_MS = 10_000  # a user waits for the result
_CONNECT_S = 5.0
_TOPICS_TRIED = 20


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
            name, fact, remedy = _check_broker(bootstrap, settings)
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


def _check_broker(servers: str, settings: Mapping[str, Any]) -> tuple[str, str, str]:
    """Look at a broker.

    Args:
        servers: Its address.
        settings: Settings of Kafka's clients, by their Java names.

    Returns:
        The name of the check, its result, and the remedy if it has failed, else an empty text.
    """
    name = f"broker {servers}"
    try:
        return name, _ask(servers, settings), ""
    except PenstockError as error:
        return name, error.message, error.hint or "The message says all that is known."


def _ask(servers: str, settings: Mapping[str, Any]) -> str:
    """Ask the broker for its topics, and read a record; return a summary."""
    from penstock.log.open import open_log
    from penstock.log.url import kafka_servers

    if kafka_servers(servers) is None:
        raise LogError(f"{servers} is not an address of Kafka", hint="Use host:port; an embedded log needs no broker.")
    _reach(servers)
    with open_log(servers, {**settings, "task.timeout.ms": _PATIENCE_MS}) as log:
        topics = [info.name for info in log.topics()]
        ends = log.end_offsets(topics) if topics else {}
        starts = log.beginning_offsets(topics) if topics else {}
        full = [tp for tp, end in sorted(ends.items()) if end > starts[tp]]
        said = f"answers; {counted(len(topics), 'topic')}"
        for tp in full[:_TOPICS_TRIED]:
            try:
                if log.read(tp.topic, tp.partition, starts[tp], 1).records.num_rows:
                    return f"{said}; a record of {tp.topic} was read"
            except AuthorizationError:
                continue
    return f"{said}, with nothing that this user may read"


def _reach(servers: str) -> None:
    """Raise LogUnavailableError unless one of the addresses accepts connections; clients would only go on trying."""
    failures = []
    for server in servers.removeprefix("kafka://").split(","):
        host, _, port = server.strip().rstrip("/").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except (OSError, ValueError) as error:
            failures.append(f"{server}: {error}")
        else:
            return
    raise LogUnavailableError(
        f"no broker answers at {'; '.join(failures)}",
        hint="Check host and port, and that the broker runs. `penstock broker start` starts one on this machine.",
    )
