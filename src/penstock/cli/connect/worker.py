"""`penstock connect worker`, `standalone` and `java`: workers with Connect's REST interface, ours or Kafka's own."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import logged, start_text_lines
from penstock.cli.output import console
from penstock.errors import AppFailedError, ConfigError, EnvironmentProblemError

if TYPE_CHECKING:
    from penstock.connect.rest import WorkerServer
    from penstock.connect.worker_settings import Mode

__all__ = ["Settings", "Verbose", "register", "register_java"]

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
    from penstock.connect.process_memory import take_little_memory
    from penstock.connect.tasks.fork_template import fork_template

    take_little_memory()  # before the first of Arrow's arrays
    try:
        from penstock.connect.rest import WorkerServer
        from penstock.connect.worker_settings import WorkerConfig
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
    from penstock.connect.worker_settings import read_properties

    worker_settings = {} if properties is None else read_properties(properties)
    for each in settings or ():
        name, separator, value = each.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set {each!r} is not NAME=VALUE", hint="For example --set rest.port=8084")
        worker_settings[name.strip()] = value.strip()
    return worker_settings


def _run(server: WorkerServer, connectors: list[Path], *, verbose: bool) -> None:
    from penstock.connect.worker.standalone import create_from_file

    in_process = server.worker.config["tasks.in.process"]  # such tasks log here, from INFO on as others do
    start_text_lines(logging.INFO if verbose or in_process else logging.WARNING)
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


_COMMON = {"bootstrap.servers": "localhost:9092", "key.converter": _JSON, "value.converter": _JSON}
_JAVA_DISTRIBUTED = {
    "group.id": "connect-java",
    **{f"{each}.storage.topic": f"connect-java-{each}" for each in ("config", "offset", "status")},
    **{f"{each}.storage.replication.factor": "-1" for each in ("config", "offset", "status")},
}
_JAVA_STANDALONE = {"offset.storage.file.filename": "connect-java.offsets"}
_LOOK_S = 0.5


def register_java(app: typer.Typer) -> None:
    """Add the command to `penstock connect`."""
    app.command("java")(java)


def java(
    properties: Annotated[
        Path | None, typer.Argument(help="The worker's settings, as Kafka Connect's worker.properties.")
    ] = None,
    connectors: Annotated[
        list[Path] | None,
        typer.Argument(help="Connectors, .properties or .json: with any, the worker is a standalone one."),
    ] = None,
    *,
    packages: Annotated[
        list[str] | None,
        typer.Option("--packages", "-p", metavar="GROUP:ARTIFACT:VERSION", help="A connector's jars, from Maven."),
    ] = None,
    settings: Settings = None,
    heap: Annotated[str, typer.Option(help="The heap of the JVM.")] = "1g",
    verbose: Verbose = False,
) -> None:
    """Run Apache Kafka's own Connect worker until Ctrl-C, for connectors that exist in Java only.

    It needs Java 17 and a Kafka cluster. Its REST interface is at port 8083 unless the settings say otherwise.
    """
    from penstock.tools.broker.java_worker import JavaWorker, parse_coordinates

    own_settings = given_settings(properties, settings)
    worker_settings = {**_COMMON, **(_JAVA_STANDALONE if connectors else _JAVA_DISTRIBUTED), **own_settings}
    servers = worker_settings["bootstrap.servers"]
    if "://" in servers.removeprefix("kafka://") or servers.endswith(".db"):
        raise ConfigError(
            f"bootstrap.servers={servers}: Java's worker needs a Kafka cluster",
            hint="penstock broker start runs one. Over an embedded log, use penstock connect worker.",
        )
    names = [name for each in packages or () for name in each.split(",") if name.strip()]
    worker = JavaWorker(
        worker_settings, connectors or (), [parse_coordinates(name) for name in names], heap=heap,
        level="info" if verbose else "warn",
    )  # fmt: skip
    ending = threading.Event()

    def end(*_: Any) -> None:
        ending.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    code: int | None = None
    try:
        pid = worker.start()
        where = worker_settings.get("listeners", "http://localhost:8083")
        console(stderr=True).print(f"Kafka Connect as process {pid}, at {where}; Ctrl-C ends it")
        while not ending.is_set() and code is None:
            code = worker.wait(_LOOK_S)
    finally:
        worker.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        raise AppFailedError(
            f"Kafka Connect ended with exit code {code}", hint="Its log above says why; --verbose shows all of it."
        )
