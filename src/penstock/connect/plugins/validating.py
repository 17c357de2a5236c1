"""Validating a connector's config: the body that ``PUT /connector-plugins/{name}/config/validate`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.connect.config import ConfigDef, ConfigValue, validate
from penstock.connect.data import SettingError
from penstock.connect.plugins.connector_definition import CONVERTER_KINDS, WorkerSettings, connector_definition
from penstock.connect.plugins.enriching import enriched
from penstock.connect.plugins.registry import Plugin, PluginKind, Plugins
from penstock.java_text.errors import JavaTextError
from penstock.java_text.regex import compile_java

__all__ = ["plugin_settings", "validate_connector"]

NO_NULLS = "Null value can not be supplied as the configuration value."
DLQ = "errors.deadletterqueue.topic.name"


def plugin_settings(plugin: Plugin, plugins: Plugins, worker: WorkerSettings | None = None) -> list[dict[str, Any]]:
    """The definitions of a plugin's settings, as ``GET /connector-plugins/{name}/config`` answers them.

    Args:
        plugin: The plugin.
        plugins: All plugins.
        worker: The worker's settings; the answer leaves its converters out.
    """
    settings = list(plugin.config)
    if PluginKind.SOURCE in plugin.kinds or PluginKind.SINK in plugin.kinds:
        common = connector_definition(plugin, {}, plugins, worker or WorkerSettings())
        settings += [setting for setting in common if setting.name not in plugin.config.settings]
    described = [setting.described() for setting in settings]
    for one in described:
        if one["name"].removesuffix(".plugin.version") in CONVERTER_KINDS:
            one["default_value"] = None
    return described


def validate_connector(
    config: Mapping[str, Any], plugins: Plugins, worker: WorkerSettings | None = None
) -> dict[str, Any]:
    """Validate the config of a connector, with the settings of its transformations, predicates and converters.

    Args:
        config: The config; ``connector.class`` names the connector.
        plugins: The plugins that there are.
        worker: The settings of the worker; by default a worker's with JSON converters.

    Returns:
        ``name``, ``error_count``, ``groups`` and ``configs``: each setting's definition and value.

    Raises:
        LookupError: There is no such connector, or the config names none.
    """
    where = worker or WorkerSettings()
    given = {name: value if value is None else str(value) for name, value in config.items()}
    plugin = plugins.connector(given.get("connector.class") or "")
    base = connector_definition(plugin, given, plugins, where)
    common = enriched(base, given, plugins, strict=False)
    values = validate(common, given, plugins.find)
    if PluginKind.SOURCE in plugin.kinds:
        _check_source(values, where)
    else:
        _check_sink(given, values)
    _report_nulls(given, values)
    entries = _entries(common, values)
    own = validate(plugin.config, given, plugins.find)
    entries += [entry for entry in _entries(plugin.config, own) if entry["value"]["name"] not in common.settings]
    groups = [*common.groups, *plugin.config.groups]
    for name in CONVERTER_KINDS:
        more, inner = _converter_entries(name, given, values, plugins)
        entries += more
        groups += [group for group in inner if group not in groups]
    count = sum(len(entry["value"]["errors"]) for entry in entries)
    return {"name": given["connector.class"], "error_count": count, "groups": groups, "configs": entries}


def _entries(definition: ConfigDef, values: dict[str, ConfigValue]) -> list[dict[str, Any]]:
    """Definitions and values as answers have them."""
    return [
        {"definition": setting.described(), "value": values[setting.name].described(setting.kind)}
        for setting in definition
    ]


def _report_nulls(given: Mapping[str, Any], values: dict[str, ConfigValue]) -> None:
    for name, value in given.items():
        if value is None:
            values.setdefault(name, ConfigValue(name)).errors.append(NO_NULLS)


def _check_source(values: dict[str, ConfigValue], worker: WorkerSettings) -> None:
    support = values["exactly.once.support"]
    if str(support.value).lower() == "required" and not support.errors and not worker.exactly_once:
        support.errors.append("This worker does not have exactly-once source support enabled.")
    boundary = values["transaction.boundary"]
    if str(boundary.value).lower() == "connector" and not boundary.errors:
        boundary.errors.append(
            "The connector does not support connector-defined transaction boundaries with the given configuration. "
            "Please reconfigure it to use a different transaction boundary definition."
        )


def _check_sink(given: Mapping[str, Any], values: dict[str, ConfigValue]) -> None:
    topics, regex = values["topics"], values["topics.regex"]
    names, pattern = bool((given.get("topics") or "").strip()), bool((given.get("topics.regex") or "").strip())
    if names and pattern:
        _both(topics, regex, "topics and topics.regex are mutually exclusive options, but both are set.")
    elif not names and not pattern:
        _both(topics, regex, "Must configure one of topics or topics.regex")
    letters = str(given.get(DLQ) or "").strip()
    if not letters:
        return
    if letters in (topics.value or ()):
        shown = f"[{', '.join(topics.value)}]"
        topics.errors.append(
            f"The DLQ topic '{letters}' may not be included in the list of topics ('topics={shown}') "
            "consumed by the connector"
        )
    if pattern and _matches(str(regex.value), letters):
        regex.errors.append(
            f"The DLQ topic '{letters}' may not be matched by the regex for the topics "
            f"('topics.regex={regex.value}') consumed by the connector"
        )


def _both(one: ConfigValue, two: ConfigValue, message: str) -> None:
    one.errors.append(message)
    two.errors.append(message)


def _matches(pattern: str, text: str) -> bool:
    try:
        return compile_java(pattern).fullmatch(text) is not None
    except JavaTextError:
        return False


def _converter_entries(
    name: str, given: Mapping[str, Any], values: dict[str, ConfigValue], plugins: Plugins
) -> tuple[list[dict[str, Any]], list[str]]:
    """The settings of a converter that the connector names, under its prefix, and their groups."""
    chosen = given.get(name)
    if chosen is None or values[name].errors:
        return [], []
    try:
        plugin = plugins.find(chosen)
    except (LookupError, SettingError):
        return [], []
    prefix = f"{name}."
    inner = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    inner["converter.type"] = name.partition(".")[0]
    found = validate(plugin.config, inner, plugins.find)
    entries = _entries(plugin.config, found)
    for entry in entries:
        for part in ("definition", "value"):
            entry[part]["name"] = prefix + entry[part]["name"]
    return entries, sorted(plugin.config.groups, key=_java_order)


def _java_order(text: str) -> int:
    """The place of a text in a small ``HashSet`` of Java's, in which the groups of converters come."""
    code = 0
    for character in text:
        code = (code * 31 + ord(character)) & 0xFFFFFFFF
    return (code ^ (code >> 16)) & 15
