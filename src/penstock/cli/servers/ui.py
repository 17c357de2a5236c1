"""`penstock ui`: the web console beside a log and its applications."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import LogOptions, grouped, logged
from penstock.cli.output import console
from penstock.errors import ConfigError, LogError

if TYPE_CHECKING:
    from penstock.console.part_interfaces import Connectors, Statements
    from penstock.console.schemas import Schemas
    from penstock.console.web.server import ConsoleAddress
    from penstock.console.web.site import Permissions
    from penstock.console.web.visitors import BehindProxy, Users
    from penstock.log.base import TopicLog

__all__ = ["ui"]

_DEFAULT_PORT = 7071
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ConsoleOptions:
    """The address of the console, and the rights of its visitors."""

    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65535)] = _DEFAULT_PORT
    allowed_host: Annotated[
        list[str], typer.Option(metavar="NAME", help="A further name of this host, of a proxy before it.")
    ] = field(default_factory=list)
    token: Annotated[
        str, typer.Option(envvar="PENSTOCK_UI_TOKEN", help="The token of visitors; by default one that is kept.")
    ] = ""
    users_file: Annotated[
        Path | None,
        typer.Option(
            help="A file of users, lines NAME:ROLE:TOKEN with viewer, operator or admin, in place of one token.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    user_header: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The header in which a proxy, whose requests have the token, names the user."
        ),
    ] = ""
    groups_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header in which it names the user's groups.")
    ] = ""
    group_role: Annotated[
        list[str], typer.Option(metavar="GROUP=ROLE", help="The role of a group: viewer, operator, admin.")
    ] = field(default_factory=list)
    no_token: Annotated[bool, typer.Option("--no-token", help="Serve everybody who reaches the address.")] = False
    no_messages: Annotated[
        bool, typer.Option("--no-messages", help="Show no records, nor texts of errors, which may quote them.")
    ] = False
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes",
            help="Let visitors reset stopped groups, change topics and connectors, send messages, stop applications.",
        ),
    ] = False
    mask: Annotated[
        list[str],
        typer.Option(metavar="PATH", help="Hide a field of records, such as value.card, and texts of errors."),
    ] = field(default_factory=list)

    def address(self) -> ConsoleAddress:
        """Return where it listens, with the token."""
        from penstock.console.web.server import ConsoleAddress
        from penstock.console.web.visitors import kept_token

        if self.no_token and self.token:
            raise ConfigError("--token and --no-token exclude each other", hint="Give one of them.")
        if self.user_header and (self.users_file or not self.token):
            raise ConfigError(
                "--user-header needs --token, which the proxy sends, and excludes --users-file",
                hint="Give the token in PENSTOCK_UI_TOKEN, and let the proxy add it: Authorization: Bearer TOKEN.",
            )
        if self.user_header and self.allow_writes:
            raise ConfigError(
                "--user-header excludes --allow-writes",
                hint="Roles say what users may change: --groups-header and --group-role GROUP=admin.",
            )
        if (self.groups_header or self.group_role) and not (self.user_header and self.groups_header):
            raise ConfigError(
                "--groups-header and --group-role are for users of a proxy",
                hint="Give --user-header and --groups-header.",
            )
        if self.users_file is not None and (self.token or self.no_token or self.allow_writes):
            raise ConfigError(
                "--users-file excludes --token, --no-token and --allow-writes",
                hint="Users have tokens of their own, and roles that say what they may change.",
            )
        if self.no_token and self.host not in _LOOPBACK:
            raise ConfigError(
                f"--no-token with --host {self.host} would serve everybody in the network",
                hint="Leave out --no-token, or listen on 127.0.0.1.",
            )
        if self.users is not None:
            return ConsoleAddress(self.host, self.port, tuple(self.allowed_host), admission=self.users)
        token = None if self.no_token else self.token or kept_token()
        return ConsoleAddress(self.host, self.port, tuple(self.allowed_host), token)

    @cached_property
    def users(self) -> Users | BehindProxy | None:
        """Who has a name and a role; None: nobody. Their file is read once: it may be a pipe."""
        from penstock.console.web.visitors import BehindProxy, Role, Users

        if self.users_file is not None:
            return Users.read(self.users_file)
        if not self.user_header:
            return None
        roles = {group.strip(): Role.of(role) for group, _, role in (each.rpartition("=") for each in self.group_role)}
        if "" in roles:
            raise ConfigError("--group-role names no group", hint="Write GROUP=ROLE, for example sre=operator.")
        return BehindProxy(self.token, self.user_header, self.groups_header, roles)

    def permissions(self) -> Permissions:
        """Return what visitors may see and do."""
        from penstock.console.web.site import Permissions

        users = self.users
        allowed = Permissions(
            not self.no_messages,
            tuple(self.mask),
            needs_token=not self.no_token,
            writes=self.allow_writes if users is None else users.may_write,
        )
        allowed.exposure  # noqa: B018 - a path that is none is refused before anything is served
        return allowed


@logged
@grouped
def ui(
    *,
    where: LogOptions,
    checkpoint: Annotated[
        list[str],
        typer.Option(metavar="LOCATION", help="The checkpoint of an application that is not in its usual place."),
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    state_dir: Annotated[Path | None, typer.Option(help="The state.dir of the applications, if they set one.")] = None,
    connect: Annotated[
        str, typer.Option(metavar="URL", help="A Connect worker, for a page of connectors: http://localhost:8083.")
    ] = "",
    sql: Annotated[
        str, typer.Option(metavar="URL", help="A server of SQL, for a page of statements: http://localhost:8088.")
    ] = "",
    registry: Annotated[
        str, typer.Option(metavar="URL", help="A schema registry, for a page of schemas: http://localhost:8081.")
    ] = "",
    registry_config: Annotated[
        Path | None,
        typer.Option(help="A file of the registry's settings: basic.auth.*, bearer.auth.*, schema.registry.ssl.*."),
    ] = None,
    user: Annotated[
        str, typer.Option(envvar="PENSTOCK_UI_USER", help="NAME:PASSWORD for --connect and --sql, if they ask for it.")
    ] = "",
    serving: ConsoleOptions,
) -> None:
    """Show a log and its applications in a web console until Ctrl-C.

    The applications may run or not, and need no settings for it. The console has the rights of the log's settings.
    """
    from penstock.console.web.server import require_console_libraries

    require_console_libraries()
    from penstock.console.applications import Applications
    from penstock.console.web.server import ConsoleServer
    from penstock.console.web.site import Site

    with ExitStack() as open_ones:
        log = _log(where, may_be_missing=bool(checkpoint))
        if log is not None:
            open_ones.enter_context(log)
        settings = {"bootstrap.servers": where.bootstrap, **({"state.dir": str(state_dir)} if state_dir else {})}
        applications = Applications(log, settings, checkpoint)
        applications.open_log = where.open if log is not None else None
        open_ones.callback(applications.close)
        site = Site(applications, log, serving.permissions())
        site.connectors, site.statements = _worker(connect, user, open_ones), _server_of_sql(sql, user, open_ones)
        site.schemas = _registry(registry, registry_config, open_ones)
        server = ConsoleServer(site, serving.address())
        if site.permissions.writes:
            _show_changes()
        console(stderr=True).print(f"The console is at {server.url}", soft_wrap=True, markup=False, highlight=False)
        server.run()


def _log(where: LogOptions, *, may_be_missing: bool) -> TopicLog | None:
    """Open the log; beside a given checkpoint it may be missing."""
    try:
        return where.open()
    except LogError:
        if not may_be_missing:
            raise
        return None


def _show_changes() -> None:
    """Print the log of changes to stderr."""
    from penstock.console.actions import AUDIT

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s"))
    audit = logging.getLogger(AUDIT)
    audit.setLevel(logging.INFO)
    audit.addHandler(handler)


def _worker(url: str, user: str, open_ones: ExitStack) -> Connectors | None:
    if not url:
        return None
    from penstock.cli.servers.console_sources import ConnectorsOfWorker
    from penstock.connect.worker_client import ConnectClient

    return ConnectorsOfWorker(open_ones.enter_context(ConnectClient(url, user or None, timeout_s=10.0)))


def _registry(url: str, file: Path | None, open_ones: ExitStack) -> Schemas | None:
    if not (url or file):
        return None
    from penstock.cli.options import read_registry_config
    from penstock.console.schemas import Schemas

    settings = read_registry_config(file) | ({"schema.registry.url": url} if url else {})
    schemas = Schemas(settings)
    open_ones.callback(schemas.close)
    return schemas


def _server_of_sql(url: str, user: str, open_ones: ExitStack) -> Statements | None:
    if not url:
        return None
    from penstock.cli.servers.console_sources import SqlServerClient

    client = SqlServerClient(url, user or None)
    open_ones.callback(client.close)
    return client
