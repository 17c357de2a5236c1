"""Chains of transformations, each for all records or for those that a predicate chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.config.prefixes import behind_prefix
from penstock.connect.config import ConfigDef
from penstock.connect.data import ConnectRecord, java_name
from penstock.connect.plugins.enriching import PREDICATES_SETTING, TRANSFORMS_SETTING, enriched
from penstock.connect.plugins.registry import Plugins, standard_plugins
from penstock.connect.predicates import Predicate
from penstock.connect.transforms import Transformation
from penstock.errors import ConnectError, PenstockError

__all__ = ["Stage", "TransformationChain", "transformation_chain"]

R = TypeVar("R", bound=ConnectRecord)


@dataclass(frozen=True, slots=True)
class Stage:
    """A transformation, and the records that it is for.

    Attributes:
        transformation: The transformation.
        predicate: Chooses its records; None: all.
        negated: It is for the records that the predicate does not choose.
    """

    transformation: Transformation
    predicate: Predicate | None = None
    negated: bool = False

    def apply(self, record: R) -> R | None:
        """Return the record as it goes on; None drops it."""
        if self.predicate is None or self.predicate.test(record) != self.negated:
            return self.transformation.apply(record)
        return record


@dataclass(frozen=True, slots=True)
class TransformationChain:
    """Transformations one after another.

    Example:
        >>> from penstock.connect.data import SinkRecord
        >>> chain = transformation_chain(
        ...     {
        ...         "transforms": "wrap,source",
        ...         "transforms.wrap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        ...         "transforms.wrap.field": "line",
        ...         "transforms.source.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        ...         "transforms.source.topic.field": "topic",
        ...     }
        ... )
        >>> chain.apply(SinkRecord(topic="lines", value="GET /")).value
        {'line': 'GET /', 'topic': 'lines'}
    """

    stages: tuple[Stage, ...] = ()

    def apply(self, record: R) -> R | None:
        """Return the record as it comes out; None: one of them dropped it."""
        current: R | None = record
        for stage in self.stages:
            if current is None:
                return None
            current = stage.apply(current)
        return current

    def close(self) -> None:
        """Close all of them."""
        for stage in self.stages:
            stage.transformation.close()
            if stage.predicate is not None:
                stage.predicate.close()


def transformation_chain(config: Mapping[str, Any], plugins: Plugins | None = None) -> TransformationChain:
    """Return the chain of a connector's config.

    Args:
        config: The config; of it, what begins with ``transforms`` and ``predicates``.
        plugins: The plugins that there are; by default Apache Kafka's.

    Raises:
        SettingError: A setting is wrong.
        ConnectError: A transformation refuses its settings, or names a predicate that is not there.
    """
    available = plugins or standard_plugins()
    definition = enriched(ConfigDef([TRANSFORMS_SETTING, PREDICATES_SETTING]), config, available, strict=True)
    parsed = definition.parse(config, available.find)
    return TransformationChain(tuple(_stage(alias, config, parsed) for alias in parsed["transforms"]))


def _stage(alias: str, config: Mapping[str, Any], parsed: Mapping[str, Any]) -> Stage:
    settings = behind_prefix(config, f"transforms.{alias}.")
    chosen, negate = settings.pop("predicate", None), settings.pop("negate", None)
    try:
        transformation: Transformation = parsed[f"transforms.{alias}.type"].make()
        transformation.configure(settings)
        if chosen is None:
            return Stage(transformation)
        prefix = f"predicates.{chosen}."
        if f"{prefix}type" not in parsed:
            cause = f"org.apache.kafka.common.config.ConfigException: Unknown configuration '{prefix}plugin.version'"
            raise ConnectError(cause, hint=f"Add {chosen} to predicates, with its type.")
        predicate: Predicate = parsed[f"{prefix}type"].make()
        predicate.configure(behind_prefix(config, prefix))
    except PenstockError as error:
        raise ConnectError(f"{java_name(error)}: {error.message}", hint=error.hint) from error
    return Stage(transformation, predicate, str(negate).lower() == "true")
