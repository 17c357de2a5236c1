"""The types of settings, and which values they take, with Kafka's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol
from urllib.parse import urlsplit

from penstock.base.java_text.numbers import double_text, parse_double, parse_integer
from penstock.base.java_text.regex import compile_java, java_complaint
from penstock.base.java_text.texts import JavaTextError, trim
from penstock.connect.data.errors import SettingError

__all__ = [
    "AllOf",
    "AnyCase",
    "Check",
    "CleanText",
    "DatabaseUrl",
    "EachRegex",
    "FindClass",
    "Importance",
    "JavaRegex",
    "Kind",
    "NamedValues",
    "NonEmptyList",
    "NonEmptyText",
    "NonNull",
    "OneOf",
    "Password",
    "Range",
    "UniqueList",
    "Validator",
    "WebUrl",
    "Width",
    "class_name",
    "java_class",
    "named_values",
    "no_alias_twice",
    "parse_kind",
    "setting_text",
]

# Kinds

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


# Which values a setting takes


class Validator(Protocol):
    """A rule: called with the name and the parsed value of a setting, it raises SettingError if it refuses."""

    def __call__(self, name: str, value: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number within bounds.

    >>> str(Range(1)), str(Range(0, 1.5))
    ('[1,...]', '[0,...,1.5]')
    """

    least: float | None = None
    most: float | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise SettingError.invalid(name, None, "Value must be non-null")
        if self.least is not None and not value >= self.least:  # nor NaN
            raise SettingError.invalid(name, value, f"Value must be at least {self.least}")
        if self.most is not None and value > self.most:
            raise SettingError.invalid(name, value, f"Value must be no more than {self.most}")

    def __str__(self) -> str:
        least = "" if self.least is None else f"{self.least},"
        most = "" if self.most is None else f",{self.most}"
        return f"[{least}...{most}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts."""

    texts: tuple[str | None, ...]

    def __call__(self, name: str, value: Any) -> None:
        if value not in self.texts:
            raise SettingError.invalid(name, value, f"String must be one of: {self._shown()}")

    def __str__(self) -> str:
        return f"[{self._shown()}]"

    def _shown(self) -> str:
        return ", ".join("null" if text is None else text for text in self.texts)


@dataclass(frozen=True, slots=True)
class AnyCase:
    """One of these texts, in upper or lower case. The order is that of Java's messages."""

    texts: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        if value is None or value.upper() not in self.texts:
            raise SettingError.invalid(
                name, value, f"String must be one of (case insensitive): {', '.join(self.texts)}"
            )

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.texts)}]"


@dataclass(frozen=True, slots=True)
class NonNull:
    """The condition that a value is not null."""

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise SettingError.invalid(name, "null", "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


@dataclass(frozen=True, slots=True)
class NonEmptyText:
    """A text that is not empty, or null."""

    def __call__(self, name: str, value: Any) -> None:
        if value == "":
            raise SettingError.invalid(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


@dataclass(frozen=True, slots=True)
class CleanText:
    """A text that is not empty and has no control characters, or null."""

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            return
        if value == "":
            raise SettingError.invalid(name, value, "String may not be empty")
        controls = [str(ord(character)) for character in re.findall(r"[\x00-\x1f\x7f-\x9f]", value)]
        if controls:
            reason = (
                f"String may not contain control sequences but had the following ASCII chars: {', '.join(controls)}"
            )
            raise SettingError.invalid(name, value, reason)

    def __str__(self) -> str:
        return "non-empty string without ISO control characters"


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """A regular expression of Java's."""

    def __call__(self, name: str, value: Any) -> None:
        try:
            compile_java(value)
        except JavaTextError as error:
            reason = java_complaint(str(value), error)
            raise SettingError.invalid(name, value, f"Invalid regex: {reason}") from error
        except TypeError as error:
            raise SettingError.invalid(name, value, "Invalid regex: null") from error

    def __str__(self) -> str:
        return "valid regex"


@dataclass(frozen=True, slots=True)
class NonEmptyList:
    """A list with elements."""

    def __call__(self, name: str, value: Any) -> None:
        if not value:
            raise SettingError.invalid(name, value, "Empty list")

    def __str__(self) -> str:
        return "non-empty list"


@dataclass(frozen=True, slots=True)
class UniqueList:
    """A list without empty elements; elements that come twice are dropped before. Kafka's ``ValidList``."""

    allow_empty: bool = False
    allow_null: bool = False
    texts: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            if self.allow_null:
                return
            raise SettingError(f"Configuration '{name}' values must not be null.")
        if not value and not self.allow_empty:
            valid_values = str(OneOf(self.texts)) if self.texts else "any non-empty value"
            raise SettingError(f"Configuration '{name}' must not be empty. Valid values include: {valid_values}")
        if len(set(value)) != len(value):
            raise SettingError(f"Configuration '{name}' values must not be duplicated.")
        for part in value:
            if part == "":
                raise SettingError(f"Configuration '{name}' values must not be empty.")
            if self.texts:
                OneOf(self.texts)(name, part)

    def __str__(self) -> str:
        return str(OneOf(self.texts)) if self.texts else "any non-duplicate values"


def no_alias_twice(name: str, value: list[str]) -> None:
    """Refuse a list of aliases that has one twice.

    Raises:
        SettingError: It has.
    """
    if len(set(value)) != len(value):
        raise SettingError.invalid(name, value, "Duplicate alias provided.")


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that a function checks."""

    function: Callable[[str, Any], None]
    text: str

    def __call__(self, name: str, value: Any) -> None:
        self.function(name, value)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of these rules, in order."""

    rules: tuple[Validator, ...]

    def __call__(self, name: str, value: Any) -> None:
        for rule in self.rules:
            rule(name, value)

    def __str__(self) -> str:
        return ", ".join(map(str, self.rules))


# Addresses and named values

_DATABASE = re.compile(r"(jdbc:)?(sqlite:|[a-z][\w+]*://).*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class WebUrl:
    """An HTTP URL, or a list of them.

    >>> WebUrl()("url", "localhost:9200")
    Traceback (most recent call last):
    ...
    penstock.connect.data.errors.SettingError: Invalid value localhost:9200 for configuration url: not an HTTP URL
    """

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            return  # it is missing, which is said anyhow
        for text in (value or [""]) if isinstance(value, list) else [value]:
            if not _is_web_url(str(text)):
                raise SettingError.invalid(name, text, "not an HTTP URL")

    def __str__(self) -> str:
        return "HTTP URL"


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A URL of a database as SQLAlchemy or JDBC has it."""

    def __call__(self, name: str, value: Any) -> None:
        if value is not None and not _DATABASE.fullmatch(str(value)):
            reason = "not a URL of a database, such as postgresql+psycopg://host/db or sqlite:///file.db"
            raise SettingError.invalid(name, _shown_url(str(value)), reason)

    def __str__(self) -> str:
        return "URL of a database"


@dataclass(frozen=True, slots=True)
class NamedValues:
    """A list of ``name:value``."""

    def __call__(self, name: str, value: Any) -> None:
        for number, text in enumerate(value or (), 1):
            if not re.fullmatch(r"[^\s:]+\s*:.*", str(text), re.DOTALL):  # not shown: values may be secrets
                raise SettingError(
                    f"Invalid value for configuration {name}: element {number} is not written as name:value"
                )

    def __str__(self) -> str:
        return "list of name:value"


def named_values(texts: Iterable[str]) -> dict[str, str]:
    """Return the values of a setting with the rule `NamedValues` by their names.

    >>> named_values(["endpoint:http://localhost:9000"])
    {'endpoint': 'http://localhost:9000'}
    """
    pairs = (str(text).partition(":") for text in texts)
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class EachRegex:
    """A list of Python's regular expressions."""

    def __call__(self, name: str, value: Any) -> None:
        for text in value or ():
            try:
                re.compile(text)
            except re.error as error:
                raise SettingError.invalid(name, text, f"Invalid regex: {error}") from error

    def __str__(self) -> str:
        return "list of regular expressions"


def _is_web_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _shown_url(text: str) -> str:
    """Return the text without what may be a password."""
    return re.sub(r"[^/@]*@", "****@", text)[:100]
