"""`penstock query`: reading the stores of an application, and serving them over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from penstock.cli.option_groups import AppOptions, grouped
from penstock.cli.options import CommandConfig, ConfigFile, ConfigPairs, Json, instant_ms
from penstock.cli.output import console, print_json, print_table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.query.asking import Asking
    from penstock.query.service import QueryService

__all__ = ["app"]


class _Group(TyperGroup):
    """``penstock query STORE ...`` is ``penstock query get STORE ...``."""

    default = "get"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = [self.default, *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


app = typer.Typer(
    cls=_Group,
    help="Read the state stores of an application: what is committed, whether it runs or not.",
    no_args_is_help=True,
)
_DEFAULT_PORT = 7070


@dataclass(frozen=True, slots=True)
class Served:
    """Whose stores are read: a checkpoint's, which may be enough alone, or of a topology that the command names."""

    checkpoint: Annotated[
        str, typer.Option(help="The checkpoint location; enough alone when all serdes have names.")
    ] = ""
    config: ConfigPairs = field(default_factory=list)
    config_file: ConfigFile = None
    command_config: CommandConfig = None

    def service(self, target: str) -> QueryService:
        """What answers; nobody else is asked."""
        from penstock.query.service import QueryService

        if not target and not self.checkpoint:
            raise ConfigError(
                "nothing says whose stores to read",
                hint="Give --app MODULE:TOPOLOGY, --checkpoint LOCATION, or --url of a query server.",
            )
        if not target:
            from penstock.query.from_plan import state_of_checkpoint

            return QueryService(state_of_checkpoint(self.checkpoint))
        from penstock.config import StreamsConfig
        from penstock.spark.committed import lag_of, open_committed

        named = AppOptions(target, command_config=self.command_config, config=self.config, config_file=self.config_file)
        topology, given = named.load()
        if self.checkpoint:
            given["penstock.checkpoint.location"] = self.checkpoint
        settings = StreamsConfig(given)
        settings.require("application.id", "bootstrap.servers")
        return QueryService(open_committed(topology, settings), lag=lag_of(settings))


@dataclass(frozen=True, slots=True)
class Asked(Served):
    """The same, or a query server."""

    target: Annotated[
        str, typer.Option("--app", metavar="MODULE:TOPOLOGY", help="The topology; its module's `config` is read too.")
    ] = ""
    url: Annotated[str, typer.Option(help="A query server, instead of a checkpoint.")] = ""

    def asking(self) -> Asking:
        """Who is asked."""
        from penstock.query.asking import Local, Remote

        return Remote(self.url) if self.url else Local(self.service(self.target))


@app.command("get")
@grouped
def get(
    store: Annotated[str, typer.Argument(help="The store's name.")],
    key: Annotated[str | None, typer.Argument(help="A key; without one, a range, a prefix or all entries.")] = None,
    *,
    key_range: Annotated[
        str | None,
        typer.Option("--range", metavar="A..B", help="Keys from A to B, both included; either may be empty."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Keys that begin with this.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="FROM..TO", help="Windows that start, or sessions that lie, in this time.")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="Of a versioned store: the value at this time.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The last first.")] = False,
    limit: Annotated[int, typer.Option(help="At most so many entries.", min=1)] = 100,
    encoding: Annotated[
        str, typer.Option(help="How the key is written: auto, string, long, double, json, hex, base64.")
    ] = "auto",
    options: Asked,
    as_json: Json = False,
) -> None:
    """Print the value of a key, or the entries of a range, a prefix, or a time."""
    from penstock.query.asking import Question

    asking = options.asking()
    try:
        kind = asking.kind(store)
        wanted = Question(store, "get", encoding=encoding, reverse=reverse, limit=limit)
        if kind in ("window", "session"):
            low, high = _between(window or key_range or "..")
            since, until = instant_ms(low, "--window"), instant_ms(high, "--window")
            how: Literal["windows", "sessions"] = "windows" if kind == "window" else "sessions"
            wanted = replace(wanted, how=how, key=key, low=since, high=until)
        elif window is not None:
            raise ConfigError(f"--window is for windows and sessions; store {store!r} is of kind {kind!r}")
        elif key is not None:
            wanted = replace(wanted, key=key, as_of=instant_ms(as_of, "--as-of"))
        elif prefix is not None:
            wanted = replace(wanted, how="prefix", key=prefix)
        else:
            low, high = _between(key_range or "..")
            wanted = replace(wanted, how="range", low=low, high=high)
        answer = asking.ask(wanted)
    finally:
        asking.close()
    if as_json:
        print_json(answer)
    else:
        _show(answer)


@app.command("stores")
@grouped
def stores(
    *,
    options: Asked,
    as_json: Json = False,
) -> None:
    """List the stores that can be read."""
    asking = options.asking()
    try:
        found = asking.stores()
    finally:
        asking.close()
    if as_json:
        print_json(found)
        return
    columns = ["name", "kind", "partitions", "key_serde", "value_serde"]
    print_table(
        ["store", "kind", "partitions#", "key", "value"],
        ([one[name] for name in columns] for one in found),
        empty="no stores: the application has not run yet",
    )


@app.command("serve")
@grouped
def serve(
    target: Annotated[
        str, typer.Argument(metavar="[MODULE:TOPOLOGY]", help="The topology; its module's `config` is read too.")
    ] = "",
    *,
    options: Served,
    host: Annotated[str, typer.Option(help="The address to listen on. There is no authentication.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65535)] = _DEFAULT_PORT,
    advertise: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Under which others reach it; by default host and port.")
    ] = "",
    route: Annotated[
        str, typer.Option(help="What to do while another instance runs the application: local, forward, redirect.")
    ] = "local",
) -> None:
    """Serve the committed state over HTTP until Ctrl-C, beside the application or without it."""
    from penstock.query.metadata import HostInfo
    from penstock.query.server import QueryServer

    if route not in ("local", "forward", "redirect"):
        raise ConfigError(f"--route is {route!r}", hint="Use local, forward or redirect.")
    service = options.service(target)
    server = QueryServer(
        service,
        host=host,
        port=port,
        advertised=HostInfo.of(advertise) if advertise else None,
        route=route,  # type: ignore[arg-type] # one of the three
    )
    console(stderr=True).print(
        f"{service.state.application_id}: queries are answered at {server.url}, see {server.url}/docs"
    )
    try:
        server.run()
    finally:
        service.close()


def _between(text: str) -> tuple[str | None, str | None]:
    """The two ends of ``A..B``.

    >>> _between("a..b"), _between("..b"), _between("..")
    (('a', 'b'), (None, 'b'), (None, None))
    """
    low, dots, high = text.partition("..")
    if not dots:
        raise ConfigError(f"{text!r} is not FROM..TO", hint='For example "a..m", "..m" or "2026-09-01T10:00..".')
    return low or None, high or None


def _show(answer: dict[str, Any]) -> None:
    out = console()
    entries = answer.get("entries", [answer])
    known = ("key", "start", "end", "value", "timestamp", "valid_to")
    columns = [name for name in known if any(name in entry for entry in entries)]
    numbers = ("start", "end", "timestamp", "valid_to")
    rows = [[_cell(name, entry.get(name)) for name in columns] for entry in entries]
    print_table([name + ("#" if name in numbers else "") for name in columns], rows, empty="no entries")
    behind = answer.get("records_behind")
    facts = [f"batch {answer['batch']}", f"committed {_ago(answer['staleness_ms'])}"]
    facts += [f"{behind:,} records behind"] if behind is not None else []
    facts += ["there are more: --limit"] if answer.get("next") else []
    out.print(", ".join(facts), style="dim")


def _cell(name: str, value: Any) -> Any:
    import json

    if value is None or isinstance(value, str):
        return value or ""
    return str(value) if name in ("start", "end", "timestamp", "valid_to") else json.dumps(value)


def _ago(staleness_ms: int | None) -> str:
    return "never" if staleness_ms is None else f"{staleness_ms / 1000:,.1f} s ago"
