"""Definitions of settings, models of them as classes, and the validation of a config by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.config.prefixes import behind_prefix
from penstock.connect.config.config_def_types import (
    Check,
    FindClass,
    Importance,
    Kind,
    UniqueList,
    Validator,
    Width,
    parse_kind,
    setting_text,
)
from penstock.connect.data.errors import SettingError

__all__ = [
    "NO_DEFAULT",
    "NO_MODEL",
    "ConfigDef",
    "ConfigValue",
    "Model",
    "Recommender",
    "Refused",
    "Setting",
    "validate",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """A setting of the model that the plugin does not have.

    Attributes:
        advice: What to do instead, as sentences.
        unless: Values by which the model does what the plugin does anyway: these are taken.
    """

    advice: str
    unless: tuple[str, ...] = ()

    def allows(self, value: str | None) -> bool:
        """Return whether the plugin does what the value asks for."""
        return value is not None and value.strip().lower() in {each.lower() for each in self.unless}


@dataclass(frozen=True, slots=True)
class Model:
    """The software whose settings a plugin has under the same names.

    A setting of the model is in one of three places: in the plugin's own definition, where it does what it does there;
    here under ``refused``; or here under ``idle``. None is accepted and ignored. A name that ends with a dot stands for
    all names that begin with it.

    Attributes:
        software: The model in a sentence, such as ``Confluent's JDBC source``.
        refused: Settings that the plugin refuses, with what to do instead.
        idle: Settings that change nothing here, with the reason. The plugin says so when it starts.
        own: Beginnings of further names that the plugin itself reads, such as ``spark.option.``.

    Example:
        >>> codec = Refused("Use none.", unless=("none",))
        >>> model = Model("Acme's sink", {"codec": codec}, {"licence.": "none is needed."})
        >>> model.refusal("codec", "lzo")
        "codec is a setting of Acme's sink that this connector does not have. Use none."
        >>> model.refusal("codec", "none"), model.idleness("licence.key")
        (None, 'licence.key has no effect: none is needed.')
    """

    software: str = ""
    refused: Mapping[str, str | Refused] = field(default_factory=dict)
    idle: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()

    def refusal(self, name: str, value: str | None, what: str = "connector") -> str | None:
        """Return the sentence that refuses a setting; None if the model has no such setting, or it is not refused.

        Args:
            name: The setting.
            value: Its value, which no sentence shows: it may be a secret.
            what: What has the settings, such as ``converter``.
        """
        reason = _of(self.refused, name)
        if reason is None:
            return None
        refused = reason if isinstance(reason, Refused) else Refused(reason)
        if refused.allows(value):
            return None
        return f"{name} is a setting of {self.software} that this {what} does not have. {refused.advice}"

    def idleness(self, name: str) -> str | None:
        """Return the sentence about a setting that changes nothing; None if it is not one of them."""
        reason = _of(self.idle, name)
        return None if reason is None else f"{name} has no effect: {reason}"

    def has(self, name: str) -> bool:
        """Return whether the setting is one of the model's, or the plugin reads it besides its definition."""
        is_listed = _of(self.refused, name) is not None or _of(self.idle, name) is not None
        return is_listed or any(name.startswith(prefix) and name != prefix for prefix in self.own)


NO_MODEL = Model()


def _of(table: Mapping[str, T], name: str) -> T | None:
    """Return the entry of a name, or of a beginning of it that ends with a dot."""
    if name in table:
        return table[name]
    return next((value for key, value in table.items() if key.endswith(".") and name.startswith(key)), None)


class _NoDefault:
    """The default of a setting that has none."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Any = _NoDefault()


@dataclass(frozen=True, slots=True)
class Recommender:
    """The values to offer for a setting, and whether to show it, given what the other settings say.

    Attributes:
        values: Called with the name and all parsed settings.
        visible: Called with the same.
    """

    values: Callable[[str, Mapping[str, Any]], list[Any]]
    visible: Callable[[str, Mapping[str, Any]], bool] = lambda _name, _parsed: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Attributes:
        name: Its name.
        kind: Its type.
        default: Its default, parsed when it is defined; ``NO_DEFAULT``: it must be set.
        rule: The rule for its values.
        importance: Its importance.
        doc: Its documentation.
        group: The group that forms show it in.
        order: Its place in the group.
        width: The width of its field in a form.
        label: Its name in a form; by default its name.
        dependents: The settings whose values or visibility depend on it.
        recommender: The values to offer.
        internal: Left out of documentation.
    """

    name: str
    kind: Kind
    default: Any = NO_DEFAULT
    rule: Validator | None = None
    importance: Importance = Importance.MEDIUM
    doc: str = ""
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    label: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    internal: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)
        if self.default is not NO_DEFAULT:
            object.__setattr__(self, "default", parse_kind(self.name, self.default, self.kind))
            if self.rule is not None:
                self.rule(self.name, self.default)

    @property
    def required(self) -> bool:
        """Whether it must be set."""
        return self.default is NO_DEFAULT

    def missing(self) -> SettingError:
        """Return the error that it is not set."""
        return SettingError(f'Missing required configuration "{self.name}" which has no default value.')

    def read(self, value: Any, find_class: FindClass | None = None) -> Any:
        """Return the parsed value, before the rule has seen it; elements that come twice in a list go."""
        parsed = parse_kind(self.name, value, self.kind, find_class)
        if isinstance(self.rule, UniqueList) and isinstance(parsed, list):
            return list(dict.fromkeys(parsed))
        return parsed

    def described(self) -> dict[str, Any]:
        """Return the definition as the REST interface answers it."""
        return {
            "name": self.name,
            "type": self.kind.name,
            "required": self.required,
            "default_value": None if self.required else setting_text(self.default, self.kind),
            "importance": self.importance.name,
            "documentation": self.doc,
            "group": self.group,
            "order_in_group": self.order,
            "width": self.width.name,
            "display_name": self.label,
            "dependents": list(self.dependents),
        }


@dataclass(slots=True)
class ConfigDef:
    """The settings of a plugin, in the order of their definition.

    Example:
        >>> rate, topic = Setting(name="rate", kind=Kind.INT, default="10"), Setting(name="topic", kind=Kind.STRING)
        >>> limits = ConfigDef([rate, topic])
        >>> limits.parse({"topic": "lines"})
        {'rate': 10, 'topic': 'lines'}
        >>> limits.parse({})
        Traceback (most recent call last):
        ...
        penstock.connect.data.errors.SettingError: Missing required configuration "topic" which has no default value.
    """

    settings: dict[str, Setting] = field(default_factory=dict)

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        self.settings = {}
        for setting in settings:
            self.define(setting)

    def define(self, setting: Setting) -> ConfigDef:
        """Add a setting.

        Raises:
            SettingError: There is one of its name.
        """
        if setting.name in self.settings:
            raise SettingError(f"Configuration {setting.name} is defined twice.")
        self.settings[setting.name] = setting
        return self

    def copy(self) -> ConfigDef:
        """Return the same settings in a definition of their own."""
        return ConfigDef(self.settings.values())

    @property
    def groups(self) -> list[str]:
        """The groups in the order in which they come up."""
        return list(dict.fromkeys(s.group for s in self.settings.values() if s.group is not None))

    def parse(self, config: Mapping[str, Any], find_class: FindClass | None = None) -> dict[str, Any]:
        """Return the values of all settings: those that are given, else the defaults.

        Names that are not defined are left out.

        Raises:
            SettingError: A value is wrong, or one without default is missing.
        """
        undefined = sorted(self.undefined_dependents())
        if undefined:
            text = ",".join(undefined)
            raise SettingError(f"Some configurations in are referred in the dependents, but not defined: {text}")
        parsed: dict[str, Any] = {}
        for setting in self.settings.values():
            if setting.name in config:
                parsed[setting.name] = setting.read(config[setting.name], find_class)
            elif setting.required:
                raise setting.missing()
            else:
                parsed[setting.name] = setting.default
            if setting.rule is not None:
                setting.rule(setting.name, parsed[setting.name])
        return parsed

    def undefined_dependents(self) -> set[str]:
        """Return names that settings give as their dependents, and that are not defined."""
        return {name for s in self.settings.values() for name in s.dependents if name not in self.settings}

    def sorted(self) -> list[Setting]:
        """Return the settings as documentation lists them: by group, place, required first, importance, name."""
        ranks = {group: rank for rank, group in enumerate(self.groups)}
        importance = list(Importance)

        def rank(s: Setting) -> tuple[Any, ...]:
            group = -1 if s.group is None else ranks[s.group]
            return group, s.order, not s.required, importance.index(s.importance), s.name

        return sorted(self.settings.values(), key=rank)

    def embed(self, prefix: str, group: str, first: int, child: ConfigDef) -> None:
        """Add the settings of another definition under a prefix, in a group of their own.

        Args:
            prefix: What stands before their names, such as ``transforms.route.``.
            group: The group, such as ``Transforms: route``.
            first: The place of the first of them.
            child: The definition.
        """
        for order, setting in enumerate(child.sorted(), first):
            self.define(
                replace(
                    setting,
                    name=prefix + setting.name,
                    rule=_embedded_rule(prefix, setting.rule),
                    group=f"{group}: {setting.group}" if setting.group else group,
                    order=order,
                    dependents=tuple(prefix + name for name in setting.dependents),
                    recommender=_embedded_recommender(prefix, setting.recommender),
                )
            )

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings.values())


def _embedded_rule(prefix: str, rule: Validator | None) -> Validator | None:
    if rule is None:
        return None
    return Check(lambda name, value: rule(name.removeprefix(prefix), value), str(rule))


def _embedded_recommender(prefix: str, base: Recommender | None) -> Recommender | None:
    if base is None:
        return None

    def own(parsed: Mapping[str, Any]) -> dict[str, Any]:
        return behind_prefix(parsed, prefix)

    return Recommender(
        lambda name, parsed: base.values(name.removeprefix(prefix), own(parsed)),
        lambda name, parsed: base.visible(name.removeprefix(prefix), own(parsed)),
    )


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
