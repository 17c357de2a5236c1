"""`penstock connect run` and `penstock connect dry-run`: one connector of a file, without a worker."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.escapes import json_text
from penstock.base.properties import setting_text
from penstock.base.terminal.human_numbers import counted
from penstock.cli.options import Json, LogOptions, grouped, logged
from penstock.cli.output import console, print_json, print_table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.connect.data import ConnectRecord
    from penstock.connect.delivery import Encoded
    from penstock.connect.plugins import Plugins

__all__ = ["read_connector", "register", "shown_record"]

ConnectorFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The connector's config: .yaml, .json, .toml or .properties.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `penstock connect`."""
    app.command("run")(logged(grouped(run)))
    app.command("dry-run")(grouped(dry_run))
    app.command("list")(list_connectors)


def run(
    file: ConnectorFile,
    *,
    once: Annotated[bool, typer.Option("--once", help="Stop when there is nothing more, instead of waiting.")] = False,
    where: LogOptions,
) -> None:
    """Run one connector until Ctrl-C: no worker, no REST interface. It continues where it stopped."""
    from penstock.connect.delivery.local_run import ConnectorRun

    config = read_connector(file)
    out = console(stderr=True)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with where.open(create=True) as log:
        connector = ConnectorRun(log, config, _plugins(file))
        out.print(f"{config['name']}: running; Ctrl-C stops it" if not once else f"{config['name']}: running")
        failures: list[Exception] = []
        worker = threading.Thread(target=_guarded, args=(connector, stopped, once, failures), daemon=True)
        worker.start()
        try:
            while worker.is_alive():
                worker.join(0.2)
        except KeyboardInterrupt:
            stopped.set()
            worker.join(30)
        out.print(f"{config['name']}: {counted(connector.records, 'record')}")
        if failures:
            raise failures[0]


def _guarded(connector: Any, stopped: threading.Event, once: bool, failures: list[Exception]) -> None:  # noqa: FBT001
    try:
        connector.run(stopped, once=once)
    except Exception as error:  # noqa: BLE001 - raised again in the main thread
        failures.append(error)


def dry_run(
    file: ConnectorFile,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="The number of records.")] = 10,
    as_json: Json = False,
    where: LogOptions,
) -> None:
    """Show the next records of a connector after each transformation and converter; nothing is written or moved."""
    from penstock.connect.delivery import local_run

    config = read_connector(file)
    out, number = console(), 0
    with where.open(create=True) as log:
        for number, record in enumerate(local_run.dry_run(log, config, _plugins(file), count), 1):
            if as_json:
                print_json({name: shown_record(step) for name, step in record.steps})
                continue
            out.print(f"record {number}", style="bold")
            for name, step in record.steps:
                text = step if isinstance(step, str) else json_text(shown_record(step), default=str)
                out.print(f"  {name}: {'dropped' if step is None else text}", markup=False, highlight=False)
    if not number:
        console(stderr=True).print("no records came")


def list_connectors(*, as_json: Json = False) -> None:
    """List the connectors that are installed, with their versions, and which of them are experimental."""
    from penstock.connect.plugins import PluginKind

    plugins = _plugins(None).of_kind(PluginKind.SOURCE, PluginKind.SINK)
    if as_json:
        rows = [{"class": p.java_class, "type": p.kinds[0].value, "version": p.version} for p in plugins]
        print_json([{**row, "experimental": p.experimental} for row, p in zip(rows, plugins, strict=True)])
        return
    print_table(
        ("connector", "type", "version", "state"),
        [(p.java_class, p.kinds[0].value, p.version, "experimental" if p.experimental else "") for p in plugins],
    )


def read_connector(file: Path) -> dict[str, str]:
    """Return the config of a connector's file: settings, or ``name`` and ``config`` as in a request that creates one.

    Nested settings are joined with dots; ``transforms`` and ``predicates`` may be mappings in their order.

    Raises:
        ConfigError: The file cannot be read, or is not a config.
    """
    document = _document(file)
    if isinstance(document.get("config"), dict):
        document = {**document["config"], "name": document.get("name", document["config"].get("name"))}
    settings: dict[str, str] = {}
    for name, value in document.items():
        if name in ("transforms", "predicates") and isinstance(value, dict):
            settings[name] = ",".join(value)
        settings |= _flat(name, value)
    settings["name"] = settings.get("name") or file.stem
    return settings


def _document(file: Path) -> dict[str, Any]:
    import tomllib

    from penstock.base.properties import parse_properties

    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".yaml", ".yml"):
            document: Any = _yaml(text)
        elif file.suffix == ".json":
            document = json.loads(text)
        else:
            document = tomllib.loads(text) if file.suffix == ".toml" else dict(parse_properties(text))
    except OSError as error:
        raise ConfigError(f"the connector's file {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the connector's file {file} has an error: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"the connector's file {file} holds no settings", hint="For example: connector.class: datagen"
        )
    return document


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(
            "YAML cannot be read, as PyYAML is not installed", hint='pip install "penstock[connect]", or give JSON'
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _flat(name: str, value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        parts = [_flat(f"{name}.{key}", each) for key, each in value.items()]
        return {key: each for part in parts for key, each in part.items()}
    if isinstance(value, list):
        return {name: ",".join(map(str, value))}
    if value is None:
        return {}
    return {name: setting_text(value)}


def _plugins(file: Path | None) -> Plugins:
    from penstock.connect.connectors import with_own
    from penstock.connect.functions import installed_plugins

    folders = [] if file is None else [file.absolute().parent, Path.cwd()]
    warn = console(stderr=True)
    return with_own(installed_plugins(folders, lambda message: warn.print(message, style="yellow")))


def shown_record(step: ConnectRecord | Encoded | str | None) -> Any:
    """Return a record, or what a converter makes of it, as JSON has it; texts and None stay."""
    from penstock.connect.delivery import Encoded
    from penstock.serde.plain_json import plain

    if step is None or isinstance(step, str):
        return step

    if isinstance(step, Encoded):
        headers: dict[str, Any] = {name: plain(value) for name, value in step.headers}
    else:
        headers = {header.key: plain(header.value) for header in step.headers}
    shown = {"topic": step.topic, "key": plain(step.key), "value": plain(step.value), "headers": headers}
    return {name: value for name, value in shown.items() if value not in (None, {})}
