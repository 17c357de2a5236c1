"""`penstock registry`: a schema registry on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Json, logged
from penstock.cli.output import console, print_json
from penstock.cli.servers.users import UserNames, UsersFile, collect_users

__all__ = ["app"]

app = typer.Typer(help="A schema registry on this machine.", no_args_is_help=True)
_DEFAULT_URL = "http://127.0.0.1:8081"
Url = Annotated[str, typer.Option("--url", help="The registry's URL.")]


@app.command()
@logged
def start(
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The file of the schemas; by default they are in memory.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8081,
    user: UserNames = [],  # noqa: B006
    users_file: UsersFile = None,
    certificate: Annotated[Path | None, typer.Option(help="A PEM certificate: serve HTTPS.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None,
) -> None:
    """Serve Confluent's REST interface until Ctrl-C."""
    from penstock.serde.registry.service import Registry
    from penstock.serving import Certificate
    from penstock.tools.registry_server import server

    users = collect_users(user, users_file) or None
    registry = Registry(file)
    try:
        tls = None if certificate is None else Certificate(str(certificate), None if key is None else str(key))
        registry_server = server(registry, host, port, users=users, certificate=tls)
        scheme = "http" if tls is None else "https"
        console().print(
            f"The registry listens at {scheme}://{host}:{registry_server.port}; "
            f"schemas are {_where(file)}. Ctrl-C ends it."
        )
        registry_server.run()
    finally:
        registry.close()


@app.command()
def subjects(*, url: Url = _DEFAULT_URL, as_json: Json = False) -> None:
    """List the subjects of a registry with their newest versions."""
    from penstock.serde.schemas.client import confluent_client, registry_errors

    rows = []
    with registry_errors(url, "list its subjects"), confluent_client({"url": url}) as client:
        for subject in sorted(client.get_subjects()):
            latest = client.get_latest_version(subject)
            rows.append(
                {
                    "subject": subject,
                    "version": latest.version,
                    "id": latest.schema_id,
                    "type": latest.schema.schema_type,
                }
            )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        console().print(f"{row['subject']}  version {row['version']}  id {row['id']}  {row['type'] or 'AVRO'}")


def _where(file: Path | None) -> str:
    return "in memory" if file is None else f"in {file}"
