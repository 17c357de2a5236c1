"""`penstock query`: reading the stores of an application, and serving them by HTTP."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.base.terminal.human_numbers import counted, duration, time_of
from penstock.base.user_code import is_module
from penstock.cli.options import (
    AppOptions,
    Bootstrap,
    CommandConfig,
    ConfigFile,
    ConfigPairs,
    DefaultCommandGroup,
    Json,
    grouped,
    instant_ms,
    open_log_at,
    read_command_config,
)
from penstock.cli.output import console, print_json, print_table, waiting
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.query.http.client import QueryClient
    from penstock.query.http.service import QueryService

__all__ = ["app"]


class _QueryGroup(DefaultCommandGroup):
    """``penstock query APP STORE ...`` is ``penstock query get APP STORE ...``, also where an option stands first."""

    default = "get"
    runs_without_words = False


app = typer.Typer(
    cls=_QueryGroup,
    help="Read the committed state stores of an application, whether it runs or not.",
    no_args_is_help=True,
)
_DEFAULT_PORT = 7070
_Topology = Annotated[
    str, typer.Argument(metavar="[MODULE:TOPOLOGY]", help="The topology; its module's `config` is read too.")
]


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The application whose stores are read: a checkpoint alone, or a topology named by the command."""

    checkpoint: Annotated[
        str, typer.Option(help="The checkpoint location; enough alone when all serdes have names.")
    ] = ""
    config: ConfigPairs = field(default_factory=list)
    config_file: ConfigFile = None
    bootstrap: Bootstrap = ""
    command_config: CommandConfig = None

    def _log(self) -> Callable[[], TopicLog] | None:
        """Return what opens the log, if it is named: of an application in continuous mode it has the state."""
        if not self.bootstrap:
            return None
        return lambda: open_log_at(self.bootstrap, settings=read_command_config(self.command_config))

    def _refuse_config(self, named: str) -> None:
        """Refuse settings of an application that is not made here from its topology, where they would change nothing.

        Raises:
            ConfigError: There are some.
        """
        option = "-c" if self.config else "--config-file"
        if self.config or self.config_file is not None:
            raise ConfigError(
                f"{option} has settings for a topology, and {named} has its own",
                hint="Leave them out, or name MODULE:TOPOLOGY; settings of the log go to --command-config.",
            )

    def service(self, target: str) -> QueryService:
        """Open the state in this process."""
        from penstock.query.http.service import QueryService

        if not target and not self.checkpoint:
            raise ConfigError(
                "no application is named",
                hint="Name MODULE:TOPOLOGY first, or give --checkpoint LOCATION, or --url of a query server.",
            )
        if not target:
            self._refuse_config("a checkpoint")
            from penstock.engines.committed_state.opening import state_of_checkpoint

            return QueryService(state_of_checkpoint(self.checkpoint, open_log=self._log()))
        from penstock.config import StreamsConfig
        from penstock.engines.committed_state.opening import lag_of, open_committed

        named = AppOptions(target, self.bootstrap, self.command_config, self.config, self.config_file)
        topology, config = named.load()
        if self.checkpoint:
            config["penstock.checkpoint.location"] = self.checkpoint
        settings = StreamsConfig(config)
        settings.require("application.id", "bootstrap.servers")
        return QueryService(open_committed(topology, settings), lag=lag_of(settings))


@dataclass(frozen=True, slots=True)
class QueryOptions(StateOptions):
    """The application whose stores are read, or a query server."""

    url: Annotated[str, typer.Option(help="A query server, instead of a checkpoint.")] = ""

    def client(self, target: str) -> QueryClient:
        """Make a client of the query server, or of the state itself."""
        from penstock.query.http.client import LocalClient, RemoteClient

        if self.url:
            self._refuse_config("a query server")
            return RemoteClient(self.url)
        with waiting("opening the state"):
            if target and not is_module(target):
                return self._client_by_name(target)
            try:
                return LocalClient(self.service(target))
            except ConfigError:  # a module of that name without a topology: an application may have the same name
                if not self.bootstrap or not target.isidentifier():
                    raise
                return self._client_by_name(target)

    def _client_by_name(self, application: str) -> QueryClient:
        """Make a client of an application that the log knows: of its query server if it serves HTTP, else of its state.

        Raises:
            ConfigError: No log is named, or it knows no such application.
        """
        from penstock.console.applications import Application, Applications
        from penstock.query.http.client import LocalClient, RemoteClient
        from penstock.query.instances import Instances

        self._refuse_config("an application of the log")
        open_log = self._log()
        by_name = "An application is found by its application.id in the log that --bootstrap-servers names"
        if open_log is None:
            raise ConfigError(
                f"there is no module {application!r}",
                hint=f"Is the file here? Try {application.replace('.', '/')}.py:topology. {by_name}.",
            )
        with open_log() as log:
            applications = Applications(log, {"bootstrap.servers": self.bootstrap})
            names = applications.names()
            if application not in names:
                listed = ", ".join(names) or "none"
                raise ConfigError(
                    f"there is no module and no application {application!r}", hint=f"Applications of the log: {listed}."
                )
            applications.open_log = open_log
            member = applications.get(application)
        assert isinstance(member, Application)  # noqa: S101 - of another process
        active = Instances(member.checkpoint).active()
        if active is not None and active.serves_http:
            return RemoteClient(active.url)
        return LocalClient(member.queries())

    def split(self, words: list[str], most: int) -> tuple[str, list[str]]:
        """Split the words into the topology, which may be empty, and the others.

        A store's name has no colon and no slash. A first word without either is a module or an application if there is
        neither --checkpoint nor --url.

        Raises:
            ConfigError: There are more than ``most`` other words, or none.
        """
        first = words[0] if words else ""
        says = ":" in first or "/" in first or first.endswith(".py") or not (self.url or self.checkpoint)
        target, rest = (first, words[1:]) if says else ("", words)
        if not 1 <= len(rest) <= most and most:
            raise ConfigError(
                "no store is named" if not rest else f"too many arguments: {' '.join(rest[most:])}",
                hint="penstock query MODULE:TOPOLOGY STORE [KEY]; without the topology with --checkpoint or --url.",
            )
        return target, rest


@app.command("get")
@grouped
def get(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODULE:TOPOLOGY] STORE [KEY]",
            help="Without a key: a range, a prefix or all entries. The topology goes with its module's `config`; "
            "--checkpoint or --url take its place, or with --bootstrap-servers an application.id.",
        ),
    ],
    *,
    key_range: Annotated[
        str | None,
        typer.Option("--range", metavar="A..B", help="Keys from A to B, both included; either may be empty."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Keys that begin with this.")] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="FROM..TO", help="Windows that start, or sessions that lie, in this time range."),
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="The value at this time, in a versioned store.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The last entries first.")] = False,
    limit: Annotated[int, typer.Option(help="The largest number of entries.", min=1)] = 100,
    encoding: Annotated[
        str, typer.Option(help="The form of the key: auto, string, long, double, json, hex, base64.")
    ] = "auto",
    stale: Annotated[
        bool, typer.Option("--stale", help="Read the nearest copy, a standby's too, however far it is behind.")
    ] = False,
    options: QueryOptions,
    as_json: Json = False,
) -> None:
    """Print the value of a key, or the entries of a range, a prefix, or a time range."""
    from penstock.query.http.client import StoreQuery

    target, (store, *rest) = options.split(words, most=2)
    key = rest[0] if rest else None
    with closing(options.client(target)) as client:
        kind = client.kind(store)
        query = StoreQuery(store, "get", encoding=encoding, reverse=reverse, limit=limit, stale=stale)
        if kind in ("window", "session"):
            low, high = _between(window or key_range or "..")
            since, until = instant_ms(low, "--window"), instant_ms(high, "--window")
            form: Literal["windows", "sessions"] = "windows" if kind == "window" else "sessions"
            query = replace(query, form=form, key=key, low=since, high=until)
        elif window is not None:
            raise ConfigError(f"--window is for windows and sessions; store {store!r} is of kind {kind!r}")
        elif key is not None:
            query = replace(query, key=key, as_of=instant_ms(as_of, "--as-of"))
        elif prefix is not None:
            query = replace(query, form="prefix", key=prefix)
        else:
            low, high = _between(key_range or "..")
            query = replace(query, form="range", low=low, high=high)
        answer = client.query(query)
    if as_json:
        print_json(answer)
    else:
        _show(answer)


@app.command("stores")
@grouped
def stores(
    target: _Topology = "",
    *,
    options: QueryOptions,
    as_json: Json = False,
) -> None:
    """List the stores that can be queried."""
    with closing(options.client(target)) as client:
        described = client.stores()
    if as_json:
        print_json(described)
        return
    columns = ["name", "kind", "partitions", "key_serde", "value_serde"]
    print_table(
        ["store", "kind", "partitions#", "key", "value"],
        ([one[name] for name in columns] for one in described),
        empty="no stores: the application has not run yet",
    )


@app.command("where")
@grouped
def where(
    words: Annotated[list[str], typer.Argument(metavar="[MODULE:TOPOLOGY] STORE KEY", help="The store and the key.")],
    *,
    encoding: Annotated[
        str, typer.Option(help="The form of the key: auto, string, long, double, json, hex, base64.")
    ] = "auto",
    options: QueryOptions,
    as_json: Json = False,
) -> None:
    """Show the partition of a key, and the hosts that answer for it."""
    target, (store, *rest) = options.split(words, most=2)
    if not rest:
        raise ConfigError("no key is named", hint="penstock query where MODULE:TOPOLOGY STORE KEY")
    with closing(options.client(target)) as client:
        metadata = client.metadata(store, rest[0], encoding)
    if as_json:
        print_json(metadata)
        return
    machines = [f"{name} ({_behind(lag)})" for name, lag in metadata["standby_machines"].items()]
    rows: list[list[Any]] = [
        ["partition", metadata["partition"]],
        ["active host", metadata["active_host"] or "none runs"],
        ["standby hosts", ", ".join(metadata["standby_hosts"]) or "none"],
    ]
    if metadata["active_machine"]:
        rows += [["runs on", metadata["active_machine"]], ["standbys on", ", ".join(machines) or "none"]]
    print_table(["", ""], rows)


@app.command("lags")
@grouped
def lags(
    target: _Topology = "",
    *,
    options: QueryOptions,
    as_json: Json = False,
) -> None:
    """Show how far the copies of stores on this machine, or on that of --url, are behind."""
    with closing(options.client(target)) as client:
        by_store = client.lags()
    if as_json:
        print_json(by_store)
        return
    names = ("current_offset_position", "end_offset_position", "offset_lag")
    rows = [[s, int(p), *(lag[name] for name in names)] for s, parts in by_store.items() for p, lag in parts.items()]
    print_table(
        ["store", "partition#", "at#", "end#", "lag#"], rows, empty="there is no copy of a store on this machine"
    )


@app.command("serve")
@grouped
def serve(
    target: _Topology = "",
    *,
    options: StateOptions,
    host: Annotated[str, typer.Option(help="The address to listen on. There is no authentication.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65535)] = _DEFAULT_PORT,
    advertise: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address for other instances; by default host and port.")
    ] = "",
    route: Annotated[
        str,
        typer.Option(
            help="The handling of queries while another instance runs the application: local, forward, redirect."
        ),
    ] = "local",
) -> None:
    """Serve the committed state by HTTP until Ctrl-C, beside the application or without it."""
    from penstock.query.http.server import QueryServer
    from penstock.query.instances import HostInfo

    if route not in ("local", "forward", "redirect"):
        raise ConfigError(f"--route is {route!r}", hint="Use local, forward or redirect.")
    service = options.service(target)
    server = QueryServer(
        service,
        address=HostInfo(host, port),
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
    """Split ``A..B`` into its ends.

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
    fields = ("key", "start", "end", "value", "timestamp", "valid_to")
    columns = [name for name in fields if any(name in entry for entry in entries)]
    numbers = ("start", "end", "timestamp", "valid_to")
    rows = [[_cell(name, entry.get(name)) for name in columns] for entry in entries]
    print_table([name + ("#" if name in numbers else "") for name in columns], rows, empty="no entries")
    behind = answer.get("records_behind")
    batch, staleness = answer["batch"], answer["staleness_ms"]
    # In continuous mode there are no batches, and the time is that of the look into the log.
    facts = [f"batch {batch}", f"committed {_ago(staleness)}"] if batch >= 0 else [f"as of {_ago(staleness)}"]
    read_from = answer.get("read_from")
    if read_from and batch < 0:
        facts += [f"from {', '.join(read_from) if isinstance(read_from, list) else read_from}"]
    facts += [f"{counted(behind, 'record')} behind"] if behind is not None else []
    facts += ["there are more: --limit"] if answer.get("next") else []
    out.print(", ".join(facts), style="dim")


def _cell(name: str, value: Any) -> Any:
    import json

    if value is None or isinstance(value, str):
        return value or ""
    if name in ("start", "end", "timestamp", "valid_to"):
        return time_of(int(value), short=name != "timestamp")
    return json.dumps(value)


def _behind(lag: int | None) -> str:
    return "restoring" if lag is None else f"{lag:,} behind"


def _ago(staleness_ms: int | None) -> str:
    return "never" if staleness_ms is None else f"{duration(staleness_ms / 1000)} ago"
