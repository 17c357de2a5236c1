"""`penstock registry`: a schema registry on this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, logged
from penstock.cli.output import confirm, console, print_json
from penstock.cli.servers.users import UserNames, UsersFile, collect_users
from penstock.errors import InvalidStateError

if TYPE_CHECKING:
    from penstock.console.schemas import Schemas

__all__ = ["app"]

app = typer.Typer(help="A schema registry on this machine.", no_args_is_help=True)
_DEFAULT_URL = "http://127.0.0.1:8081"
Url = Annotated[str, typer.Option("--url", help="The registry's URL.")]
Subject = Annotated[str, typer.Argument(help="The subject, such as orders-value.")]


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
def subjects(
    *,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="List deleted versions instead, which can be restored.")
    ] = False,
    url: Url = _DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List the subjects of a registry with their newest versions."""
    rows = []
    with _registry(url) as registry:
        for subject in registry.subjects(deleted=deleted):
            numbers = registry.versions(subject)
            if deleted:
                numbers = sorted(set(registry.versions(subject, deleted=True)) - set(numbers))
            for number in numbers if deleted else numbers[-1:]:
                version = registry.version(subject, number)
                rows.append({"subject": subject, "version": number, "id": version.schema_id, "type": version.kind})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        console().print(f"{row['subject']}  version {row['version']}  id {row['id']}  {row['type']}")


@app.command()
def delete(
    subject: Subject,
    *,
    version: Annotated[int | None, typer.Option(min=1, help="This version alone; by default all.")] = None,
    permanently: Annotated[
        bool, typer.Option("--permanently", help="Remove what is deleted already: its ids cannot be read any more.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = _DEFAULT_URL,
) -> None:
    """Delete a subject, or one version of it. Messages can still be read, and it can be restored."""
    what = f"subject {subject} with all its versions" if version is None else f"version {version} of subject {subject}"
    how = " permanently; nothing brings it back" if permanently else ""
    with _registry(url) as registry:
        confirm(f"Delete {what}{how}?", yes=yes)
        gone = registry.delete(subject, version, permanently=permanently)
    numbers = ", ".join(map(str, gone))
    versions = "version" if len(gone) == 1 else "versions"
    console().print(f"deleted {subject}, {versions} {numbers}{' permanently' if permanently else ''}")


@app.command()
def restore(
    subject: Subject,
    *,
    version: Annotated[int | None, typer.Option(min=1, help="The deleted version; by default the newest.")] = None,
    url: Url = _DEFAULT_URL,
) -> None:
    """Bring a deleted version of a subject back, as its newest version; the id of the schema stays the same."""
    with _registry(url) as registry:
        if version is None:
            deleted = set(registry.versions(subject, deleted=True)) - set(registry.versions(subject))
            if not deleted:
                raise InvalidStateError(
                    f"the registry has no deleted version of {subject}",
                    hint="penstock registry subjects --deleted lists them.",
                )
            version = max(deleted)
        number = registry.restore(subject, version)
    console().print(f"restored version {version} of {subject} as version {number}")


def _registry(url: str) -> AbstractContextManager[Schemas]:
    from penstock.console.schemas import Schemas

    return closing(Schemas({"schema.registry.url": url}))


def _where(file: Path | None) -> str:
    return "in memory" if file is None else f"in {file}"
