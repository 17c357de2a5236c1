"""The types of settings: the parsing and checking of values, and the name of the type in the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from penstock.base.durations import duration_ms, timestamp_ms
from penstock.errors import ConfigError

__all__ = [
    "ANY",
    "BOOLEAN",
    "DURATION",
    "EXTRACTOR",
    "HANDLER",
    "IDLE_TIME",
    "LIST",
    "OBJECT",
    "OFFSET_RESET",
    "PROCESSING_MODE",
    "SIZE",
    "STORE_SUPPLIERS",
    "STRING",
    "TIMESTAMP",
    "SettingKind",
    "back_ms",
    "choice",
    "integer",
    "offset_reset",
]

_PLAIN = ("earliest", "latest", "none")
_BY_DURATION = "by_duration:"


def offset_reset(value: Any) -> str:
    """Return a policy in its normal form.

    Example:
        >>> offset_reset("LATEST"), offset_reset("by_duration:PT1H"), offset_reset("by_duration: 1 hour")
        ('latest', 'by_duration:3600000', 'by_duration:3600000')

    Raises:
        ValueError: There is no such policy.
    """
    text = str(getattr(value, "value", value)).strip()
    if text.lower() in _PLAIN:
        return text.lower()
    if text.lower().startswith(_BY_DURATION):
        try:
            length = duration_ms(text[len(_BY_DURATION) :].strip())
        except ConfigError:
            length = -1
        if length >= 0:
            return f"{_BY_DURATION}{length}"
    raise ValueError('"earliest", "latest", "none" or "by_duration:PT1H"')


def back_ms(policy: str) -> int | None:
    """Return the duration of ``by_duration`` in milliseconds; None for the other policies.

    Example:
        >>> back_ms("by_duration:60000"), back_ms("latest")
        (60000, None)
    """
    return int(policy.removeprefix(_BY_DURATION)) if policy.startswith(_BY_DURATION) else None


@dataclass(frozen=True, slots=True)
class SettingKind:
    """A type of settings. ``read`` parses a value, or raises ValueError with a description of valid values."""

    name: str
    read: Callable[[Any], Any]


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise ValueError("true or false")


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "__fspath__"):
        return str(value.__fspath__())
    raise ValueError("text")


def _list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise ValueError("a list of texts, or a text with commas")


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value.strip().replace("_", ""))
        except ValueError:
            pass
    raise ValueError("a whole number")


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def _size(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip().lower().replace("ib", "b").replace("_", "")
        digits = text.rstrip("bkmg ")
        unit = text[len(digits) :].strip()
        if digits.isdigit() and unit in _UNITS:
            return int(digits) * _UNITS[unit]
        raise ValueError('a number of bytes, or a text such as "10 MB"')
    size = _whole(value)
    if size < 0:
        raise ValueError("a number of bytes, 0 or more")
    return size


def _duration(value: Any) -> int:
    try:
        milliseconds = duration_ms(value)
    except ConfigError as error:
        raise ValueError('a duration: milliseconds, "1 minute", "PT1M" or a timedelta') from error
    if milliseconds < 0:
        raise ValueError("a duration of 0 or more")
    return milliseconds


def _idle_time(value: Any) -> int:
    return -1 if str(value).strip() == "-1" else _duration(value)


def _timestamp(value: Any) -> int:
    try:
        return timestamp_ms(value)
    except ConfigError as error:
        raise ValueError('a point in time: milliseconds since 1970, "2024-05-01T12:00:00Z" or a datetime') from error


def _handler(value: Any) -> Any:
    if callable(value) or hasattr(value, "handle_error"):
        return value
    if isinstance(value, str):
        text = value.rpartition(".")[2].rpartition("$")[2].lower().replace("-", "").replace("_", "")
        if text in {"continue", "resume", "skip"} or text.startswith("logandcontinue"):
            return "continue"
        if text in {"fail", "default"} or text.startswith(("logandfail", "defaultproduction")):
            return "fail"
    raise ValueError(
        '"log-and-fail", "log-and-continue", Kafka\'s class names of these, or a function (context, error)'
    )


def _extractor(value: Any) -> Any:
    if callable(value):
        return value
    name = value.rpartition(".")[2] if isinstance(value, str) else ""
    if name in EXTRACTORS:
        return name
    raise ValueError(f"a function (record, partition time), or one of {', '.join(EXTRACTORS)}")


def _wrapper(value: Any) -> Any:
    if isinstance(value, str) and value.rpartition(".")[2] == "NoOpProcessorWrapper":  # Kafka's default
        return None
    if not hasattr(value, "wrap_processor_supplier"):
        raise ValueError("a class derived from penstock.ProcessorWrapper, or an object of one")
    return value


def _object(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        raise ValueError("a name, a class or an object")  # noqa: TRY004 - all readers raise the same
    return value


# Kafka's classes, with or without their package.
EXTRACTORS = (
    "FailOnInvalidTimestamp",
    "LogAndSkipOnInvalidTimestamp",
    "UsePartitionTimeOnInvalidTimestamp",
    "WallclockTimestampExtractor",
)
EXTRACTOR = SettingKind("function or name", _extractor)
STRING = SettingKind("text", _string)
BOOLEAN = SettingKind("boolean", _boolean)
LIST = SettingKind("list", _list)
SIZE = SettingKind("bytes", _size)
DURATION = SettingKind("milliseconds", _duration)
IDLE_TIME = SettingKind("milliseconds, or -1", _idle_time)
TIMESTAMP = SettingKind("time", _timestamp)
OFFSET_RESET = SettingKind("earliest, latest, none or by_duration:PT1H", offset_reset)
HANDLER = SettingKind("handler", _handler)
OBJECT = SettingKind("name or object", _object)
WRAPPER = SettingKind("class or object", _wrapper)
ANY = SettingKind("anything", lambda value: value)


def integer(low: int | None = None, high: int | None = None) -> SettingKind:
    """Return the type of whole numbers between two bounds, inclusive."""

    def read(value: Any) -> int:
        number = _whole(value)
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError(f"a whole number {_bounds(low, high)}")
        return number

    return SettingKind("number", read)


def _bounds(low: int | None, high: int | None) -> str:
    if high is None:
        return f"of {low} or more"
    return f"of {high} or less" if low is None else f"from {low} to {high}"


def _mode(value: Any) -> str:
    if str(value).strip().lower() == "realtime":
        raise ValueError("micro_batch or continuous, which has taken the place of realtime and runs every topology")
    mode: str = _MODES.read(value)
    return mode


_NO_SYNONYMS: Mapping[str, str] = MappingProxyType({})


def choice(*options: str, several: bool = False, synonyms: Mapping[str, str] = _NO_SYNONYMS) -> SettingKind:
    """Return the type of one of these texts in any case, or with ``several`` of some of them with commas between.

    Args:
        options: The texts.
        several: Whether more than one may be given.
        synonyms: Other text in lower case -> the option that it means.
    """
    by_lower_case = {option.lower(): option for option in options} | dict(synonyms)

    def read(value: Any) -> str:
        text = str(getattr(value, "value", value)).strip()
        parts = [part.strip() for part in text.split(",")] if several else [text]
        if not isinstance(value, str) or any(part.lower() not in by_lower_case for part in parts):
            raise ValueError("one of " + ", ".join(options))
        return ",".join(by_lower_case[part.lower()] for part in parts)

    return SettingKind("one of " + ", ".join(options), read)


def _store_suppliers(value: Any) -> str:
    """Return ``in_memory`` or ``rocksdb`` for the name of one of Kafka's built-in classes."""
    name = str(value).strip().rpartition(".")[2].rpartition("$")[2].removesuffix("DslStoreSuppliers").lower()
    if not isinstance(value, str) or name not in {"inmemory", "rocksdb"}:
        raise ValueError(
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers, or "
            "$RocksDBDslStoreSuppliers"
        )
    return "in_memory" if name == "inmemory" else "rocksdb"


STORE_SUPPLIERS = SettingKind("class of Kafka's `BuiltInDslStoreSuppliers`", _store_suppliers)
_MODES = choice("micro_batch", "continuous")
PROCESSING_MODE = SettingKind(_MODES.name, _mode)
