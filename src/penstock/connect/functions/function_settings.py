"""Settings of functions: keywords of a decorator become a config definition, and its values attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.connect.config import NO_DEFAULT, ConfigDef, Importance, Kind, Password, Setting
from penstock.errors import ConfigError

__all__ = ["Settings", "definition_of", "setting_name"]

KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.LONG,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    list: Kind.LIST,
    Password: Kind.PASSWORD,
}


class Settings:
    """The parsed settings of a connector, as attributes and by name.

    Example:
        >>> settings = Settings({"url": "http://localhost", "batch.size": 10})
        >>> settings.url, settings.batch_size, settings["batch.size"]
        ('http://localhost', 10, 10)
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        setting = next((each for each in (name, setting_name(name)) if each in values), None)
        if setting is None:
            raise AttributeError(f"there is no setting {setting_name(name)!r}; there are {', '.join(values) or 'none'}")
        return values[setting]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def setting_name(keyword: str) -> str:
    """Return the name of a setting in configs: ``batch_size`` is ``batch.size``."""
    return keyword.replace("_", ".")


def definition_of(keywords: Mapping[str, Any]) -> ConfigDef:
    """Return the definition of settings: a type is a setting that must be set, any other value its default.

    Args:
        keywords: ``str``, ``int``, ``float``, ``bool``, ``list`` or ``Password``; a default of such a type; or a whole
            ``Setting``, of which the name may be empty.

    Raises:
        ConfigError: A value is none of them.

    Example:
        >>> [(s.name, s.kind.name, s.required) for s in definition_of({"url": str, "batch_size": 100})]
        [('url', 'STRING', True), ('batch.size', 'LONG', False)]
    """
    return ConfigDef([_setting(keyword, value) for keyword, value in keywords.items()])


def _setting(keyword: str, value: Any) -> Setting:
    name = setting_name(keyword)
    if isinstance(value, Setting):
        return value
    if isinstance(value, type) and value in KINDS:
        return Setting(name=name, kind=KINDS[value], importance=Importance.HIGH, default=NO_DEFAULT)
    kind = next((KINDS[each] for each in KINDS if type(value) is each), None)
    if kind is None:
        raise ConfigError(
            f"the setting {keyword} is {value!r}",
            hint="Give a type (str, int, float, bool, list, Password), a default of such a type, or a Setting.",
        )
    return Setting(name=name, kind=kind, default=value)
