"""Rules for the values of settings, with Kafka's messages. ``str()`` of a rule describes the values that it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.java_text.regex import compile_java, java_complaint
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.data.errors import SettingError

__all__ = [
    "AllOf",
    "AnyCase",
    "Check",
    "CleanText",
    "JavaRegex",
    "NonEmptyList",
    "NonEmptyText",
    "NonNull",
    "OneOf",
    "Range",
    "UniqueList",
    "Validator",
    "no_alias_twice",
]


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
    """Anything but null."""

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
