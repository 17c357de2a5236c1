"""Settings of a connector's own clients (``producer.override.acks``), and the worker's policy about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.connect.config import ConfigValue, Importance, Kind, Setting, java_class, parse_kind
from penstock.connect.config.definition import NO_DEFAULT
from penstock.connect.plugins import PluginKind
from penstock.connect.worker.herder import Herder
from penstock.errors import ConfigError

__all__ = ["client_setting", "override_errors", "override_policy"]

_PRINCIPAL = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_ENDING = "ConnectorClientConfigOverridePolicy"
_POLICIES = ("All", "None", "Principal", "Allowlist")
_DLQ = "errors.deadletterqueue.topic.name"


def override_errors(herder: Herder, config: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The entries of a validation for settings of the clients that the connector has.

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
    """What tells whether a setting may be overridden (``connector.client.config.override.policy``).

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
    """The definition of a setting of Kafka's clients: ``producer``, ``consumer`` or ``admin``.

    >>> client_setting("producer", "linger.ms").default
    5
    """
    found = _definitions()[client].get(name)
    if found is None:
        return None
    kind, default, importance, *required = found
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
    found: dict[str, dict[str, list[Any]]] = json.loads(text)
    return found


def _policy_name(given: str) -> str:
    name = given.rpartition(".")[2].removesuffix(_ENDING)
    if name not in _POLICIES:
        raise ConfigError(
            f"connector.client.config.override.policy={given!r} is not a policy", hint=f"One of {', '.join(_POLICIES)}."
        )
    return name


def _clients(is_sink: bool, config: Mapping[str, str | None]) -> list[str]:  # noqa: FBT001 - the two kinds
    """The clients that a connector of this config has."""
    letters = bool((config.get(_DLQ) or "").strip())
    if is_sink:
        return ["consumer", *(("producer", "admin") if letters else ())]
    creates = any(name.startswith("topic.creation.") for name in config)
    return ["producer", *(("admin",) if creates else ())]


def _refused(policy: str, name: str) -> str:
    return f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration."
