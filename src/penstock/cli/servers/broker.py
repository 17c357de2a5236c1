"""`penstock broker`: a real Kafka on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.jars import KAFKA_VERSION, KAFKA_VERSIONS
from penstock.cli.options import ConfigPairs, Json, read_config
from penstock.cli.output import console, print_json, print_text, waiting
from penstock.cli.servers.users import UserNames, UsersFile, collect_users

if TYPE_CHECKING:
    from penstock.tools.broker.process import BrokerStatus

__all__ = ["app"]

app = typer.Typer(help="A Kafka broker on this machine, from jars: no Docker.", no_args_is_help=True)
Directory = Annotated[Path, typer.Option("--dir", "-d", help="The directory of the broker's data, settings and log.")]
_DEFAULT = Path(".kafka")


@app.command()
def start(
    *,
    directory: Directory = _DEFAULT,
    port: Annotated[int, typer.Option(help="The port of the plain listener.")] = 9092,
    controller_port: Annotated[int, typer.Option(help="The port of the controller.")] = 9093,
    sasl_port: Annotated[
        int | None, typer.Option(help="The port of a listener with SASL/PLAIN, SCRAM-SHA-512 and OAUTHBEARER.")
    ] = None,
    tls_port: Annotated[
        int | None, typer.Option(help="The port of a listener that requires client certificates (mTLS).")
    ] = None,
    user: UserNames = [],  # noqa: B006
    users_file: UsersFile = None,
    acls: Annotated[bool, typer.Option("--acls", help="Users need ACLs.")] = False,
    partitions: Annotated[int, typer.Option(help="The partitions of topics created on first use.")] = 1,
    heap_mb: Annotated[int, typer.Option(help="The broker's memory in MiB.")] = 512,
    version: Annotated[
        str, typer.Option("--kafka", help=f"The version of Kafka: {' or '.join(KAFKA_VERSIONS)}.")
    ] = KAFKA_VERSION,
    config: ConfigPairs = [],  # noqa: B006 - Typer wants a list
    as_json: Json = False,
) -> None:
    """Start a single-node Kafka in the background.

    The first start downloads the jars (about 45 MB). It continues with the data of an earlier start in the same folder.
    """
    from penstock.tools.broker.broker_settings import BrokerSettings
    from penstock.tools.broker.process import Broker

    users = collect_users(user, users_file)
    settings = BrokerSettings(
        directory.absolute(), port, controller_port, sasl_port, tls_port, users, acls, partitions, heap_mb,
        version=version, more={name: str(value) for name, value in read_config(config, None).items()},
    )  # fmt: skip
    with waiting("starting Kafka; the first start downloads its jars, about 45 MB"):
        started = Broker(settings).start()
    _show(started, as_json=as_json)


@app.command()
def stop(*, directory: Directory = _DEFAULT) -> None:
    """Stop the broker; its data stays."""
    from penstock.tools.broker.process import Broker

    with waiting("stopping Kafka"):
        stopped = Broker.in_directory(directory).stop()
    console().print("stopped" if stopped else "it did not run")


@app.command()
def status(*, directory: Directory = _DEFAULT, as_json: Json = False) -> None:
    """Print whether the broker runs, and its listeners. Exits with 1 if it does not run."""
    from penstock.tools.broker.process import Broker

    broker_status = Broker.in_directory(directory).status()
    _show(broker_status, as_json=as_json)
    if broker_status.pid is None:
        raise typer.Exit(1)


@app.command()
def logs(
    *,
    directory: Directory = _DEFAULT,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The number of lines.")] = 40,
) -> None:
    """Print the end of the broker's log."""
    from collections import deque

    from penstock.tools.broker.process import Broker

    with Broker.in_directory(directory).log_file.open(encoding="utf-8", errors="replace") as log:
        for line in deque(log, maxlen=lines):
            print_text(line, end="")


def _show(broker_status: BrokerStatus, *, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "running": broker_status.pid is not None,
        "pid": broker_status.pid,
        "directory": str(broker_status.directory),
        "bootstrap.servers": broker_status.bootstrap_servers,
        "listeners": broker_status.listeners,
    }
    if as_json:
        print_json(facts)
        return
    state = f"runs (process {broker_status.pid})" if broker_status.pid is not None else "does not run"
    console().print(f"Kafka in {broker_status.directory} {state}")
    for name, port in broker_status.listeners.items():
        console().print(f"  {name.lower():15} 127.0.0.1:{port}")
