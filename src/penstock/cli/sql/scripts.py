"""`penstock sql run`, `explain` and `export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.log_format import logged
from penstock.cli.option_groups import grouped
from penstock.cli.options import Json
from penstock.cli.output import console, print_json, print_source, print_text
from penstock.cli.sql.options import SqlOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.sql.session.script import Script

__all__ = ["register"]

File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of statements.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(logged(grouped(run)))
    app.command()(grouped(explain))
    app.command()(grouped(export))


def run(
    file: File,
    *,
    options: SqlOptions,
    until: Annotated[
        str, typer.Option(help="stopped: run until Ctrl-C; latest: stop after the records that exist now.")
    ] = "stopped",
) -> None:
    """Run a file as one application on Spark: all its queries in one topology, until Ctrl-C.

    The application.id is the name of the file, or --config application.id=NAME. Topics are made as the statements say;
    rows of INSERT ... VALUES are written before the first run alone.
    """
    if until not in ("stopped", "latest"):
        raise ConfigError(f"--until is {until!r}", hint="Use stopped or latest.")
    name = _application_id(file, options)
    with _log(options) as log:
        script = _script(file, options, log)
        topology = script.topology()
        script.prepare(log, name)
    from penstock.cli.application.run_view import shown_while_running
    from penstock.engines.kafka_streams import KafkaStreams

    while True:
        app = KafkaStreams(topology, script.app_settings(name))
        with shown_while_running(app, console(stderr=True)):
            app.run(until=until)  # type: ignore[arg-type]
        if until == "stopped":
            return
        with _log(options) as log:
            if not script.has_more(log, name):
                return


def explain(file: File, *, options: SqlOptions, as_json: Json = False) -> None:
    """Show the topology of a file and the back end of each of its expressions, without running it."""
    from penstock.sql.session.describing import explained

    with _log(options) as log:
        script = _script(file, options, log)
    explanations = [(plan, explained(plan)) for plan in script.plans]
    topology = script.topology().describe()
    if as_json:
        print_json([{**each.plan, "expressions": each.expressions} for _, each in explanations])
        return
    print_text(str(topology).rstrip())
    for plan, each in explanations:
        print_text(f"\n{plan.id}: {' '.join(plan.text.split())}")
        for text, kind, back_end in each.expressions:
            print_text(f"  {back_end}  {text}  {kind}")


def export(*, options: SqlOptions) -> None:
    """Print the present catalog as SQL statements that create it."""
    with options.session("wait") as session:
        print_source(session.export(), end="")


def _log(options: SqlOptions) -> TopicLog:
    from penstock.log.open import open_log
    from penstock.sql.session import SessionSettings

    settings = SessionSettings.of(options.settings())
    return open_log(settings.log, settings.app)


def _script(file: Path, options: SqlOptions, log: TopicLog) -> Script:
    from penstock.sql.session import SessionSettings
    from penstock.sql.session.script import Script

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}", hint="Give a file of statements.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason}") from error
    return Script(text, SessionSettings.of(options.settings()), {each.name: each.partitions for each in log.topics()})


def _application_id(file: Path, options: SqlOptions) -> str:
    application_id = options.settings().get("application.id")
    return str(application_id) if application_id else re.sub(r"[^A-Za-z0-9._-]", "-", file.stem)
