"""`penstock run`, with its view, `describe` and `explain`: commands for a topology."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.spinner import Spinner
from rich.text import Text

from penstock.base.log_lines import writes_json
from penstock.base.terminal.human_numbers import clock, counted, duration
from penstock.base.terminal.live import LiveView
from penstock.cli.options import AppOptions, Json, Target, grouped, logged, open_log_at
from penstock.cli.output import console, print_json, print_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.engines.application_figures import RunFigures
    from penstock.engines.kafka_streams import KafkaStreams
    from penstock.topology.topology import Topology

__all__ = ["register", "shown_while_running"]

_EVERY_S = 10.0
_DRAWN_EVERY_S = 0.25


@contextmanager
def shown_while_running(app: KafkaStreams, console: Console) -> Iterator[None]:
    """Show the figures of an application, and each change of its state, while the block runs."""
    if writes_json():  # `KafkaStreams.run` logs the same
        yield
        return
    ended = threading.Event()
    spinner = Spinner("dots")

    def screen(figures: RunFigures) -> RenderableType:
        spinner.update(text=_screen(figures))
        return spinner

    with LiveView(console, screen, _stamped(lambda figures: figures.line()), every_s=_EVERY_S) as view:
        name = app.config["application.id"]
        app.set_state_listener(lambda new, old: view.note(f"{clock()}  {name}: {old.value} -> {new.value}"))

        def draw() -> None:
            while not ended.wait(_DRAWN_EVERY_S):
                view.show(app.figures())

        drawing = threading.Thread(target=draw, name="penstock-view", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            ended.set()
            drawing.join()
    console.print(_stamped(lambda figures: figures.summary())(app.figures()), markup=False)


def _stamped(said: Callable[[RunFigures], str]) -> Callable[[RunFigures], str]:
    return lambda figures: f"{clock()}  {said(figures)}"


def _screen(figures: RunFigures) -> Text:
    if figures.doing:
        return Text.assemble(
            (f"{figures.application}  ", "bold"), f"{figures.state} {duration(figures.seconds)}  {figures.doing} ..."
        )
    lag = "-" if figures.lag is None else f"{figures.lag:,}"
    took = f"{figures.seconds_a_batch:.2f} s a batch  " if figures.has_batches else ""
    return Text.assemble(
        (f"{figures.application}  ", "bold"),
        f"{figures.state} {duration(figures.seconds)}  ",
        (f"{figures.rate:,.0f} records/s  ", "bold green"),
        f"lag {lag}  {took}state {counted(figures.state_rows, 'row')}  ",
        f"{figures.records_in:,} in  {figures.records_out:,} out",
        f"  batch {figures.batches:,}" if figures.has_batches else "",
        (f"  {figures.dropped:,} dropped", "yellow") if figures.dropped else "",
        (f"  {figures.never_found:,} fields never found", "yellow") if figures.never_found else "",
    )


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
    from penstock.cli.topology_loader import load_topology

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
    topology, settings = options.load()
    partition_counts: dict[str, int] = {}
    if options.bootstrap:
        from penstock.config import StreamsConfig
        from penstock.engines.application.locations import log_settings

        with open_log_at(options.bootstrap, settings=log_settings(StreamsConfig(settings))) as log:
            partition_counts = {topic.name: topic.partitions for topic in log.topics()}
    text, facts = _explained(topology, settings, partition_counts, partitions)
    if as_json:
        print_json(facts)
    else:
        print_text(text)


def _explained(
    topology: Topology, config: Mapping[str, Any], partition_counts: Mapping[str, int], partitions: int
) -> tuple[str, dict[str, Any]]:
    """Describe stages, tasks, operators and stores, as text and as plain data.

    Args:
        topology: The topology.
        config: Settings; ``application.id`` may be missing.
        partition_counts: Partition counts of existing topics.
        partitions: The count to assume for other source topics.
    """
    from penstock.config import StreamsConfig
    from penstock.runtime.task import sliced_reasons
    from penstock.topology.plan.explain import explain_json, explain_text
    from penstock.topology.plan.plan import plan_of

    settings = StreamsConfig({"application.id": "app", **config})
    sources = {topic for node in topology.sources if not node.internal for topic in node.topics}
    plan = plan_of(topology, settings["application.id"], {**dict.fromkeys(sources, partitions), **partition_counts})
    sliced = sliced_reasons(topology, settings, plan)
    return explain_text(plan, topology, sliced, settings), explain_json(plan, topology, sliced, settings)
