"""Transformations of the topic: RegexRouter, TimestampRouter. And Filter, which drops records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.base.java_text.regex import compile_java, replacement
from penstock.base.java_text.simple_dates import SimpleDateFormat
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.config import ConfigDef, Importance, JavaRegex, Kind
from penstock.connect.data import DataError, UnexpectedDataError
from penstock.connect.transforms.transformation import PACKAGE, R, Transformation, setting

__all__ = ["Filter", "RegexRouter", "TimestampRouter"]


class Filter(Transformation):
    """Drops all records, filtering them from subsequent transformations in the chain.

    This is intended to be used conditionally to filter out records matching (or not matching) a particular predicate.
    """

    java_class: ClassVar[str] = f"{PACKAGE}.Filter"

    def apply(self, record: R) -> R | None:  # noqa: ARG002 - of the interface
        """Nothing."""
        return None


class RegexRouter(Transformation):
    """Update the record topic using the configured regular expression and replacement string, both of Java's syntax.

    Example:
        >>> from penstock.connect.data import SinkRecord
        >>> router = RegexRouter()
        >>> router.configure({"regex": "(.*)-raw", "replacement": "$1"})
        >>> router.apply(SinkRecord(topic="lines-raw")).topic
        'lines'
    """

    java_class: ClassVar[str] = f"{PACKAGE}.RegexRouter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "regex",
                Kind.STRING,
                "Regular expression to use for matching.",
                rule=JavaRegex(),
                importance=Importance.HIGH,
            ),
            setting("replacement", Kind.STRING, "Replacement string.", importance=Importance.HIGH),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._regex: re.Pattern[str] = compile_java(parsed["regex"])
        self._replacement: str | None = parsed["replacement"]

    def apply(self, record: R) -> R:
        """Return the record under another topic, if the expression matches the whole of its topic."""
        if record.topic is None or self._regex.fullmatch(record.topic) is None:
            return record
        match = self._regex.search(record.topic)
        if match is None or self._replacement is None:
            raise UnexpectedDataError(f"no replacement for the topic {record.topic}")
        try:
            new = replacement(self._replacement, match)
        except JavaTextError as error:
            raise UnexpectedDataError(str(error)) from error
        return record.with_(topic=record.topic[: match.start()] + new + record.topic[match.end() :])


class TimestampRouter(Transformation):
    """Update the record's topic field as a function of the original topic value and the record timestamp.

    This is mainly useful for sink connectors, since the topic field is often used to determine the equivalent entity
    name in the destination system (e.g. database table or search index name).
    """

    java_class: ClassVar[str] = f"{PACKAGE}.TimestampRouter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "topic.format",
                Kind.STRING,
                "Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> as placeholders "
                "for the topic and timestamp, respectively.",
                default="${topic}-${timestamp}",
                importance=Importance.HIGH,
            ),
            setting(
                "timestamp.format",
                Kind.STRING,
                "Format string for the timestamp that is compatible with <code>java.text.SimpleDateFormat</code>.",
                default="yyyyMMdd",
                importance=Importance.HIGH,
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the formats; a wrong one of the timestamp shows at the first record, as in Kafka."""
        parsed = self.config.parse(settings)
        self._topic: str | None = parsed["topic.format"]
        self._pattern: str | None = parsed["timestamp.format"]
        self._format: SimpleDateFormat | None = None

    def apply(self, record: R) -> R:
        """Return the record under another topic."""
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record}")
        if self._topic is None or self._pattern is None:
            raise UnexpectedDataError("the settings topic.format and timestamp.format must not be null")
        try:
            self._format = self._format or SimpleDateFormat(self._pattern)
        except JavaTextError as error:
            raise UnexpectedDataError(str(error)) from error
        text = self._format.format(record.timestamp)
        topic = self._topic.replace("${topic}", record.topic or "").replace("${timestamp}", text)
        return record.with_(topic=topic)
