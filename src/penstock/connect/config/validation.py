"""Validating a config as a whole: every setting with its value, its errors, what to offer. Nothing is raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.connect.config.definition import ConfigDef
from penstock.connect.config.kinds import FindClass, Kind, parse_kind, setting_text
from penstock.connect.data.errors import SettingError

__all__ = ["ConfigValue", "validate"]


@dataclass(slots=True)
class ConfigValue:
    """A setting of a config that was validated.

    Attributes:
        name: The setting.
        value: Its parsed value; None if it does not parse.
        recommended: Values to offer.
        errors: What is wrong with it.
        visible: Whether a form shows it.
    """

    name: str
    value: Any = None
    recommended: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True

    def described(self, kind: Kind | None = None) -> dict[str, Any]:
        """Return the value as the REST interface answers it."""
        return {
            "name": self.name,
            "value": setting_text(self.value, kind),
            "recommended_values": [setting_text(value, kind) for value in self.recommended],
            "errors": list(self.errors),
            "visible": self.visible,
        }


def validate(
    definition: ConfigDef, config: Mapping[str, Any], find_class: FindClass | None = None
) -> dict[str, ConfigValue]:
    """Validate a config: all settings by name, in the order of their definition. Kafka's ``ConfigDef.validateAll``.

    Args:
        definition: The settings.
        config: The config.
        find_class: Finds a class by its name, raising LookupError.

    Example:
        >>> from penstock.connect.config import Setting
        >>> values = validate(ConfigDef([Setting(name="rate", kind=Kind.INT)]), {"rate": "ten"})
        >>> values["rate"].errors
        ['Invalid value ten for configuration rate: Not a number of type INT']
    """
    values = {setting.name: ConfigValue(setting.name) for setting in definition}
    for name in sorted(definition.undefined_dependents()):
        text = f"{name} is referred in the dependents, but not defined."
        values[name] = ConfigValue(name, errors=[text], visible=False)
    dependents = {name for setting in definition for name in setting.dependents}
    parsed: dict[str, Any] = {}
    roots = [name for name in definition.settings if name not in dependents]
    for name in roots:
        _parse(definition, name, config, find_class, (parsed, values))
    for name in roots:
        _recommend(definition, name, parsed, values)
    return values


def _parse(
    definition: ConfigDef,
    name: str,
    config: Mapping[str, Any],
    find_class: FindClass | None,
    results: tuple[dict[str, Any], dict[str, ConfigValue]],
) -> None:
    setting = definition.settings.get(name)
    if setting is None:
        return
    parsed, values = results
    result, value = values[name], None
    if name in config:
        try:
            value = parse_kind(name, config[name], setting.kind, find_class)
        except SettingError as error:
            result.errors.append(error.message)
    elif setting.required:
        result.errors.append(setting.missing().message)
    else:
        value = setting.default
    if setting.rule is not None:
        try:
            setting.rule(name, value)
        except SettingError as error:
            result.errors.append(error.message)
    result.value = parsed[name] = value
    for dependent in setting.dependents:
        _parse(definition, dependent, config, find_class, results)


def _recommend(definition: ConfigDef, name: str, parsed: dict[str, Any], values: dict[str, ConfigValue]) -> None:
    setting = definition.settings.get(name)
    if setting is None:
        return
    if setting.recommender is not None:
        result = values[name]
        try:
            offered = setting.recommender.values(name, parsed)
            earlier = result.recommended
            result.recommended = [value for value in offered if value in earlier] if earlier else list(offered)
            result.visible = setting.recommender.visible(name, parsed)
        except SettingError as error:
            result.errors.append(error.message)
    for dependent in setting.dependents:
        _recommend(definition, dependent, parsed, values)
