"""`penstock metrics`: the metrics of a running application in the terminal, and a dashboard for Grafana."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.options import DefaultCommandGroup, Json, LogOptions, grouped
from penstock.cli.output import console, print_json
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.console.applications import Applications

__all__ = ["app"]


_FIRST = ("penstock-", "stream-metrics", "stream-thread-", "stream-task-", "stream-", "consumer-fetch-")


class _MetricsGroup(DefaultCommandGroup):
    """``penstock metrics URL`` is ``penstock metrics show URL``."""

    default = "show"


app = typer.Typer(cls=_MetricsGroup, help="The metrics of an application.")


@app.command("show")
@grouped
def show(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[APPLICATION or ADDRESS]",
            help="Its application.id, or host:port of its penstock.http.port; by default the one that runs.",
        ),
    ] = "",
    *,
    matching: Annotated[str, typer.Option(help="A regular expression that GROUP:NAME must contain.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show them again every second, until Ctrl-C.")] = False,
    checkpoint: Annotated[
        str, typer.Option(metavar="LOCATION", help="Its checkpoint, if that is not in its usual place.")
    ] = "",
    as_json: Json = False,
    where: LogOptions,
) -> None:
    """Show the metrics of an application, found by its name in the log.

    One that serves HTTP (`penstock.http.port`) returns all of them. For others the checkpoint has the
    most important ones: records, lag, operators, stores, drops, the newest batch.
    """
    with ExitStack() as opened:
        read = _source(which, where, checkpoint, opened)
        if as_json:
            print_json(read(matching))
        elif watch:
            _watch(lambda: _table(read(matching)))
        else:
            console().print(_table(read(matching)))


def _source(which: str, where: LogOptions, checkpoint: str, opened: ExitStack) -> Callable[[str], dict[str, Any]]:
    """Return the function that reads the metrics, from an address or of an application of the log."""
    from penstock.query.http.client import RemoteClient

    if "://" in which or re.fullmatch(r".*:\d+", which):
        return opened.enter_context(closing(RemoteClient(which))).metrics
    from penstock.console.applications import Application, Applications
    from penstock.console.recorded_metrics import recorded_metrics
    from penstock.query.instances import Instances

    log = opened.enter_context(where.open())
    applications = Applications(log, {"bootstrap.servers": where.bootstrap}, [checkpoint] if checkpoint else ())
    opened.callback(applications.close)
    application = applications.get(which or _only_one(applications))
    active = Instances(application.checkpoint).active() if isinstance(application, Application) else None
    if active is not None and active.serves_http:
        return opened.enter_context(closing(RemoteClient(active.url))).metrics
    return lambda matching: recorded_metrics(application.picture().document, matching)


def _only_one(applications: Applications) -> str:
    """Return the application that runs, or the only one that there is."""
    names = applications.names()
    running = [name for name in names if applications.get(name).picture().is_running]
    chosen = running or names
    if len(chosen) == 1:
        return chosen[0]
    if not names:
        raise PenstockError("no application has run with this log", hint="Name its log with -b, or its address.")
    raise PenstockError(
        f"{len(chosen)} applications {'run' if running else 'have run'} with this log: {', '.join(chosen[:10])}",
        hint="Name one of them: penstock metrics APPLICATION.",
    )


@app.command("dashboard")
def dashboard() -> None:
    """Print a dashboard for Grafana over Prometheus, to be imported there as JSON."""
    from penstock.metrics import prometheus

    print_json(prometheus.dashboard())


def _watch(table: Callable[[], Table]) -> None:
    with Live(table(), console=console(), auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            time.sleep(1.0)
            try:
                shown: Table | Text = table()
            except PenstockError as error:  # it may be on its way down, or up again
                shown = Text(f"{error.message}: trying again every second")
            live.update(shown, refresh=True)


def _table(document: dict[str, Any]) -> Table:
    batch = document["batch"]
    title = f"{document['state']}"
    if batch is not None:
        title += f" · batch {batch['number']:,}: {batch['records_in']:,} records in {batch['seconds']:.2f} s"
        title += f" · skew {batch['skew']:.1f}"
    if partitions := document["partitions"]:
        ages = [each["seconds"] for each in partitions if each["seconds"] is not None]
        title += f" · lag {sum(each['records'] for each in partitions):,} records"
        title += f", {max(ages):,.1f} s" if ages else ""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("group", "name", "tags"):
        table.add_column(column)
    table.add_column("value", justify="right")
    for one in sorted(document["metrics"], key=lambda each: _rank(each["group"])):
        tags = ", ".join(text for tag, text in one["tags"].items() if tag not in ("client-id", "thread-id"))
        table.add_row(one["group"], one["name"], Text(tags), Text(_shown(one["value"])))
    return table


def _rank(group: str) -> int:
    """Return the place of a group: those of the application's own work come before those of clients."""
    return next((at for at, first in enumerate(_FIRST) if group.startswith(first)), len(_FIRST))


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value.splitlines()[0] + (" ..." if "\n" in value else "") if value else ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"
