"""Validation of connectors by a worker, with the errors that creation answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.java_text.hashing import copy_order
from penstock.connect.config import ConfigValue
from penstock.connect.data import SettingError
from penstock.connect.plugins import Plugin, PluginKind, validate_connector
from penstock.connect.plugins.versions import in_range, version_error
from penstock.connect.worker.herder import Herder
from penstock.connect.worker.overrides import override_errors
from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.restarts import RestartPolicy
from penstock.errors import ConfigError

__all__ = ["check_config", "validated"]

_GROUP = "consumer.override.group.id"
_WHERE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)


def validated(herder: Herder, config: Mapping[str, str | None]) -> dict[str, Any]:
    """The body that validation answers.

    Raises:
        RequestError: The config names no connector, or one that is not there (400).
        SettingError: A config provider cannot read its file.
    """
    if config.get("connector.class") is None:
        shown = ", ".join(f"{name}={'null' if config[name] is None else config[name]}" for name in copy_order(config))
        raise RequestError(400, f"Connector config {{{shown}}} contains no connector type")
    resolved = herder.resolved(config)
    try:
        _check_version(herder.plugins.connector(resolved["connector.class"] or ""), resolved)
        body = validate_connector(resolved, herder.plugins, herder.config.plugin_settings)
    except LookupError as error:
        name = resolved.get("connector.class")
        raise RequestError(
            400,
            f"Failed to find any class that implements Connector and which name matches {name}, available connectors "
            f"are: {_available(herder)}",
        ) from error
    except SettingError:
        raise
    except ConfigError as error:  # a file of Python that is not there, or has no such connector
        raise RequestError(400, f"connector.class {resolved.get('connector.class')}: {error.message}") from error
    if herder.config.distributed and herder.plugins.connector(body["name"]).kinds == (PluginKind.SINK,):
        _check_group(herder.config["group.id"], resolved, body)
    entries = override_errors(herder, resolved)
    body["configs"] += entries
    body["error_count"] += sum(len(entry["value"]["errors"]) for entry in entries)
    return body


def check_config(herder: Herder, config: Mapping[str, str | None]) -> None:
    """Refuse a config that is wrong.

    Raises:
        RequestError: It is (400), or a config provider cannot read its file (500).
    """
    try:
        body = validated(herder, config)
    except SettingError as error:
        raise RequestError(500, error.message) from error
    try:
        RestartPolicy.of(config)
    except SettingError as error:
        raise _invalid([error.message]) from error
    if not body["error_count"]:
        return
    errors = [text for entry in body["configs"] for text in entry["value"]["errors"]]
    raise _invalid(errors)


def _check_version(plugin: Plugin, config: Mapping[str, str | None]) -> None:
    wanted = config.get("connector.plugin.version")
    if wanted is not None and not in_range(plugin.version, wanted):
        text = version_error(plugin, wanted)
        raise _invalid([text, text])  # of the class and of the version


def _check_group(workers: str, config: Mapping[str, str | None], body: dict[str, Any]) -> None:
    """Refuse a sink whose consumer group would be the one of the workers."""
    own = config.get(_GROUP)
    if _GROUP in config:
        value = ConfigValue(_GROUP, own)
        body["configs"].insert(0, {"definition": None, "value": value.described()})
        text = f"Consumer group {own}"
    else:
        own = f"connect-{config.get('name')}"
        text = f"Consumer group for sink connector named {config.get('name')}"
    if own != workers:
        return
    name = _GROUP if _GROUP in config else "name"
    entry = next(entry for entry in body["configs"] if entry["value"]["name"] == name)
    entry["value"]["errors"].append(f"{text} conflicts with Connect worker group {workers}")
    body["error_count"] += 1


def _invalid(errors: list[str]) -> RequestError:
    head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
    return RequestError(400, "\n".join([head, *errors, _WHERE]))


def _available(herder: Herder) -> str:
    found = herder.plugins.of_kind(PluginKind.SOURCE, PluginKind.SINK)
    return ", ".join(f"{plugin.java_class} {plugin.version}" for plugin in found)
