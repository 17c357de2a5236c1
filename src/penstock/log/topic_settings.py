"""Topic settings, by Kafka's names, with their checks and defaults, and how long a compacted topic keeps deletions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from penstock.base.nearest_name import did_you_mean
from penstock.errors import ConfigError
from penstock.log.base import TopicLog, TopicPartition

__all__ = ["DEFAULTS", "check_settings", "check_topic_name", "may_miss_deletions", "setting"]

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_NAME = 249


def check_topic_name(name: str) -> None:
    """Raise ConfigError unless Kafka would accept the name."""
    hint = f"1 to {_MAX_NAME} of the characters a-z A-Z 0-9 . _ -, and not '.' or '..'"
    if not name or name in {".", ".."} or len(name) > _MAX_NAME or not _LEGAL_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a legal topic name", hint=hint)


def _whole(least: int) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        try:
            return None if int(text) >= least else f"a whole number from {least}"
        except ValueError:
            return f"a whole number from {least}"

    return check


def _ratio(text: str) -> str | None:
    try:
        return None if 0 <= float(text) <= 1 else "a number from 0 to 1"
    except ValueError:
        return "a number from 0 to 1"


def _one_of(*choices: str) -> Callable[[str], str | None]:
    return lambda text: None if text in choices else f"one of {', '.join(choices)}"


def _policy(text: str) -> str | None:
    parts = [part.strip() for part in text.split(",")]
    good = bool(parts) and set(parts) <= {"delete", "compact"}
    return None if good else "delete, compact, or compact,delete"


_SETTINGS: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "cleanup.policy": ("delete", _policy),
    "retention.ms": ("604800000", _whole(-1)),
    "retention.bytes": ("-1", _whole(-1)),
    "delete.retention.ms": ("86400000", _whole(0)),
    "min.compaction.lag.ms": ("0", _whole(0)),
    "max.compaction.lag.ms": ("9223372036854775807", _whole(1)),
    "min.cleanable.dirty.ratio": ("0.5", _ratio),
    "message.timestamp.type": ("CreateTime", _one_of("CreateTime", "LogAppendTime")),
    "max.message.bytes": ("1048588", _whole(0)),
    "compression.type": (
        "producer", _one_of("producer", "uncompressed", "lz4", "gzip", "snappy", "zstd"),
    ),
    # Accepted so that topics can be copied from Kafka with their settings; the embedded log has no segment files.
    "segment.ms": ("604800000", _whole(1)),
    "segment.bytes": ("1073741824", _whole(14)),
}  # fmt: skip
DEFAULTS: dict[str, str] = {name: default for name, (default, _) in _SETTINGS.items()}


def check_settings(topic: str, settings: Mapping[str, object]) -> dict[str, str]:
    """Check the settings of a topic and return them as text.

    Raises:
        ConfigError: For an unknown name (with the nearest known one) or an impossible value.
    """
    checked: dict[str, str] = {}
    for name, value in settings.items():
        if name not in _SETTINGS:
            hint = did_you_mean(name, _SETTINGS) or f"settings are {', '.join(_SETTINGS)}"
            raise ConfigError(f"topic {topic!r}: unknown setting {name!r}", hint=hint)
        text = str(value)
        expected = _SETTINGS[name][1](text)
        if expected:
            raise ConfigError(f"topic {topic!r}: {name}={text!r}", hint=f"give {expected}")
        checked[name] = text
    return checked


def setting(config: Mapping[str, str], name: str) -> str:
    """Return the topic's own value of a setting, or the default."""
    return config.get(name, DEFAULTS[name])


def may_miss_deletions(
    log: TopicLog, tp: TopicPartition, config: Mapping[str, str], start: int, end: int, away_ms: int | None
) -> bool:
    """Return whether deletions among new records may be gone, so that rows that stand for those before would stay.

    They may have been deletions alone, all of which are gone. One offset at the end is the mark of a transaction.

    Args:
        log: The log.
        tp: The partition, of a topic that is compacted.
        config: The settings of the topic.
        start: The offset up to which the rows stand for it.
        end: The present end, which is behind that.
        away_ms: The milliseconds since then; None: it is not known.
    """
    if away_ms is not None and away_ms < int(setting(config, "delete.retention.ms")):
        return False
    if end - start > 1 or log.beginning_offset(tp.topic, tp.partition) > start:
        return True
    return any(each.num_rows for each in log.iterate(tp.topic, tp.partition, start, end))
