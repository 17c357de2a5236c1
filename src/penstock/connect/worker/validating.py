"""Validation of connectors by a worker, with the errors that creation answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.base.java_text.hashing import copy_order
from penstock.base.secrets import shown
from penstock.connect.config import ConfigValue, Importance, Kind, Setting, java_class, parse_kind
from penstock.connect.config.definition import NO_DEFAULT
from penstock.connect.data import SettingError
from penstock.connect.plugins import Plugin, PluginKind, validate_connector
from penstock.connect.plugins.registry import in_range, version_error
from penstock.connect.worker.herder import Herder
from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.restarts import RestartPolicy
from penstock.errors import ConfigError

__all__ = ["check_config", "client_setting", "override_errors", "override_policy", "validated"]

_GROUP = "consumer.override.group.id"
_WHERE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_PRINCIPAL = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_ENDING = "ConnectorClientConfigOverridePolicy"
_POLICIES = ("All", "None", "Principal", "Allowlist")
_DLQ = "errors.deadletterqueue.topic.name"


def validated(herder: Herder, config: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the body that validation answers.

    Raises:
        RequestError: The config names no connector, or one that is not there (400).
        SettingError: A config provider cannot read its file.
    """
    if config.get("connector.class") is None:
        values = {name: "null" if config[name] is None else shown(name, config[name]) for name in copy_order(config)}
        listed = ", ".join(f"{name}={value}" for name, value in values.items())
        raise RequestError(400, f"Connector config {{{listed}}} contains no connector type")
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
    required_version = config.get("connector.plugin.version")
    if required_version is not None and not in_range(plugin.version, required_version):
        text = version_error(plugin, required_version)
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
    plugins = herder.plugins.of_kind(PluginKind.SOURCE, PluginKind.SINK)
    return ", ".join(f"{plugin.java_class} {plugin.version}" for plugin in plugins)


def override_errors(herder: Herder, config: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Return the entries of a validation for settings of the clients that the connector has.

    Raises:
        SettingError: A value is not of the setting's type.
    """
    try:
        plugin = herder.plugins.connector(config.get("connector.class") or "")
    except LookupError:
        return []
    allows = override_policy(herder.config.values)
    policy = _policy_name(herder.config["connector.client.config.override.policy"])
    entries = []
    for client in _clients(PluginKind.SINK in plugin.kinds, config):
        prefix = f"{client}.override."
        for name, value in config.items():
            if not name.startswith(prefix) or name == prefix:
                continue
            bare = name.removeprefix(prefix)
            setting = client_setting(client, bare)
            shown = value if setting is None else parse_kind(bare, value, setting.kind, java_class)
            errors = [] if allows(bare) else [_refused(policy, bare)]
            described = ConfigValue(name, shown, errors=errors).described(None if setting is None else setting.kind)
            definition = None if setting is None else {**setting.described(), "name": name}
            entries.append({"definition": definition, "value": described})
    return entries


def override_policy(settings: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return what tells whether a setting may be overridden (``connector.client.config.override.policy``).

    Raises:
        ConfigError: There is no such policy.
    """
    policy = _policy_name(settings["connector.client.config.override.policy"])
    match policy:
        case "All":
            return lambda _name: True
        case "None":
            return lambda _name: False
        case "Principal":
            return lambda name: name in _PRINCIPAL
    allowed = {each.strip() for each in settings["connector.client.config.override.allowlist"]}
    return lambda name: name in allowed


def client_setting(client: str, name: str) -> Setting | None:
    """Return the definition of a setting of Kafka's clients: ``producer``, ``consumer`` or ``admin``.

    >>> client_setting("producer", "linger.ms").default
    5
    """
    definition = _definitions()[client].get(name)
    if definition is None:
        return None
    kind, default, importance, *required = definition
    return Setting(
        name=name,
        kind=Kind[kind],
        default=NO_DEFAULT if required else default,
        importance=Importance[importance],
        doc=f"A setting of Kafka's {client}.",
        label=name,
    )


@cache
def _definitions() -> dict[str, dict[str, list[Any]]]:
    text = files("penstock.connect.worker").joinpath("client_settings.json").read_text(encoding="utf-8")
    definitions: dict[str, dict[str, list[Any]]] = json.loads(text)
    return definitions


def _policy_name(setting: str) -> str:
    name = setting.rpartition(".")[2].removesuffix(_ENDING)
    if name not in _POLICIES:
        raise ConfigError(
            f"connector.client.config.override.policy={setting!r} is not a policy",
            hint=f"One of {', '.join(_POLICIES)}.",
        )
    return name


def _clients(is_sink: bool, config: Mapping[str, str | None]) -> list[str]:  # noqa: FBT001 - the two kinds
    """Return the clients that a connector of this config has."""
    letters = bool((config.get(_DLQ) or "").strip())
    if is_sink:
        return ["consumer", *(("producer", "admin") if letters else ())]
    creates = any(name.startswith("topic.creation.") for name in config)
    return ["producer", *(("admin",) if creates else ())]


def _refused(policy: str, name: str) -> str:
    return f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration."
