"""The identity of a metric, and a metric with its present value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.errors import ConfigError

__all__ = ["Metric", "MetricName", "MetricValue", "RecordingLevel"]

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
