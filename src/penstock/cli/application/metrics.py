"""`penstock metrics`: the metrics of a running application in the terminal, and a dashboard for Grafana."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from typer.core import TyperGroup

from penstock.cli.options import Json
from penstock.cli.output import console, print_json

if TYPE_CHECKING:
    from penstock.query.http.client import RemoteClient

__all__ = ["app"]


class _Group(TyperGroup):
    """``penstock metrics URL`` is ``penstock metrics show URL``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["show", *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


app = typer.Typer(cls=_Group, help="The metrics of a running application.", no_args_is_help=True)


@app.command("show")
def show(
    url: Annotated[str, typer.Argument(help="Its HTTP address: host and penstock.http.port, such as 127.0.0.1:7070.")],
    *,
    matching: Annotated[str, typer.Option(help="A regular expression that GROUP:NAME must contain.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show them anew every second, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show the metrics of an application that serves HTTP (`penstock.http.port`)."""
    from penstock.query.http.client import RemoteClient

    with closing(RemoteClient(url)) as client:
        if as_json:
            print_json(client.metrics(matching))
        elif watch:
            _watch(client, matching)
        else:
            console().print(_table(client.metrics(matching)))


@app.command("dashboard")
def dashboard() -> None:
    """Print a dashboard for Grafana over Prometheus, to be imported there as JSON."""
    from penstock.metrics.dashboard import dashboard as made

    print_json(made())


def _watch(client: RemoteClient, matching: str) -> None:
    with (
        Live(_table(client.metrics(matching)), console=console(), auto_refresh=False) as live,
        suppress(KeyboardInterrupt),
    ):
        while True:
            time.sleep(1.0)
            live.update(_table(client.metrics(matching)), refresh=True)


def _table(found: dict[str, Any]) -> Table:
    batch = found["batch"]
    title = f"{found['state']}"
    if batch is not None:
        lag = batch["lag"]
        age = "" if lag["seconds"] is None else f", {lag['seconds']:,.1f} s"
        title += f" · batch {batch['number']:,}: {batch['records_in']:,} records in {batch['seconds']:.2f} s"
        title += f" · lag {lag['records']:,} records{age} · skew {batch['skew']:.1f}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("group", "name", "tags"):
        table.add_column(column)
    table.add_column("value", justify="right")
    for one in found["metrics"]:
        tags = ", ".join(text for tag, text in one["tags"].items() if tag not in ("client-id", "thread-id"))
        table.add_row(one["group"], one["name"], tags, _shown(one["value"]))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value.splitlines()[0] + (" ..." if "\n" in value else "") if value else ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"
