"""`penstock doctor`: what this machine, or a broker, lacks for an application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.base.terminal.human_numbers import counted, size
from penstock.cli.options import CommandConfig, ConfigFile, ConfigPairs, Json, read_command_config, read_config
from penstock.cli.output import console, print_json, print_table, waiting
from penstock.errors import (
    AuthorizationError,
    ConfigError,
    CoPartitionError,
    EnvironmentProblemError,
    LogError,
    PenstockError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from penstock.base.check_result import CheckResult
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.base import TopicLog

__all__ = ["register"]

_PATIENCE_MS = 10_000  # a user waits for the result
_TOPICS_TRIED = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[APPLICATION]",
            help="With -b: an application.id, or MODULE:TOPOLOGY, whose topics and rights are checked too.",
            show_default=False,
        ),
    ] = "",
    *,
    state_dir: Annotated[Path | None, typer.Option(help="The directory for state.")] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="Check the packages that Kafka needs.")] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap-servers", "-b", help="Brokers to examine, without a write; includes --kafka."),
    ] = None,
    command_config: CommandConfig = None,
    config: ConfigPairs = [],  # noqa: B006 - Typer wants a list
    config_file: ConfigFile = None,
    trial: Annotated[
        bool,
        typer.Option(
            "--try",
            help="With -b: create a topic, write a transaction, read it, see it compacted, and delete the topic.",
        ),
    ] = False,
    faster_start: Annotated[
        bool,
        typer.Option(
            "--faster-start",
            help="Create Java's archives of Spark's classes (240 MB in the cache) if there are none yet.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the requirements of a run: Java, packages, disk, ports, brokers; explain how to repair what is missing.

    Of brokers: whether each answers where it says, versions and features, rights, settings that lose data, quotas,
    clocks; of an application: its topics and rights. Exits with 1 if something is missing; warnings do not count.
    """
    from penstock.cli.environment import examine, kafka_packages

    if (target or trial) and bootstrap is None:
        raise ConfigError("an application is examined over brokers, and none are given", hint="Name them with -b.")
    if bootstrap is None and (config or config_file is not None or command_config is not None):
        raise ConfigError("settings are of brokers and applications, and none are given", hint="Name brokers with -b.")
    settings = {**read_command_config(command_config), **read_config(config, config_file)}
    findings = examine(state_dir)
    if all(f.ok for f in findings if f.name in ("Java", "pyspark")):
        findings.append(_class_archive(make=faster_start))
    if kafka or bootstrap:
        clients = kafka_packages()
        findings += clients
        if bootstrap and all(f.ok for f in clients):
            with waiting("asking the brokers"):
                findings += _examined(bootstrap, settings, target, trial=trial)
    missing = [f for f in findings if f.verdict == "missing"]
    warnings = [f for f in findings if f.verdict == "warning"]
    if as_json:
        print_json({"ok": not missing, "findings": [{**asdict(f), "verdict": f.verdict} for f in findings]})
    else:
        shown = {"ok": "ok", "warning": "warning", "missing": "MISSING"}
        print_table(["", "what", "found"], ([shown[f.verdict], f.name, f.found] for f in findings))
        for finding in (*warnings, *missing):
            console().print(Text(f"\n{finding.name}: {finding.remedy}"))
        console().print(_summary(len(missing), len(warnings)))
    if missing:
        raise typer.Exit(1)


def _summary(missing: int, warnings: int) -> str:
    if not missing and not warnings:
        return "\neverything is fine"
    parts = [f"{missing} to repair"] if missing else []
    return "\n" + ", ".join([*parts, *([counted(warnings, "warning")] if warnings else [])])


def _class_archive(*, make: bool) -> CheckResult:
    from penstock.base.check_result import CheckResult
    from penstock.cli.java_archive import make_archives
    from penstock.engines.spark.java_archive import archive_path

    name = "Java's class archives"
    try:
        paths = make_archives() if make else [archive_path(with_sql=with_sql) for with_sql in (False, True)]
        there = [f"{path} ({size(path.stat().st_size)})" for path in paths if path.exists()]
        lacking = "" if len(there) == len(paths) else "; `penstock doctor --faster-start` makes what is missing"
        return CheckResult(name, (", ".join(there) or "none") + lacking, ok=True)
    except EnvironmentProblemError as error:
        return CheckResult(name, error.message, ok=False, remedy=error.hint or "")


def _examined(servers: str, settings: Mapping[str, Any], target: str, *, trial: bool) -> list[CheckResult]:
    """Examine brokers.

    Args:
        servers: Their addresses.
        settings: Settings of Kafka's clients by their Java names, and of an application.
        target: An ``application.id``, or the place of a topology; empty: no application.
        trial: Whether to try what an application does.
    """
    from penstock.base.check_result import CheckResult
    from penstock.log.kafka.checkup.checkup import examine_cluster, try_cluster
    from penstock.log.open import open_log
    from penstock.log.url import kafka_servers

    name = f"broker {servers}"
    try:
        addresses = kafka_servers(servers)
        if addresses is None:
            raise LogError(
                f"{servers} is not an address of Kafka", hint="Use host:port; an embedded log needs no broker."
            )
        name = f"application {target}" if target else name
        needs, settings = _needs(addresses, settings, target)
        name = f"broker {servers}"
        hurried = {**settings, "task.timeout.ms": _PATIENCE_MS}
        findings = list(examine_cluster(addresses, hurried, needs, is_named=bool(target)))
        brokers = [f for f in findings if f.name.startswith("broker ")]
        if not all(f.ok for f in brokers):
            return findings
        with open_log(addresses, hurried) as log:
            findings.append(CheckResult(name, _read_something(log), ok=True))
            if trial:
                findings += try_cluster(log, needs, len(brokers))
    except PenstockError as error:
        remedy = error.hint or "The message says all that is known."
        name = "settings" if isinstance(error, ConfigError) and not target else name
        return [CheckResult(name, error.message, ok=False, remedy=remedy)]
    return findings


def _needs(servers: str, settings: Mapping[str, Any], target: str) -> tuple[ApplicationNeeds, Mapping[str, Any]]:
    """Return what the named application needs, and all settings; without one, what any would need."""
    from penstock.cli.topology_loader import load_topology
    from penstock.config import StreamsConfig
    from penstock.engines.application.locations import log_settings
    from penstock.engines.application.log_needs import needs_of
    from penstock.engines.application.planning import plan_for
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.open import open_log

    if ":" not in target and not target.endswith(".py"):
        application = str(settings.get("application.id", ""))
        return ApplicationNeeds(target or application or "penstock"), settings
    topology, own = load_topology(target)
    config = StreamsConfig({"application.id": "app", **own, **settings, "bootstrap.servers": servers})
    client_settings = {**log_settings(config), "task.timeout.ms": _PATIENCE_MS}
    try:
        with open_log(servers, client_settings) as log:
            plan = plan_for(topology, config, log)
    except (LogError, UnknownTopicError, CoPartitionError):
        plan = None  # the examination says why
    return needs_of(topology, config, plan), client_settings


def _read_something(log: TopicLog) -> str:
    """Ask for the topics, and read a record; return a summary."""
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
