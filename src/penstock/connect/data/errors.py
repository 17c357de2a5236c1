"""The errors of connectors and settings, under Kafka's class names."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import ConfigError, ConnectError

__all__ = ["RetriableError", "SettingError", "UnexpectedDataError", "java_name"]


class RetriableError(ConnectError):
    """A failure that may pass: the worker tries again. Kafka's ``RetriableException``."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.errors.RetriableException"


class UnexpectedDataError(ConnectError):
    """A value where Java's own code fails (``NullPointerException``, ``ClassCastException`` and the like)."""

    java_class: ClassVar[str] = "java.lang.RuntimeException"


class SettingError(ConfigError):
    """A setting of a connector, converter or transformation is wrong. Kafka's ``ConfigException``."""

    java_class: ClassVar[str] = "org.apache.kafka.common.config.ConfigException"

    @classmethod
    def invalid(cls, name: str, value: object, reason: str) -> SettingError:
        """Return the error of a value, in Kafka's words.

        >>> print(SettingError.invalid("tasks.max", "x", "Not a number of type INT"))
        Invalid value x for configuration tasks.max: Not a number of type INT
        """
        return cls(f"Invalid value {_shown(value)} for configuration {name}: {reason}")


def java_name(error: BaseException) -> str:
    """Return Kafka's class of an error, as stack traces and dead letters name it; Python's if there is none."""
    return str(getattr(type(error), "java_class", f"{type(error).__module__}.{type(error).__qualname__}"))


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(part) for part in value)}]"
    return str(value)
