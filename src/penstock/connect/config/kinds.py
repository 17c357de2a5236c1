"""Types of settings: reading their text, and writing it again."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.base.java_text.blanks import trim
from penstock.base.java_text.numbers import double_text, parse_double, parse_integer
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.data.errors import SettingError

__all__ = [
    "FindClass",
    "Importance",
    "Kind",
    "Password",
    "Width",
    "class_name",
    "java_class",
    "parse_kind",
    "setting_text",
]

FindClass = Callable[[str], Any]
_JAVA = re.compile(r"(java\.(io|lang|math|net|nio|text|time|util)|org\.apache\.kafka)\.([a-z]\w*\.)*[A-Z][\w$]*")
COMMA = re.compile(r"\s*,\s*", re.ASCII)


class Kind(Enum):
    """The types of settings; Kafka's ``ConfigDef.Type``."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type


class Importance(Enum):
    """The importance of a setting."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    """The width of a setting's field in a form."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Password(str):
    """A secret: its text in logs and answers is ``[hidden]``, ``secret`` has it."""

    __slots__ = ()

    @property
    def secret(self) -> str:
        """The secret itself."""
        return str.__str__(self)

    def __str__(self) -> str:
        return "[hidden]"

    def __repr__(self) -> str:
        return "[hidden]"


BITS = {Kind.INT: 32, Kind.SHORT: 16, Kind.LONG: 64}
WORDS = {Kind.INT: "a 32-bit integer", Kind.SHORT: "a 16-bit integer (short)", Kind.LONG: "a 64-bit integer (long)"}


def parse_kind(name: str, value: Any, kind: Kind, find_class: FindClass | None = None) -> Any:
    """Read the value of a setting. Kafka's ``ConfigDef.parseType``.

    Args:
        name: The setting, for the message.
        value: Its text, or a value that has its type already; None stays None.
        kind: Its type.
        find_class: Finds a class by its name, raising LookupError; without it, a class's name stays a text.

    Raises:
        SettingError: The value is not of the type.

    Example:
        >>> parse_kind("topics", "a , b", Kind.LIST), parse_kind("tasks.max", " 4 ", Kind.INT)
        (['a', 'b'], 4)
    """
    if value is None:
        return None
    text = trim(value) if isinstance(value, str) else None
    try:
        match kind:
            case Kind.BOOLEAN:
                return _boolean(name, value, text)
            case Kind.STRING | Kind.PASSWORD:
                return _text(name, value, text, kind)
            case Kind.INT | Kind.SHORT | Kind.LONG:
                return _integer(name, value, text, kind)
            case Kind.DOUBLE:
                if isinstance(value, int | float) and not isinstance(value, bool):
                    return float(value)
                if text is None:
                    raise SettingError.invalid(name, value, f"Expected value to be a double, but it was {_a(value)}")
                return parse_double(text)
            case Kind.LIST:
                if isinstance(value, list | tuple):
                    return list(value)
                if text is None:
                    raise SettingError.invalid(name, value, "Expected a comma separated list.")
                return COMMA.split(text) if text else []
        if text is None:
            return value
        return find_class(text) if find_class is not None else text
    except JavaTextError as error:
        raise SettingError.invalid(name, value, f"Not a number of type {kind.name}") from error
    except LookupError as error:
        raise SettingError.invalid(name, value, f"Class {value} could not be found.") from error


def _boolean(name: str, value: Any, text: str | None) -> bool:
    if isinstance(value, bool):
        return value
    if text is not None and text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise SettingError.invalid(name, value, "Expected value to be either true or false")


def _text(name: str, value: Any, text: str | None, kind: Kind) -> str:
    if isinstance(value, Password):
        return value
    if text is None:
        raise SettingError.invalid(name, value, f"Expected value to be a string, but it was {_a(value)}")
    return Password(text) if kind is Kind.PASSWORD else text


def _integer(name: str, value: Any, text: str | None, kind: Kind) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if text is None:
        raise SettingError.invalid(name, value, f"Expected value to be {WORDS[kind]}, but it was {_a(value)}")
    return parse_integer(text, BITS[kind])


def _a(value: object) -> str:
    return f"a {type(value).__name__}"


def setting_text(value: Any, kind: Kind | None = None) -> str | None:
    """Return the text of a parsed value, as answers of the REST interface have it; None stays None.

    >>> setting_text(["a", "b"]), setting_text(True), setting_text(0.5), setting_text(Password("x"))
    ('a,b', 'true', '0.5', '[hidden]')
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, float):
        return double_text(value)
    return class_name(value) if kind is Kind.CLASS else str(value)


def class_name(value: Any) -> str:
    """Return the name of a class: Java's, if it stands in for a class of Java."""
    if isinstance(value, str):
        return value
    return str(getattr(value, "java_class", None) or f"{value.__module__}.{value.__qualname__}")


def java_class(name: str) -> str:
    """Return the name of a class that Java or Kafka itself has, as far as its package tells.

    Raises:
        LookupError: It is another one: no class of other Java libraries can be loaded here.

    >>> java_class("org.apache.kafka.common.serialization.StringSerializer")
    'org.apache.kafka.common.serialization.StringSerializer'
    """
    if not _JAVA.fullmatch(name):
        raise LookupError(name)
    return name
