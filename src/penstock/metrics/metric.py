"""Metrics: their identity and value, and their shapes: what is measured, and what is computed from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.errors import ConfigError

__all__ = [
    "STATS",
    "MeterDefinition",
    "Metric",
    "MetricDefinition",
    "MetricName",
    "MetricValue",
    "RecordingLevel",
    "calls",
    "joined",
    "ratio",
    "said",
    "spread",
    "sums",
    "total",
]

MetricValue = int | float | str


class RecordingLevel(IntEnum):
    """The detail in which metrics are recorded: Kafka's ``metrics.recording.level``.

    >>> RecordingLevel.of("debug") >= RecordingLevel.INFO
    True
    """

    INFO = 0
    DEBUG = 1
    TRACE = 2

    @classmethod
    def of(cls, name: str) -> RecordingLevel:
        """Return the level of a setting.

        Raises:
            ConfigError: There is no level of that name.
        """
        level = cls.__members__.get(str(name).upper())
        if level is None:
            raise ConfigError(
                f"metrics.recording.level is {name!r}", hint=f"The levels are {', '.join(cls.__members__)}."
            )
        return level


@dataclass(frozen=True, slots=True)
class MetricName:
    """The group, name and tags of a metric: Kafka's ``MetricName``. The description is not part of the identity.

    Attributes:
        name: Its name, such as ``process-total``.
        group: Its group, such as ``stream-task-metrics``.
        tags: (tag, value) pairs, such as ``("task-id", "0_0")``, by tag.
        description: Its meaning, in a sentence.

    >>> name = MetricName.of("process-total", "stream-task-metrics", {"thread-id": "main", "task-id": "0_0"})
    >>> name.tag("task-id"), str(name)
    ('0_0', 'stream-task-metrics:process-total{task-id=0_0,thread-id=main}')
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
    description: str = field(default="", compare=False)

    @classmethod
    def of(cls, name: str, group: str, tags: Mapping[str, str], description: str = "") -> MetricName:
        """Return the name with these tags, in whatever order they come."""
        return cls(name, group, tuple(sorted(tags.items())), description)

    def tag(self, tag: str) -> str | None:
        """Return the value of a tag; None without that tag."""
        return dict(self.tags).get(tag)

    def __str__(self) -> str:
        return f"{self.group}:{self.name}{{{','.join(f'{tag}={value}' for tag, value in self.tags)}}}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: Kafka's ``KafkaMetric``.

    Attributes:
        metric_name: Its name.
        read: Returns its present value.
    """

    metric_name: MetricName
    read: Callable[[], MetricValue]

    def metric_value(self) -> MetricValue:
        """Return the present value; NaN for a mean or an extreme of nothing."""
        return self.read()


STATS = ("sum", "count", "rate of a sum", "rate of calls", "calls an hour", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric of a meter.

    Attributes:
        name: Its name.
        stat: How it is computed from the recorded values: one of STATS.
        description: Its meaning, in a sentence.
    """

    name: str
    stat: str
    description: str


@dataclass(frozen=True, slots=True)
class MeterDefinition:
    """A measured quantity and its metrics.

    Attributes:
        group: The group of the metrics.
        level: The recording level from which on they exist.
        metrics: The metrics.
    """

    group: str
    level: RecordingLevel
    metrics: tuple[MetricDefinition, ...]


def said(how: str, what: str) -> str:
    """Return the description of a metric: what is measured, put into a phrase, and the remarks that follow it.

    Args:
        how: The phrase, with ``{}`` in the place of what is measured.
        what: What is measured; behind its first full stop, remarks.

    >>> said("{}, per second", "Commits. A micro-batch is one.")
    'Commits, per second. A micro-batch is one.'
    >>> said("The mean {}", "time of a call in nanoseconds")
    'The mean time of a call in nanoseconds.'
    """
    measured, _, remarks = what.removesuffix(".").partition(". ")
    return f"{how.format(measured)}.{f' {remarks}.' if remarks else ''}"


def calls(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a rate and a total of calls."""
    metrics = (
        MetricDefinition(f"{name}-rate", "rate of calls", said("{}, per second", what)),
        MetricDefinition(f"{name}-total", "count", said("{}, since the start", what)),
    )
    return MeterDefinition(group, level, metrics)


def sums(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a rate and a total of values."""
    metrics = (
        MetricDefinition(f"{name}-rate", "rate of a sum", said("{}, per second", what)),
        MetricDefinition(f"{name}-total", "sum", said("{}, since the start", what)),
    )
    return MeterDefinition(group, level, metrics)


def spread(group: str, level: RecordingLevel, name: str, what: str, stats: str = "avg max") -> MeterDefinition:
    """Define a mean and extremes."""
    words = {"avg": "mean", "min": "smallest", "max": "largest"}
    metrics = tuple(MetricDefinition(f"{name}-{s}", s, said(f"The {words[s]} {{}}", what)) for s in stats.split())
    return MeterDefinition(group, level, metrics)


def total(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a total of values."""
    return MeterDefinition(group, level, (MetricDefinition(name, "sum", what),))


def ratio(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a share of the time of the last samples, of recorded seconds."""
    return MeterDefinition(group, level, (MetricDefinition(name, "rate of a sum", what),))


def joined(*meters: MeterDefinition) -> MeterDefinition:
    """Define one meter with the metrics of several."""
    return MeterDefinition(meters[0].group, meters[0].level, tuple(m for each in meters for m in each.metrics))
