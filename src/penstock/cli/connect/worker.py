"""`penstock connect worker` and `penstock connect standalone`: workers with the REST interface of Kafka Connect."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.log_format import logged, start_text_lines
from penstock.cli.output import console
from penstock.errors import ConfigError, EnvironmentProblemError

if TYPE_CHECKING:
    from penstock.connect.rest import WorkerServer
    from penstock.connect.settings import Mode

__all__ = ["Settings", "Verbose", "given_settings", "register"]

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_DISTRIBUTED = {
    "group.id": "connect-cluster",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "key.converter": _JSON,
    "value.converter": _JSON,
}
_STANDALONE = {
    "offset.storage.file.filename": "connect.offsets",
    "key.converter": _JSON,
    "value.converter": _JSON,
}
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting of the worker, instead of the file's."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens, not only what goes wrong.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `penstock connect`."""
    app.command()(logged(worker))
    app.command()(logged(standalone))


def worker(
    properties: Annotated[
        Path | None, typer.Argument(help="The worker's settings, as Kafka Connect's worker.properties.")
    ] = None,
    *,
    settings: Settings = None,
    verbose: Verbose = False,
) -> None:
    """Run a distributed worker until Ctrl-C; a second one ends it at once.

    Without a file it is a worker of the group connect-cluster over localhost:9092, on port 8083. Over an embedded log
    it needs no broker: --set bootstrap.servers=sqlite:///connect.db
    """
    server = _server(properties, _DISTRIBUTED, settings, "distributed")
    _run(server, [], verbose=verbose)


def standalone(
    properties: Annotated[Path, typer.Argument(help="The worker's settings, as connect-standalone.properties.")],
    connectors: Annotated[
        list[Path] | None, typer.Argument(help="Connectors: files of settings (.properties), or of JSON.")
    ] = None,
    *,
    settings: Settings = None,
    verbose: Verbose = False,
) -> None:
    """Run a standalone worker with these connectors until Ctrl-C."""
    server = _server(properties, _STANDALONE, settings, "standalone")
    _run(server, connectors or [], verbose=verbose)


def _server(properties: Path | None, defaults: dict[str, str], settings: list[str] | None, mode: Mode) -> WorkerServer:
    from penstock.connect.little_memory import take_little_memory
    from penstock.connect.tasks.template import fork_template

    take_little_memory()  # before the first of Arrow's arrays
    try:
        from penstock.connect.rest import WorkerServer
        from penstock.connect.settings import WorkerConfig
    except ImportError as error:
        raise EnvironmentProblemError(
            f"a Connect worker needs an HTTP server, which is missing: {error}",
            hint='Install it: pip install "penstock[connect]".',
        ) from error
    worker_settings = {**(defaults if properties is None else {}), **given_settings(properties, settings)}
    config = WorkerConfig.of(worker_settings, mode)
    if not config["tasks.in.process"]:
        fork_template(config.log_url)
    return WorkerServer(config)


def given_settings(properties: Path | None, settings: list[str] | None) -> dict[str, str]:
    """Return the settings of a worker's file, and those of ``--set`` in place of them.

    Raises:
        ConfigError: The file cannot be read, or an option is not NAME=VALUE.
    """
    from penstock.connect.settings import read_properties

    worker_settings = {} if properties is None else read_properties(properties)
    for each in settings or ():
        name, separator, value = each.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set {each!r} is not NAME=VALUE", hint="For example --set rest.port=8084")
        worker_settings[name.strip()] = value.strip()
    return worker_settings


def _run(server: WorkerServer, connectors: list[Path], *, verbose: bool) -> None:
    from penstock.connect.worker.standalone import create_from_file

    level = logging.INFO if verbose else logging.WARNING
    start_text_lines(level)
    ending = threading.Event()

    def end(number: int, _: Any) -> None:
        if ending.is_set():  # asked for a second time: a log that is gone makes the end long
            os._exit(128 + number)
        ending.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.start()
        if not server.wait_until_ready():
            raise EnvironmentProblemError(
                "the worker has not joined its group", hint="Is another worker of the same group.id hanging?"
            )
        for path in connectors:
            name = create_from_file(server.worker, path)
            console().print(f"connector {name} from {path}")
        console().print(f"Connect worker at {server.url}, Ctrl-C ends it")
        ending.wait()
    finally:
        server.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
