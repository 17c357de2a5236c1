"""Chains of transformations, for all records or those a predicate chooses, and the settings that they add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.config.prefixes import behind_prefix
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
from penstock.connect.data import ConnectRecord, SettingError, java_name
from penstock.connect.plugins.registry import (
    INTERFACES,
    Plugin,
    PluginKind,
    Plugins,
    in_range,
    standard_plugins,
    version_error,
)
from penstock.connect.predicates import Predicate
from penstock.connect.transforms import Transformation
from penstock.errors import ConnectError, PenstockError

__all__ = [
    "PREDICATES_SETTING",
    "TRANSFORMS_SETTING",
    "Stage",
    "TransformationChain",
    "enriched",
    "plugin_settings_of",
    "transformation_chain",
]


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
    """The differences between transformations and predicates."""

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


R = TypeVar("R", bound=ConnectRecord)


@dataclass(frozen=True, slots=True)
class Stage:
    """A transformation, and the records that it is for.

    Attributes:
        transformation: The transformation.
        predicate: Chooses its records; None: all.
        negated: It is for the records that the predicate does not choose.
    """

    transformation: Transformation
    predicate: Predicate | None = None
    negated: bool = False

    def apply(self, record: R) -> R | None:
        """Return the record as it goes on; None drops it."""
        if self.predicate is None or self.predicate.test(record) != self.negated:
            return self.transformation.apply(record)
        return record


@dataclass(frozen=True, slots=True)
class TransformationChain:
    """Transformations one after another.

    Example:
        >>> from penstock.connect.data import SinkRecord
        >>> chain = transformation_chain(
        ...     {
        ...         "transforms": "wrap,source",
        ...         "transforms.wrap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        ...         "transforms.wrap.field": "line",
        ...         "transforms.source.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        ...         "transforms.source.topic.field": "topic",
        ...     }
        ... )
        >>> chain.apply(SinkRecord(topic="lines", value="GET /")).value
        {'line': 'GET /', 'topic': 'lines'}
    """

    stages: tuple[Stage, ...] = ()

    def apply(self, record: R) -> R | None:
        """Return the record as it comes out; None: one of them dropped it."""
        current: R | None = record
        for stage in self.stages:
            if current is None:
                return None
            current = stage.apply(current)
        return current

    def close(self) -> None:
        """Close all of them."""
        for stage in self.stages:
            stage.transformation.close()
            if stage.predicate is not None:
                stage.predicate.close()


def transformation_chain(config: Mapping[str, Any], plugins: Plugins | None = None) -> TransformationChain:
    """Return the chain of a connector's config.

    Args:
        config: The config; of it, what begins with ``transforms`` and ``predicates``.
        plugins: The plugins that there are; by default Apache Kafka's.

    Raises:
        SettingError: A setting is wrong.
        ConnectError: A transformation refuses its settings, or names a predicate that is not there.
    """
    available = plugins or standard_plugins()
    definition = enriched(ConfigDef([TRANSFORMS_SETTING, PREDICATES_SETTING]), config, available, strict=True)
    parsed = definition.parse(config, available.find)
    return TransformationChain(tuple(_stage(alias, config, parsed) for alias in parsed["transforms"]))


def _stage(alias: str, config: Mapping[str, Any], parsed: Mapping[str, Any]) -> Stage:
    settings = behind_prefix(config, f"transforms.{alias}.")
    chosen, negate = settings.pop("predicate", None), settings.pop("negate", None)
    try:
        transformation: Transformation = parsed[f"transforms.{alias}.type"].make()
        transformation.configure(settings)
        if chosen is None:
            return Stage(transformation)
        prefix = f"predicates.{chosen}."
        if f"{prefix}type" not in parsed:
            cause = f"org.apache.kafka.common.config.ConfigException: Unknown configuration '{prefix}plugin.version'"
            raise ConnectError(cause, hint=f"Add {chosen} to predicates, with its type.")
        predicate: Predicate = parsed[f"{prefix}type"].make()
        predicate.configure(behind_prefix(config, prefix))
    except PenstockError as error:
        raise ConnectError(f"{java_name(error)}: {error.message}", hint=error.hint) from error
    return Stage(transformation, predicate, str(negate).lower() == "true")
