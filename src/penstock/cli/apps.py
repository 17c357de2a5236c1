"""`penstock run`, `describe` and `explain`: what one does with a topology."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.option_groups import AppOptions, grouped
from penstock.cli.options import Json, Target, open_log_at
from penstock.cli.output import console, print_json

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.topology.topology import Topology

__all__ = ["ensure_topics", "register"]


class Format(enum.StrEnum):
    """How to print a description."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(grouped(run))
    app.command()(describe)
    app.command()(grouped(explain))


def run(
    *,
    options: AppOptions,
    create_topics: Annotated[
        int, typer.Option("--create-topics", metavar="N", help="Create missing source topics with N partitions.")
    ] = 0,
    until: Annotated[str, typer.Option(help="stopped: run on; latest: stop at what is there now.")] = "stopped",
) -> None:
    """Run a topology on Spark until Ctrl-C.

    Settings come from the module's own `config`, then the file, then --config; see also --bootstrap-servers.
    """
    from penstock.cli.environment import java_version
    from penstock.config import StreamsConfig
    from penstock.errors import ConfigError, EnvironmentProblemError
    from penstock.log.open import open_log
    from penstock.spark.launch import log_settings

    if until not in ("stopped", "latest"):
        raise ConfigError(f"--until is {until!r}", hint="Use stopped or latest.")
    topology, settings = options.load()
    checked = StreamsConfig(settings)
    checked.require("application.id", "bootstrap.servers")
    if java_version() is None:
        raise EnvironmentProblemError("Java is missing; Spark needs Java 17 or later", hint="penstock doctor says how.")
    with open_log(str(checked["bootstrap.servers"]), log_settings(checked)) as log:
        ensure_topics(topology, checked, log, partitions=create_topics)
    from penstock.app import KafkaStreams

    app = KafkaStreams(topology, checked)
    out = console(stderr=True)
    app.set_state_listener(lambda new, old: out.print(f"{checked['application.id']}: {old.value} -> {new.value}"))
    app.run(until=until)  # type: ignore[arg-type]


def ensure_topics(topology: Topology, config: Any, log: TopicLog, *, partitions: int) -> None:
    """Creates the dead letter topic, and the source topics if ``partitions`` is above 0."""
    existing = {topic.name for topic in log.topics()}
    letters = config["errors.dead.letter.queue.topic.name"]
    if letters and letters not in existing:
        log.create_topic(letters, 1)
    if partitions > 0:
        existing |= {source.topic for source in topology.dataframes.values()}  # the application makes these
        for node in topology.sources:
            for topic in node.topics:
                if topic not in existing and not node.internal:
                    log.create_topic(topic, partitions)


def describe(
    target: Target,
    *,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="Kafka's text, a Mermaid chart, or JSON.")
    ] = Format.TEXT,
    as_json: Json = False,
) -> None:
    """Print a topology: Kafka's own text, a Mermaid flow chart, or JSON."""
    from penstock.cli.loader import load_topology

    description = load_topology(target)[0].describe()
    if as_json or form is Format.JSON:
        typer.echo(description.to_json())
    elif form is Format.MERMAID:
        typer.echo(description.to_mermaid())
    else:
        typer.echo(str(description))


def explain(
    *,
    options: AppOptions,
    partitions: Annotated[int, typer.Option(help="Partitions to assume for topics that are not in the log.")] = 1,
    as_json: Json = False,
) -> None:
    """Show how a topology would run: stages, tasks, topics, stores, and which operators work on whole columns."""
    from penstock.cli.explain import explained

    topology, settings = options.load()
    known: dict[str, int] = {}
    if options.bootstrap:
        from penstock.config import StreamsConfig
        from penstock.spark.launch import log_settings

        with open_log_at(options.bootstrap, settings=log_settings(StreamsConfig(settings))) as log:
            known = {topic.name: topic.partitions for topic in log.topics()}
    text, facts = explained(topology, settings, known, partitions)
    if as_json:
        print_json(facts)
    else:
        typer.echo(text)
