"""The connectors of a standalone worker: files of settings, or of JSON, named on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.worker import Worker
from penstock.connect.worker_settings import read_properties
from penstock.errors import ConfigError

__all__ = ["create_from_file", "read_connector"]

_STATES = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
Connector = tuple[str, dict[str, str | None], str | None]


def read_connector(path: Path) -> Connector:
    """Read a connector's name, config and initial state.

    The file holds properties; or JSON, either the config or ``name``, ``config`` and ``initial_state``.

    Raises:
        ConfigError: It is another file, or names no connector.
    """
    if path.suffix != ".json":
        config: dict[str, str | None] = dict(read_properties(path))
        return _named(path, config), config, None
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="Give a file of JSON or .properties.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no object", hint='For example {"name": ..., "connector.class": ...}')
    state = None
    if isinstance(document.get("config"), dict):
        state = document.get("initial_state")
        if state is not None and str(state).upper() not in _STATES:
            raise ConfigError(f"{path}: initial_state is {state!r}", hint=f"One of {', '.join(_STATES)}.")
        document = {"name": document.get("name"), **document["config"]}
    config = {name: value if value is None else str(value) for name, value in document.items()}
    return _named(path, config), config, None if state is None else _STATES[str(state).upper()]


def create_from_file(worker: Worker, path: Path) -> str:
    """Create the connector of a file; return its name.

    Raises:
        ConfigError: The file is wrong.
        RequestError: The connector's config is wrong.
    """
    name, config, state = read_connector(path)
    try:
        worker.operations.create(name, config, state)
    except RequestError as error:
        raise RequestError(error.status, f"{path}: {error.message}") from error
    return name


def _named(path: Path, config: dict[str, str | None]) -> str:
    name = config.get("name")
    if not name:
        raise ConfigError(f"{path} names no connector", hint="Add: name=...")
    return name
