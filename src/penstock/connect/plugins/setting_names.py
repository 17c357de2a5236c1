"""The names in a connector's config: which are refused, which change nothing, which are not known at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.nearest_name import mistyped, question
from penstock.config.client_names import check_client_name
from penstock.config.prefixes import behind_prefix
from penstock.connect.config import Kind, Model, parse_kind
from penstock.connect.data import SettingError
from penstock.connect.plugins.common_settings import RESTARTS
from penstock.connect.plugins.connector_definition import CONVERTER_KINDS, WorkerSettings, connector_definition
from penstock.connect.plugins.enriching import CONDITIONS, PARTS
from penstock.connect.plugins.kind_settings import SINK
from penstock.connect.plugins.registry import Plugin, PluginKind, Plugins
from penstock.errors import ConfigError

__all__ = ["NameCheck", "check_converter", "check_names", "start_notes"]

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
    """What is to be said about the names of a config.

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
    """The converters, transformations and predicates of a config: prefix, plugin, further names, a word for it."""
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
    """What is wrong with a setting of one of the connector's clients; empty: nothing; None: it sets no client."""
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
