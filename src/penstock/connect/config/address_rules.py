"""Rules for addresses, headers and lists of patterns, which Kafka's own connectors do not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.connect.data.errors import SettingError

__all__ = ["DatabaseUrl", "EachRegex", "NamedValues", "WebUrl", "named_values"]

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
