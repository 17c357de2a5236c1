"""`penstock run`, `describe` and `explain`: what one does with a topology."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Bootstrap, ConfigFile, ConfigPairs, Json, open_log_at, read_config
from penstock.cli.output import console, print_json

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.topology.topology import Topology

__all__ = ["ensure_topics", "register"]

Target = Annotated[
    str, typer.Argument(metavar="MODULE:TOPOLOGY", help="A module's name or a file, and the variable in it.")
]
_DEFAULT = "penstock.db"


class Format(enum.StrEnum):
    """How to print a description."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(run)
    app.command()(describe)
    app.command()(explain)


def run(
    target: Target,
    *,
    bootstrap: Bootstrap = "",
    config: ConfigPairs = [],  # noqa: B006 - typer reads the default, nobody changes it
    config_file: ConfigFile = None,
    create_topics: Annotated[
        int, typer.Option("--create-topics", metavar="N", help="Create missing source topics with N partitions.")
    ] = 0,
    until: Annotated[str, typer.Option(help="stopped: run on; latest: stop at what is there now.")] = "stopped",
) -> None:
    """Run a topology on Spark until Ctrl-C.

    Settings come from the module's own `config`, then the file, then --config; see also --bootstrap-servers.
    """
    from penstock.cli.environment import java_version
    from penstock.cli.loader import load_config, load_topology
    from penstock.config import StreamsConfig
    from penstock.errors import ConfigError, EnvironmentProblemError

    if until not in ("stopped", "latest"):
        raise ConfigError(f"--until is {until!r}", hint="Use stopped or latest.")
    topology, module = load_topology(target)
    settings = {**load_config(module), **read_config(config, config_file)}
    if bootstrap:
        settings["bootstrap.servers"] = bootstrap
    checked = StreamsConfig(settings)
    checked.require("application.id", "bootstrap.servers")
    if java_version() is None:
        raise EnvironmentProblemError("Java is missing; Spark needs Java 17 or later", hint="penstock doctor says how.")
    with open_log_at(str(checked["bootstrap.servers"]), create=True) as log:
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
    target: Target,
    *,
    bootstrap: Bootstrap = "",
    partitions: Annotated[int, typer.Option(help="Partitions to assume for topics that are not in the log.")] = 1,
    as_json: Json = False,
) -> None:
    """Show how a topology would run: stages, tasks, topics, stores, and which operators work on whole columns."""
    from penstock.cli.explain import explained
    from penstock.cli.loader import load_config, load_topology

    topology, module = load_topology(target)
    known: dict[str, int] = {}
    if bootstrap:
        with open_log_at(bootstrap) as log:
            known = {topic.name: topic.partitions for topic in log.topics()}
    text, facts = explained(topology, load_config(module), known, partitions)
    if as_json:
        print_json(facts)
    else:
        typer.echo(text)
