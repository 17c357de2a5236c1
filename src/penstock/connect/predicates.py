"""Predicates: which records a transformation is applied to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.base.java_text.regex import compile_java
from penstock.connect.config import AllOf, ConfigDef, Importance, JavaRegex, Kind, NonEmptyText, Setting
from penstock.connect.data import ConnectRecord

__all__ = ["PREDICATES", "HasHeaderKey", "Predicate", "RecordIsTombstone", "TopicNameMatches"]

PACKAGE = "org.apache.kafka.connect.transforms.predicates"


class Predicate:
    """A condition on records.

    Attributes:
        java_class: Kafka's class name.
        config: The definition of its settings.
    """

    java_class: ClassVar[str]
    config: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings.

        Raises:
            SettingError: One is wrong.
        """

    def test(self, record: ConnectRecord) -> bool:
        """Return whether a record meets the condition."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up what it holds."""


class HasHeaderKey(Predicate):
    """The record has a header of this name."""

    java_class: ClassVar[str] = f"{PACKAGE}.HasHeaderKey"
    config: ClassVar[ConfigDef] = ConfigDef(
        [Setting(name="name", kind=Kind.STRING, rule=NonEmptyText(), doc="The header name.")]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the name."""
        self._name = self.config.parse(settings)["name"]

    def test(self, record: ConnectRecord) -> bool:
        """Return whether there is such a header."""
        return bool(record.headers.all(self._name))


class RecordIsTombstone(Predicate):
    """The record has no value."""

    java_class: ClassVar[str] = f"{PACKAGE}.RecordIsTombstone"

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the value is null."""
        return record.value is None


class TopicNameMatches(Predicate):
    """The record's topic matches a regular expression of Java's, all of it."""

    java_class: ClassVar[str] = f"{PACKAGE}.TopicNameMatches"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            Setting(
                name="pattern",
                kind=Kind.STRING,
                rule=AllOf((NonEmptyText(), JavaRegex())),
                importance=Importance.MEDIUM,
                doc="A Java regular expression for matching against the name of a record's topic.",
            )
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the expression."""
        self._pattern: re.Pattern[str] = compile_java(self.config.parse(settings)["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the topic matches."""
        return record.topic is not None and self._pattern.fullmatch(record.topic) is not None


PREDICATES: tuple[type[Predicate], ...] = (HasHeaderKey, RecordIsTombstone, TopicNameMatches)
