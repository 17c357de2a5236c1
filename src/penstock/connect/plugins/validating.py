"""Validating a connector's config: names that are refused or not known, and the answer with Kafka's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.java_text.hashing import hash_order
from penstock.base.java_text.regex import compile_java
from penstock.base.java_text.texts import JavaTextError
from penstock.base.nearest_name import mistyped, question
from penstock.config.client_names import check_client_name
from penstock.config.prefixes import behind_prefix
from penstock.connect.api import Boundaries, Connector, ExactlyOnce, SourceConnector
from penstock.connect.config import ConfigDef, ConfigValue, Kind, Model, parse_kind, validate
from penstock.connect.data import SettingError
from penstock.connect.plugins.chain import CONDITIONS, PARTS, enriched, plugin_settings_of
from penstock.connect.plugins.connector_definition import (
    CONVERTER_KINDS,
    RESTARTS,
    SINK,
    WorkerSettings,
    connector_definition,
)
from penstock.connect.plugins.registry import Plugin, PluginKind, Plugins, in_range, version_error
from penstock.errors import ConfigError

__all__ = ["NameCheck", "check_converter", "check_names", "plugin_settings", "start_notes", "validate_connector"]

CLIENTS = ("producer", "consumer", "admin")
TOPIC_CREATION = "topic.creation."
OF_ALL = (*RESTARTS.settings, *(each.name for each in SINK if each.name.startswith("errors.")))
FRAMEWORK = Model(
    "Kafka Connect",
    idle={
        "offsets.storage.topic": "source offsets are in the worker's topic, in one transaction with the records.",
        "topic.creation.enable": "it is a setting of the worker.",
    },
)


@dataclass(slots=True)
class NameCheck:
    """The findings about the names of a config.

    Attributes:
        refused: Names that are refused, each with the sentence.
        notes: Sentences about names that change nothing.
    """

    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def check_names(config: Mapping[str, str | None], plugins: Plugins, worker: WorkerSettings | None = None) -> NameCheck:
    """Look at all names of a connector's config, those of its converters, transformations and predicates too.

    Args:
        config: The config, with a ``connector.class`` that there is.
        plugins: The plugins that there are.
        worker: The settings of the worker.

    Raises:
        LookupError: There is no such connector.
    """
    check = NameCheck()
    plugin = plugins.connector(config.get("connector.class") or "")
    common = connector_definition(plugin, config, plugins, worker or WorkerSettings())
    setting_names = {*common.settings, *plugin.config.settings, *OF_ALL}
    for name, value in config.items():
        sentence, note = plugin.model.refusal(name, value), plugin.model.idleness(name) or FRAMEWORK.idleness(name)
        if sentence is not None:
            check.refused[name] = sentence
        elif note is not None:
            check.notes.append(note)
        elif name not in setting_names and not plugin.model.has(name) and not _is_read(name, config, plugin):
            near = question(mistyped(name, [*setting_names, *_names(plugin.model)]))
            unknown = f"{name} is not a setting of {plugin.java_class}, and has no effect. {near}".rstrip()
            check.notes.append(_of_framework(name, config) or unknown)
    for prefix, part, own, what in _parts(config, plugins):
        _check_part(check, behind_prefix(config, prefix), (prefix, part, own, what))
    return check


def check_converter(check: NameCheck, config: Mapping[str, str | None], name: str, plugins: Plugins) -> None:
    """Look at the names of a converter's settings, which stand behind its own: ``key.converter`` and so on."""
    plugin = _found(config.get(name), plugins)
    if plugin is not None:
        prefix = f"{name}."
        _check_part(check, behind_prefix(config, prefix), (prefix, plugin, ("plugin.version",), "converter"))


def start_notes(config: Mapping[str, str | None], plugins: Plugins, worker: WorkerSettings | None = None) -> list[str]:
    """Return the lines that a connector says when it starts.

    They say that it is experimental, and which settings change nothing.
    """
    try:
        plugin = plugins.connector(config.get("connector.class") or "")
        notes = check_names(config, plugins, worker).notes
    except (LookupError, SettingError, ConfigError):
        return []  # its start says what is wrong
    name = config.get("name") or plugin.simple_name
    if plugin.experimental:
        notes.insert(
            0,
            f"{plugin.java_class} is experimental: it was compared neither with the model's own runs nor with all "
            "faults of real peers.",
        )
    return [f"connector {name}: {note}" for note in notes]


def _check_part(check: NameCheck, settings: Mapping[str, Any], where: tuple[str, Plugin, tuple[str, ...], str]) -> None:
    """Check the settings of a converter, transformation or predicate, which stand behind a prefix."""
    prefix, part, own, what = where
    setting_names = {*part.config.settings, *own}
    for name, value in settings.items():
        sentence, note = part.model.refusal(name, value, what), part.model.idleness(name)
        if sentence is not None:
            check.refused[prefix + name] = f"{prefix}{sentence}"
        elif note is not None:
            check.notes.append(f"{prefix}{note}")
        elif name not in setting_names and not part.model.has(name):
            near = question(mistyped(name, [*setting_names, *_names(part.model)]))
            check.notes.append(
                f"{prefix}{name} is not a setting of {part.java_class}, and has no effect. {near}".rstrip()
            )


def _parts(config: Mapping[str, str | None], plugins: Plugins) -> Iterator[tuple[str, Plugin, tuple[str, ...], str]]:
    """Return a config's converters, transformations and predicates: prefix, plugin, further names, a word for it."""
    for name in CONVERTER_KINDS:
        plugin = _found(config.get(name), plugins)
        if plugin is not None:
            yield f"{name}.", plugin, ("plugin.version",), "converter"
    for part in PARTS:
        of_all = ("type", "plugin.version", *(each.name for each in CONDITIONS))
        for alias in _aliases(config, part.list_name):
            prefix = f"{part.list_name}.{alias}."
            plugin = _found(config.get(f"{prefix}type"), plugins)
            if plugin is not None:
                yield prefix, plugin, of_all, part.kind.value


def _found(name: str | None, plugins: Plugins) -> Plugin | None:
    if name is None:
        return None
    try:
        return plugins.find(name.strip())
    except (LookupError, ConfigError):
        return None  # validation reports it


def _aliases(config: Mapping[str, str | None], name: str) -> list[str]:
    try:
        return list(parse_kind(name, config.get(name), Kind.LIST) or ())
    except SettingError:
        return []


def _is_read(name: str, config: Mapping[str, str | None], plugin: Plugin) -> bool:
    """Return whether a name that no definition has is read nevertheless: by a part, a client, or for new topics."""
    for converter in CONVERTER_KINDS:
        if name.startswith(f"{converter}."):
            return bool(config.get(converter))  # its own check follows
    for part in PARTS:
        if name.startswith(f"{part.list_name}."):
            return _alias(name, part.list_name) in _aliases(config, part.list_name)
    if name.startswith(TOPIC_CREATION) and PluginKind.SOURCE in plugin.kinds:
        groups = ("default", *_aliases(config, f"{TOPIC_CREATION}groups"))
        return name.count(".") > 2 and name.split(".")[2] in groups
    return _of_client(name) == ""


def _of_client(name: str) -> str | None:
    """Return what is wrong with a client's setting, empty if nothing is; None: it is no client's setting."""
    for client in CLIENTS:
        prefix = f"{client}.override."
        if name.startswith(prefix):
            try:
                check_client_name(f"{client}.{name.removeprefix(prefix)}")
            except ConfigError as error:
                return f"{name} has no effect: {error.message}. {error.hint}"
            return ""
    return None


def _of_framework(name: str, config: Mapping[str, str | None]) -> str | None:
    """Return the note about a name that Kafka Connect itself would read, if it changes nothing as it stands."""
    for converter in CONVERTER_KINDS:
        if name.startswith(f"{converter}."):
            return f"{name} has no effect without {converter}: a connector's settings are not the worker's converter's."
    for part in PARTS:
        if name.startswith(f"{part.list_name}."):
            alias = _alias(name, part.list_name)
            near = question(mistyped(alias, _aliases(config, part.list_name)))
            return f"{name} has no effect: {part.list_name} does not name {alias!r}. {near}".rstrip()
    if name.startswith(TOPIC_CREATION) and name.count(".") > 2:
        return f"{name} has no effect: topic.creation.groups of a source does not name {name.split('.')[2]!r}."
    return _of_client(name)


def _alias(name: str, list_name: str) -> str:
    return name.removeprefix(f"{list_name}.").partition(".")[0]


def _names(model: Model) -> list[str]:
    return [name for name in (*model.refused, *model.idle) if not name.endswith(".")]


NO_NULLS = "Null value can not be supplied as the configuration value."
_NO_API = (
    "The connector does not implement the API required for preflight validation of exactly-once source support. "
    "Please consult the documentation for the connector to determine whether it supports exactly-once semantics, and "
    'then consider reconfiguring the connector to use the value "requested" for this property (which will disable '
    "this preflight check and allow the connector to be created)."
)
DLQ = "errors.deadletterqueue.topic.name"


def plugin_settings(plugin: Plugin, plugins: Plugins, worker: WorkerSettings | None = None) -> list[dict[str, Any]]:
    """Return the definitions of a plugin's settings, as ``GET /connector-plugins/{name}/config`` answers them.

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
    texts = {name: value if value is None else str(value) for name, value in config.items()}
    plugin = plugins.connector(texts.get("connector.class") or "")
    base = connector_definition(plugin, texts, plugins, where)
    common = enriched(base, texts, plugins, strict=False)
    values = validate(common, texts, plugins.find)
    if PluginKind.SOURCE in plugin.kinds:
        if where.distributed:
            _check_source(plugin, texts, values, where)
    else:
        _check_sink(texts, values)
    _report_nulls(texts, values)
    for name in CONVERTER_KINDS:
        _check_name(name, texts, values, plugins)
    for name in (*CONVERTER_KINDS, *plugin_settings_of(texts)):
        _check_version(name, texts, values, plugins)
    own = _own_values(plugin, texts, plugins)
    values |= {name: value for name, value in own.items() if name not in plugin.config.settings}
    for name in plugin.config.settings.keys() & common.settings.keys():
        own[name].errors = values[name].errors
    for name, sentence in check_names(texts, plugins, where).refused.items():
        values.setdefault(name, ConfigValue(name)).errors.append(sentence)
    entries = _entries(ConfigDef(each for each in common if each.name not in plugin.config.settings), values)
    entries += _entries(plugin.config, own)
    defined = {*common.settings, *plugin.config.settings}
    others = [values[name] for name in hash_order(values) if name not in defined]
    entries = [{"definition": None, "value": value.described()} for value in others] + entries
    groups = list(dict.fromkeys([*common.groups, *plugin.config.groups]))
    for name in CONVERTER_KINDS:
        more, inner = _converter_entries(name, texts, values, plugins)
        entries += more
        groups += [group for group in inner if group not in groups]
    count = sum(len(entry["value"]["errors"]) for entry in entries)
    return {"name": texts["connector.class"], "error_count": count, "groups": groups, "configs": entries}


def _own_values(plugin: Plugin, config: Mapping[str, Any], plugins: Plugins) -> dict[str, ConfigValue]:
    """Return the connector's own settings, validated by itself, and its words on others, which count in their place."""
    connector = plugin.make()
    if not isinstance(connector, Connector):
        return validate(plugin.config, config, plugins.find)
    values = connector.validate(config)
    return {**{name: ConfigValue(name) for name in plugin.config.settings}, **values}


def _entries(definition: ConfigDef, values: dict[str, ConfigValue]) -> list[dict[str, Any]]:
    """Return definitions and values as answers have them."""
    return [
        {"definition": setting.described(), "value": values[setting.name].described(setting.kind)}
        for setting in definition
    ]


def _report_nulls(config: Mapping[str, Any], values: dict[str, ConfigValue]) -> None:
    for name, value in config.items():
        if value is None:
            values.setdefault(name, ConfigValue(name)).errors.append(NO_NULLS)


def _check_source(
    plugin: Plugin, texts: Mapping[str, Any], values: dict[str, ConfigValue], worker: WorkerSettings
) -> None:
    support = values["exactly.once.support"]
    connector = plugin.make()
    source = connector if isinstance(connector, SourceConnector) else SourceConnector()
    config = {name: value for name, value in texts.items() if value is not None}
    if str(support.value).lower() == "required" and not support.errors:
        if not worker.exactly_once:
            support.errors.append("This worker does not have exactly-once source support enabled.")
        support.errors += _support_errors(source.exactly_once_support(config))
    boundary = values["transaction.boundary"]
    asked = str(boundary.value).lower() == "connector" and not boundary.errors
    if asked and source.can_define_transaction_boundaries(config) is not Boundaries.SUPPORTED:
        boundary.errors.append(
            "The connector does not support connector-defined transaction boundaries with the given configuration. "
            "Please reconfigure it to use a different transaction boundary definition."
        )


def _support_errors(support: ExactlyOnce | None) -> list[str]:
    if support is ExactlyOnce.SUPPORTED:
        return []
    if support is ExactlyOnce.UNSUPPORTED:
        return ["The connector does not support exactly-once semantics with the provided configuration."]
    return [_NO_API]


def _check_name(name: str, config: Mapping[str, Any], values: dict[str, ConfigValue], plugins: Plugins) -> None:
    """Report a converter whose name has blanks around it: it is a class, but its settings are not found by that."""
    chosen = config.get(name)
    if chosen is None or values[name].errors:
        return
    try:
        plugins.find(chosen)
    except (LookupError, SettingError):
        values[name].errors.append(f"Failed to load class {chosen}: {chosen}")


def _check_version(name: str, config: Mapping[str, Any], values: dict[str, ConfigValue], plugins: Plugins) -> None:
    """Report a plugin that is not there in the version that is asked for."""
    version = f"{name.removesuffix('.type')}.plugin.version"
    required_version, chosen = config.get(version), config.get(name)
    if required_version is None or chosen is None or values[name].errors:
        return
    plugin = plugins.find(str(chosen))
    if not in_range(plugin.version, required_version):
        _both(values[name], values[version], version_error(plugin, required_version))


def _check_sink(config: Mapping[str, Any], values: dict[str, ConfigValue]) -> None:
    topics, regex = values["topics"], values["topics.regex"]
    names, pattern = bool((config.get("topics") or "").strip()), bool((config.get("topics.regex") or "").strip())
    if names and pattern:
        _both(topics, regex, "topics and topics.regex are mutually exclusive options, but both are set.")
    elif not names and not pattern:
        _both(topics, regex, "Must configure one of topics or topics.regex")
    letters = str(config.get(DLQ) or "").strip()
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
    name: str, config: Mapping[str, Any], values: dict[str, ConfigValue], plugins: Plugins
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the settings of a converter that the connector names, under its prefix, and their groups."""
    chosen = config.get(name)
    if chosen is None or values[name].errors:
        return [], []
    try:
        plugin = plugins.find(chosen)
    except (LookupError, SettingError):
        return [], []
    prefix = f"{name}."
    inner = behind_prefix(config, prefix)
    inner["converter.type"] = name.partition(".")[0]
    converter_values = validate(plugin.config, inner, plugins.find)
    entries = _entries(
        ConfigDef(plugin.config.settings[each] for each in hash_order(plugin.config.settings)), converter_values
    )
    for entry in entries:
        for part in ("definition", "value"):
            entry[part]["name"] = prefix + entry[part]["name"]
    return entries, hash_order(plugin.config.groups)
