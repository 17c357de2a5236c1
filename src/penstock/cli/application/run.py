"""`penstock run`, `describe` and `explain`: commands for a topology."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from penstock.cli.options import AppOptions, Json, Target, grouped, logged, open_log_at
from penstock.cli.output import console, print_json, print_text

__all__ = ["register"]


class Format(enum.StrEnum):
    """The formats of a description."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(logged(grouped(run)))
    app.command()(describe)
    app.command()(grouped(explain))


def run(
    *,
    options: AppOptions,
    create_topics: Annotated[
        int, typer.Option("--create-topics", metavar="N", min=0, help="Create missing source topics with N partitions.")
    ] = 0,
    until: Annotated[
        str, typer.Option(help="stopped: run until Ctrl-C; latest: stop after the records that exist now.")
    ] = "stopped",
    wait: Annotated[
        bool,
        typer.Option(
            help="In micro-batches: wait while another instance runs, and take over when it has gone. Else fail."
        ),
    ] = True,
) -> None:
    """Run a topology on Spark until Ctrl-C. Shows state, rate, lag and seconds per batch, and a summary at the end.

    Settings come from the module's own `config`, then the file, then --config; see also --bootstrap-servers.
    """
    from penstock.cli.environment import java_version
    from penstock.config import StreamsConfig
    from penstock.errors import ConfigError, EnvironmentProblemError

    if until not in ("stopped", "latest"):
        raise ConfigError(f"--until is {until!r}", hint="Use stopped or latest.")
    topology, settings = options.load()
    if create_topics:
        settings["penstock.source.partitions"] = create_topics
    checked = StreamsConfig(settings)
    checked.require("application.id", "bootstrap.servers")
    if java_version() is None:
        raise EnvironmentProblemError(
            "Java is missing; Spark needs Java 17 or later", hint="penstock doctor explains how to install it."
        )
    from penstock.cli.application.run_view import shown_while_running
    from penstock.engines.kafka_streams import KafkaStreams

    app = KafkaStreams(topology, checked)
    with shown_while_running(app, console(stderr=True)):
        app.run(until=until, wait=wait)  # type: ignore[arg-type]


def describe(
    target: Target,
    *,
    form: Annotated[
        Format,
        typer.Option("--format", "-f", help="Kafka's text, a chart (mermaid, dot), a picture, or JSON."),
    ] = Format.TEXT,
    as_json: Json = False,
) -> None:
    """Print a topology: Kafka's own text, a chart (mermaid, dot, svg), or JSON."""
    from penstock.cli.loader import load_topology

    description = load_topology(target)[0].describe()
    shown = {
        Format.TEXT: description.__str__,
        Format.MERMAID: description.to_mermaid,
        Format.DOT: description.to_dot,
        Format.SVG: description.to_svg,
        Format.JSON: description.to_json,
    }
    print_text(shown[Format.JSON if as_json else form]())


def explain(
    *,
    options: AppOptions,
    partitions: Annotated[int, typer.Option(help="Partitions to assume for topics that are not in the log.")] = 1,
    as_json: Json = False,
) -> None:
    """Show how a topology would run: stages, tasks, topics, stores, and which operators work on whole columns."""
    from penstock.cli.application.explain import explained

    topology, settings = options.load()
    partition_counts: dict[str, int] = {}
    if options.bootstrap:
        from penstock.config import StreamsConfig
        from penstock.engines.application.locations import log_settings

        with open_log_at(options.bootstrap, settings=log_settings(StreamsConfig(settings))) as log:
            partition_counts = {topic.name: topic.partitions for topic in log.topics()}
    text, facts = explained(topology, settings, partition_counts, partitions)
    if as_json:
        print_json(facts)
    else:
        print_text(text)
