"""The settings that the software behind a plugin's name has and the plugin does not: refused, or without effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

__all__ = ["NO_MODEL", "Model", "Refused"]

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
