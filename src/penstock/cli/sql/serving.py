"""`penstock sql serve`: the REST interface of ksqlDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.log_format import logged
from penstock.cli.option_groups import grouped
from penstock.cli.output import console
from penstock.cli.servers.users import UserNames, UsersFile, collect_users
from penstock.cli.sql.options import SqlOptions

__all__ = ["register"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server listens, and who may use it."""

    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8088
    user: UserNames = field(default_factory=list)
    users_file: UsersFile = None
    certificate: Annotated[Path | None, typer.Option(help="A PEM certificate: serve HTTPS.")] = None
    key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(logged(grouped(serve)))


def serve(
    *,
    options: SqlOptions,
    listening: ServerOptions,
    most_queries: Annotated[int, typer.Option(help="The number of push queries that may run at once.")] = 32,
) -> None:
    """Serve ksqlDB's REST interface until Ctrl-C; persistent queries run meanwhile."""
    from penstock.serving import Certificate
    from penstock.sql.server import SqlService, server

    users = collect_users(listening.user, listening.users_file) or None
    key = None if listening.key is None else str(listening.key)
    tls = None if listening.certificate is None else Certificate(str(listening.certificate), key)
    with options.session("run", scripts=False) as session:
        service = SqlService(session, most_queries=most_queries)
        try:
            sql_server = server(service, listening.host, listening.port, users=users, certificate=tls)
            scheme = "http" if tls is None else "https"
            console().print(f"Penstock SQL listens at {scheme}://{listening.host}:{sql_server.port}. Ctrl-C ends it.")
            sql_server.run()
        finally:
            service.close()
