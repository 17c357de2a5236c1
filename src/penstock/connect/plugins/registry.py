"""The plugins that a worker knows, by Kafka's names: their types, settings, versions and ranges of versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.base.jars import CONNECT_VERSION
from penstock.connect.api import Connector, SinkConnector
from penstock.connect.config import NO_MODEL, ConfigDef, Model, java_class
from penstock.connect.converters import CONVERTERS, SimpleHeaderConverter
from penstock.connect.data import SettingError
from penstock.connect.predicates import PREDICATES
from penstock.connect.transforms import ABSTRACT, TRANSFORMS

__all__ = [
    "KAFKA_VERSION",
    "Plugin",
    "PluginKind",
    "Plugins",
    "connector_plugin",
    "in_range",
    "shown_range",
    "standard_plugins",
    "version_error",
]

KAFKA_VERSION = CONNECT_VERSION  # whose behaviour the plugins under Kafka's names have
ABSTRACT_INTERFACES = (
    "org.apache.kafka.connect.storage.Converter",
    "org.apache.kafka.connect.storage.HeaderConverter",
    "org.apache.kafka.connect.transforms.Transformation",
    "org.apache.kafka.connect.transforms.predicates.Predicate",
)
SUFFIXES = ("Connector", "Converter", "Transformation")


class PluginKind(Enum):
    """The types of plugins, by their names in the REST interface."""

    SINK = "sink"
    SOURCE = "source"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


# The interface that messages name.
INTERFACES = {
    PluginKind.SINK: "Connector",
    PluginKind.SOURCE: "Connector",
    PluginKind.CONVERTER: "Converter",
    PluginKind.HEADER_CONVERTER: "HeaderConverter",
    PluginKind.TRANSFORMATION: "Transformation",
    PluginKind.PREDICATE: "Predicate",
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin. As a value of a setting of type CLASS it is shown by its ``java_class``.

    Attributes:
        java_class: Kafka's name of the class, or any other by which configs name it.
        kinds: What it can be used as.
        make: Makes an instance.
        config: The definition of its settings.
        version: Its version.
        stands_for: The classes that an abstract one stands for; None: it is not abstract.
        model: The software whose names its settings have, and what of it the plugin does not have.
        experimental: It was compared neither with what its model does nor with a real peer in all its faults.
    """

    java_class: str
    kinds: tuple[PluginKind, ...]
    make: Callable[[], Any]
    config: ConfigDef
    version: str = KAFKA_VERSION
    stands_for: tuple[str, ...] | None = None
    model: Model = NO_MODEL
    experimental: bool = False

    @property
    def simple_name(self) -> str:
        """The name without package and outer class, as Java's ``getSimpleName`` has it."""
        return self.java_class.rpartition(".")[2].rpartition("$")[2]

    def require_any(self) -> Plugin:
        """Return the plugin, if it is one.

        Raises:
            SettingError: It is an interface.
        """
        return self.require(self.kinds[0]) if self.kinds else self.require(PluginKind.CONVERTER)

    def require(self, kind: PluginKind) -> Plugin:
        """Return the plugin, if it is of this type.

        Raises:
            SettingError: It is of another, or an interface.
        """
        if self.stands_for is not None:
            meant = f" Did you mean {', '.join(self.stands_for)}?" if self.stands_for else ""  # Kafka Connect's words
            raise SettingError(f"This class is abstract and cannot be created.{meant}")
        if kind not in self.kinds:
            raise SettingError(f"Class class {self.java_class} does not implement the {INTERFACES[kind]} interface")
        return self


class Plugins:
    """Plugins by name: the whole one, the name without package, or that without ``Connector`` and the like.

    Attributes:
        references: Finds what is not registered by its name, such as ``file.py:name``; None if it is not a reference.

    Example:
        >>> plugins = standard_plugins()
        >>> plugins.find("StringConverter").java_class
        'org.apache.kafka.connect.storage.StringConverter'
        >>> [p.simple_name for p in plugins.of_kind(PluginKind.PREDICATE)]
        ['HasHeaderKey', 'RecordIsTombstone', 'TopicNameMatches']
    """

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._plugins: dict[str, Plugin] = {}
        self._aliases: dict[str, str | None] = {}
        self.references: Callable[[str], Plugin | None] = lambda _name: None
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: Plugin) -> None:
        """Add a plugin; a later one takes the place of an earlier one of its name."""
        replaces = plugin.java_class in self._plugins
        self._plugins[plugin.java_class] = plugin
        if not plugin.kinds:
            return
        simple = plugin.simple_name
        short = next((simple.removesuffix(end) for end in SUFFIXES if simple.endswith(end) and simple != end), simple)
        for alias in {simple, short} if not replaces else ():
            self._aliases[alias] = None if alias in self._aliases else plugin.java_class  # None: of two

    def find(self, name: str) -> Plugin:
        """Return the plugin of a name or alias; a class of Java's own is one that can be used as nothing.

        Raises:
            LookupError: There is none, or the alias stands for two.
        """
        plugin = self._plugins.get(name) or self._plugins.get(self._aliases.get(name) or "") or self.references(name)
        if plugin is None:
            if not name.startswith("java."):
                raise LookupError(name)
            plugin = Plugin(java_class(name), (), object, ConfigDef())
        return plugin

    def of_kind(self, *kinds: PluginKind) -> list[Plugin]:
        """Return all plugins of these types, by name."""
        return sorted((p for p in self._plugins.values() if set(kinds) & set(p.kinds)), key=lambda p: p.java_class)

    def connector(self, name: str) -> Plugin:
        """Return the connector of this class, or of this name without package, with or without ``Connector``.

        Raises:
            LookupError: There is none, or more than one.
        """
        connectors = self.of_kind(PluginKind.SOURCE, PluginKind.SINK)
        exact = [plugin for plugin in connectors if plugin.java_class == name]
        ends = (name, f"{name}Connector")
        matches = exact or [plugin for plugin in connectors if plugin.simple_name in ends]
        if not matches and (referred := self.references(name)) is not None:
            return referred
        if not name or len(matches) != 1:
            raise LookupError(name)
        return matches[0]


def connector_plugin(connector: type[Connector]) -> Plugin:
    """Return the plugin of a connector's class; ``plugins.add(connector_plugin(MyConnector))`` registers it.

    >>> from penstock.connect.api import SourceConnector
    >>> class Clock(SourceConnector):
    ...     java_class = "org.example.ClockConnector"
    >>> plugins = standard_plugins()
    >>> plugins.add(connector_plugin(Clock))
    >>> plugins.connector("Clock").version
    '1.0'
    """
    kind = PluginKind.SINK if issubclass(connector, SinkConnector) else PluginKind.SOURCE
    return Plugin(
        connector.java_class,
        (kind,),
        connector,
        connector.config,
        connector.version,
        model=connector.model,
        experimental=connector.experimental,
    )


def standard_plugins() -> Plugins:
    """Return the converters, transformations and predicates of Apache Kafka."""
    both = (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER)
    converters = (
        Plugin(c.java_class, both if c is not SimpleHeaderConverter else both[1:], c, c.config, model=c.model)
        for c in CONVERTERS
    )
    transforms = (Plugin(t.java_class, (PluginKind.TRANSFORMATION,), t, t.config) for t in TRANSFORMS)
    predicates = (Plugin(p.java_class, (PluginKind.PREDICATE,), p, p.config) for p in PREDICATES)
    stand_ins = {**ABSTRACT, **dict.fromkeys(ABSTRACT_INTERFACES, ())}
    abstract = (Plugin(name, (), object, ConfigDef(), stands_for=both) for name, both in stand_ins.items())
    return Plugins((*converters, *transforms, *predicates, *abstract))


_RANGE = re.compile(r"([\[(])\s*([^,\[\]()]*?)\s*(?:(,)\s*([^,\[\]()]*?)\s*)?([\])])")


def version_error(plugin: Plugin, required: str) -> str:
    """Return the text about a version that the plugin does not have."""
    return (
        f"Plugin {plugin.java_class} not found that matches the version range {shown_range(required)}, available "
        f"versions: [{', '.join(plugin.version for _ in plugin.kinds)}]"
    )


def shown_range(required: str) -> str:
    """Return a version as a range.

    >>> shown_range("9.9"), shown_range("[1,2)"), shown_range("")
    ('[9.9,9.9]', '[1,2)', '[,]')
    """
    return required if _RANGE.fullmatch(required.strip()) else f"[{required},{required}]"


def in_range(version: str, required: str) -> bool:
    """Return whether a version is the wanted one, or within the wanted range.

    >>> in_range("4.3.1", "[4,5)"), in_range("4.3.1", "4.3.1"), in_range("4.3.1", "(4.3.1,]"), in_range("1.0", "latest")
    (True, True, False, True)
    """
    text = required.strip()
    if text == "latest":
        return True
    match = _RANGE.fullmatch(text)
    if match is None:
        return text == version
    opening, low, comma, high, closing = match.groups()
    if comma is None:
        high = low
    own = _parts(version)
    if low and (own < _parts(low) or (opening == "(" and own == _parts(low))):
        return False
    return not (high and (own > _parts(high) or (closing == ")" and own == _parts(high))))


def _parts(version: str) -> tuple[tuple[int, int | str], ...]:
    """Return what versions are compared by: numbers as numbers, zeros at the end left out."""
    parts: list[tuple[int, int | str]] = [
        (1, int(part)) if part.isdecimal() else (0, part) for part in re.split(r"[.\-_+]", version) if part
    ]
    while parts and parts[-1] == (1, 0):
        parts.pop()
    return tuple(parts)
