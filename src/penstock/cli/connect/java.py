"""`penstock connect java`: Apache Kafka's own worker, for connectors that exist in Java only."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connect.worker import Settings, Verbose, given_settings
from penstock.cli.output import console
from penstock.errors import AppFailedError, ConfigError

__all__ = ["register"]

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_COMMON = {"bootstrap.servers": "localhost:9092", "key.converter": _JSON, "value.converter": _JSON}
_DISTRIBUTED = {
    "group.id": "connect-java",
    **{f"{each}.storage.topic": f"connect-java-{each}" for each in ("config", "offset", "status")},
    **{f"{each}.storage.replication.factor": "-1" for each in ("config", "offset", "status")},
}
_STANDALONE = {"offset.storage.file.filename": "connect-java.offsets"}
_LOOK_S = 0.5


def register(app: typer.Typer) -> None:
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
    from penstock.tools.broker.java_worker import JavaWorker
    from penstock.tools.broker.packages import parse_coordinates

    own_settings = given_settings(properties, settings)
    worker_settings = {**_COMMON, **(_STANDALONE if connectors else _DISTRIBUTED), **own_settings}
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
