"""The settings of the transformations and predicates that a connector's config names, added to its definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connect.config import (
    AllOf,
    Check,
    ConfigDef,
    Importance,
    Kind,
    NonNull,
    Recommender,
    Setting,
    Width,
    no_alias_twice,
    parse_kind,
)
from penstock.connect.data import SettingError
from penstock.connect.plugins.registry import INTERFACES, Plugin, PluginKind, Plugins
from penstock.connect.plugins.versions import in_range, version_error

__all__ = ["PREDICATES_SETTING", "TRANSFORMS_SETTING", "enriched", "plugin_settings_of"]


def _aliases(name: str, label: str, doc: str, order: int) -> Setting:
    rule = AllOf((NonNull(), Check(no_alias_twice, f"unique {label.lower().removesuffix('s')} aliases")))
    return Setting(
        name=name,
        kind=Kind.LIST,
        default=(),
        rule=rule,
        importance=Importance.LOW,
        doc=doc,
        group=label,
        order=order,
        width=Width.LONG,
        label=label,
    )


TRANSFORMS_SETTING = _aliases(
    "transforms", "Transforms", "Aliases for the transformations to be applied to records.", 12
)
PREDICATES_SETTING = _aliases("predicates", "Predicates", "Aliases for the predicates used by transformations.", 13)
CONDITIONS = (
    Setting(
        name="predicate",
        kind=Kind.STRING,
        default=None,
        doc="The alias of a predicate used to determine whether to apply this transformation.",
    ),
    Setting(name="negate", kind=Kind.BOOLEAN, default=False, doc="Whether the configured predicate should be negated."),
)


@dataclass(frozen=True, slots=True)
class _PluginPart:
    """What transformations and predicates differ in."""

    list_name: str
    group: str
    kind: PluginKind

    @property
    def word(self) -> str:
        return INTERFACES[self.kind]


PARTS = (
    _PluginPart("transforms", "Transforms", PluginKind.TRANSFORMATION),
    _PluginPart("predicates", "Predicates", PluginKind.PREDICATE),
)


def enriched(base: ConfigDef, config: Mapping[str, Any], plugins: Plugins, *, strict: bool) -> ConfigDef:
    """Return a connector's definition with the settings of its transformations and predicates.

    Args:
        base: The definition.
        config: The config, whose ``transforms`` and ``predicates`` name them.
        plugins: The plugins that there are.
        strict: Raise at a wrong type; else its settings stay away, and validation reports it.

    Raises:
        SettingError: A type is missing or wrong.
    """
    definition = base.copy()
    for part in PARTS:
        for alias in dict.fromkeys(parse_kind(part.list_name, config.get(part.list_name), Kind.LIST) or ()):
            _add(definition, part, alias, config, (plugins, strict))
    return definition


def plugin_settings_of(config: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that name a plugin of a list: ``transforms.a.type``, ``predicates.p.type``."""
    names = []
    for part in PARTS:
        aliases = dict.fromkeys(parse_kind(part.list_name, config.get(part.list_name), Kind.LIST) or ())
        names += [f"{part.list_name}.{alias}.type" for alias in aliases]
    return names


def _add(
    definition: ConfigDef, part: _PluginPart, alias: str, config: Mapping[str, Any], where: tuple[Plugins, bool]
) -> None:
    plugins, strict = where
    prefix = f"{part.list_name}.{alias}."
    group = f"{part.group}: {alias}"
    word = part.word

    def check(name: str, value: Any) -> None:
        if part.kind is PluginKind.TRANSFORMATION:
            _check_negation(prefix, config)
        if value is not None:
            _plugin(value, name, part.kind)

    definition.define(
        Setting(
            name=f"{prefix}type",
            kind=Kind.CLASS,
            rule=Check(check, f"valid configs for {alias} {word.lower()}"),
            importance=Importance.HIGH,
            doc=f"Class for the '{alias}' {word.lower()}.",
            group=group,
            order=0,
            width=Width.LONG,
            label=f"{word} type for {alias}",
            recommender=Recommender(lambda _name, _parsed: list(plugins.of_kind(part.kind))),
        )
    )
    try:
        name = f"{prefix}type"
        plugin = _plugin(parse_kind(name, config.get(name), Kind.CLASS, plugins.find), name, part.kind)
    except SettingError:
        if strict:
            raise
        plugin = None
    definition.define(_version(prefix, group, word, alias, plugin))
    if plugin is None:
        return
    required_version = config.get(f"{prefix}plugin.version")
    if required_version is not None and not in_range(plugin.version, required_version):
        if strict:
            raise SettingError(version_error(plugin, required_version))
        return
    settings = [s for s in plugin.config if s.name not in {c.name for c in CONDITIONS}]
    conditions = CONDITIONS if part.kind is PluginKind.TRANSFORMATION else ()
    definition.embed(prefix, group, 2, ConfigDef([*conditions, *settings]))


def _version(prefix: str, group: str, word: str, alias: str, plugin: Plugin | None) -> Setting:
    return Setting(
        name=f"{prefix}plugin.version",
        kind=Kind.STRING,
        default=plugin.version if plugin else None,
        importance=Importance.HIGH,
        doc=f"Version of the '{alias}' {word.lower()}.",
        group=group,
        order=1,
        width=Width.LONG,
        label=f"{word} version for {alias}",
        recommender=Recommender(lambda _name, _parsed: [plugin.version] if plugin else []),
    )


def _check_negation(prefix: str, config: Mapping[str, Any]) -> None:
    if f"{prefix}negate" in config and f"{prefix}predicate" not in config:
        raise SettingError(
            f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' "
            "defining a predicate to be negated."
        )


def _plugin(value: Any, name: str, kind: PluginKind) -> Plugin:
    if value is None:
        raise SettingError.invalid(name, None, f"Not a {INTERFACES[kind]}")
    plugin: Plugin = value
    return plugin.require(kind)
