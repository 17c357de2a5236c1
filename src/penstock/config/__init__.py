"""StreamsConfig: Kafka's dotted names, typed and validated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from penstock.base.argument_checks import check_mapping
from penstock.base.java_names import with_java_names_of
from penstock.base.nearest_name import nearest_names, question
from penstock.base.secrets import is_secret, masked, shown
from penstock.config.client_names import CLIENT_NAMES, CLIENT_PREFIXES, check_client_name, is_client_name
from penstock.config.definitions import (
    ALIASES,
    CONFIG_DEFS,
    CONTINUOUS,
    MICRO_BATCH_ONLY,
    PREFIXES,
    REFUSED,
    SettingDefinition,
    refuse,
    refuse_in_mode,
)
from penstock.config.prefixes import behind_prefix
from penstock.errors import ConfigError

__all__ = ["CONFIG_DEFS", "SettingDefinition", "StreamsConfig"]

_OF_CLIENTS = (*CLIENT_PREFIXES, "sasl.", "ssl.")


@with_java_names_of("StreamsConfig", settings=(*CONFIG_DEFS, *REFUSED, *ALIASES, *CLIENT_NAMES))
class StreamsConfig(Mapping[str, Any]):
    """The settings of an application: an immutable mapping of all settings, with their defaults.

    >>> config = StreamsConfig({"application.id": "shop", "commit.interval.ms": "1 second"})
    >>> config["commit.interval.ms"], config["num.partitions"]
    (1000, 1)

    Args:
        settings: Names and values. Numbers and durations may be text. Settings of Kafka's clients, with or without
            ``producer.``, ``consumer.`` or ``admin.``, and what starts with ``spark.`` or ``topic.`` are passed on.

    Raises:
        ConfigError: A name is unknown, a value is of the wrong type, or a setting is given twice.
    """

    __slots__ = ("_defaults", "_given", "_values")
    _defaults: Mapping[str, Any]
    _given: Mapping[str, Any]
    _values: Mapping[str, Any]

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        if settings is not None:
            check_mapping(settings, "the config", ConfigError)
        explicit_values: dict[str, Any] = {}
        origin: dict[str, str] = {}
        for name, value in dict(settings or {}).items():
            setting = ALIASES.get(name, name)
            read = _read(name, setting, value)
            if setting in explicit_values and explicit_values[setting] != read:
                values = f"{shown(setting, explicit_values[setting])!r} and {shown(setting, read)!r}"
                raise ConfigError(
                    f"{origin[setting]} and {name} are one setting with two values: {values}",
                    hint=f"Keep {setting}.",
                )
            explicit_values[setting] = read
            origin[setting] = name
        refuse_in_mode(explicit_values)
        object.__setattr__(self, "_given", MappingProxyType(explicit_values))
        self._set_defaults({})

    def __getitem__(self, name: str) -> Any:
        name = ALIASES.get(name, name)
        if name not in self._values:
            raise KeyError(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a StreamsConfig does not change; make another one with with_settings()")

    def _set_defaults(self, defaults: Mapping[str, Any]) -> None:
        own = {definition.name: definition.default for definition in CONFIG_DEFS.values()}
        object.__setattr__(self, "_defaults", MappingProxyType({**defaults}))
        object.__setattr__(self, "_values", MappingProxyType({**own, **defaults, **self._given}))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self._given), dict(self._defaults))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamsConfig) and self._given == other._given and self._defaults == other._defaults

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StreamsConfig({self.masked()!r})"

    @property
    def given(self) -> Mapping[str, Any]:
        """The settings that were set, without defaults."""
        return self._given

    def with_settings(self, settings: Mapping[str, Any]) -> StreamsConfig:
        """Return a new config in which these settings are added or replaced."""
        changed = {ALIASES.get(name, name): value for name, value in settings.items()}
        return _restored({**self._given, **changed}, self._defaults)

    def with_defaults(self, defaults: Mapping[str, Any]) -> StreamsConfig:
        """Return a new config with other defaults for settings that are not set; they do not count as set.

        >>> config = StreamsConfig({"num.partitions": 3}).with_defaults({"num.partitions": 5, "num.stream.threads": 1})
        >>> config["num.partitions"], config["num.stream.threads"], dict(config.given)
        (3, 1, {'num.partitions': 3})
        """
        return _restored(self._given, {**self._defaults, **StreamsConfig(defaults).given})

    def with_prefix(self, prefix: str) -> dict[str, Any]:
        """Return the settings with a prefix such as ``producer.``, without the prefix."""
        return behind_prefix(self._given, prefix)

    def require(self, *names: str) -> None:
        """Raise ConfigError unless these settings are set. An application checks them when it is created."""
        missing = [name for name in names if self.get(name) in (None, "")]
        if missing:
            example = {"application.id": '"my-app"', "bootstrap.servers": '"sqlite:///penstock.db"'}
            lines = ", ".join(f'"{name}": {example.get(name, "...")}' for name in missing)
            raise ConfigError(f"{', '.join(missing)} must be set", hint=f"Add {lines} to the config.")

    def masked(self) -> dict[str, Any]:
        """Return the settings that were set, with secrets as stars."""
        return masked(self._given)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The names of settings that were set and have no effect here."""
        return tuple(name for name in self._given if name in CONFIG_DEFS and not CONFIG_DEFS[name].effect)

    def ineffective(self) -> tuple[str, ...]:
        """Return a sentence about settings without effect here, and one about those of the other ``processing.mode``.

        >>> StreamsConfig({"processing.mode": "continuous", "penstock.max.batch.ms": 5}).ineffective()
        ('settings without effect with processing.mode=continuous: penstock.max.batch.ms',)
        """
        mode = self["processing.mode"]
        of_other = MICRO_BATCH_ONLY if mode == "continuous" else {name for name, *_ in CONTINUOUS}
        names_by_reason = {
            "settings without effect here, accepted so that a config can be shared with Kafka Streams": (
                self.without_effect
            ),
            f"settings without effect with processing.mode={mode}": [name for name in self._given if name in of_other],
        }
        return tuple(f"{said}: {', '.join(sorted(names))}" for said, names in names_by_reason.items() if names)

    def explain(self) -> str:
        """Describe the settings that differ from their defaults, one on each line, with secrets as stars."""
        changed = {
            name: value
            for name, value in sorted(self.masked().items())
            if name not in CONFIG_DEFS or CONFIG_DEFS[name].default != self._given[name]
        }
        width = max(map(len, changed), default=0)
        lines = []
        for name, value in changed.items():
            definition = CONFIG_DEFS.get(name)
            note = ""
            if definition is not None:
                note = f"  (default {definition.default})" if definition.effect else "  (no effect)"
            lines.append(f"{name:<{width}} = {getattr(value, '__qualname__', value)}{note}")
        return "\n".join(lines) or "all settings have their defaults"


def _restored(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> StreamsConfig:
    """Return a config with defaults of its own."""
    config = StreamsConfig(settings)
    config._set_defaults(defaults)  # noqa: SLF001 - the constructor's other half
    return config


def _read(written_name: str, name: str, value: Any) -> Any:
    if not isinstance(name, str):
        raise ConfigError(f"{name!r} is not the name of a setting", hint='Names are texts, such as "application.id".')
    if name in REFUSED:
        refuse(name, value)
        return value
    definition = CONFIG_DEFS.get(name)
    if definition is None:
        if is_client_name(name) or name.startswith(_OF_CLIENTS):
            check_client_name(name)
        elif not name.startswith(tuple(PREFIXES)):
            raise _unknown(name)
        return value
    if value is None:
        return definition.default
    try:
        read = definition.kind.read(value)
    except ValueError as error:
        seen = "***" if is_secret(written_name) else repr(value)
        raise ConfigError(
            f"{written_name} is {seen}; it must be {error}",
            hint=f"{definition.doc} Default: {definition.default}.",
            setting=name,
        ) from None
    if name == "application.id" and not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", read):
        raise ConfigError(
            f"application.id is {value!r}; it must be letters, digits, '.', '_' and '-'",
            hint='Topics are named after it; for example "access-log".',
            setting=name,
        )
    return read


def _unknown(name: str) -> ConfigError:
    lower = name.lower().replace("_", ".")
    setting_names = [*CONFIG_DEFS, *REFUSED, *ALIASES, *CLIENT_NAMES]
    near = nearest_names(name, setting_names, 3)
    if not near and "." not in name:
        near = [setting for setting in setting_names if lower in setting][:3]
    prefixes = ", ".join(prefix for prefix in PREFIXES if prefix != "__")
    hint = f"{question(*near)} Passed on unchanged: {prefixes}.".lstrip()
    return ConfigError(f"there is no setting {name!r}", hint=hint, setting=name)
