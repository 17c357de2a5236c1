"""All metrics of an application, the meters that move them, and their values as JSON."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import ConfigError, InvalidStateError
from penstock.metrics.metric import Metric, MetricName, MetricValue, RecordingLevel

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.metrics.metric import MeterDefinition

__all__ = ["Meter", "MetricRegistry", "Samples", "snapshot"]


class Meter:
    """A measured quantity, and the metrics that are computed from it: a ``Sensor`` of Kafka's metrics.

    Args:
        samples: The samples that its means, extremes and rates are computed from.
        clock: The wall clock, in milliseconds.
    """

    __slots__ = ("_calls", "_clock", "_samples", "_total")

    def __init__(self, samples: Samples, clock: Callable[[], int]) -> None:
        self._samples = samples
        self._clock = clock
        self._total = 0.0
        self._calls = 0

    def record(self, value: float) -> None:
        """Record one value."""
        self.record_many(value, 1, value, value)

    def record_many(self, total: float, count: int, low: float, high: float) -> None:
        """Record many values by their sum, number, minimum and maximum."""
        if count:
            self._total += total
            self._calls += count
            self._samples.record(self._clock(), total, count, low, high)

    def reader(self, stat: str) -> Callable[[], MetricValue]:
        """Return the function that computes a statistic: one of `penstock.metrics.metric.STATS`."""
        samples, clock = self._samples, self._clock
        readers: dict[str, Callable[[], MetricValue]] = {
            "sum": lambda: self._total,
            "count": lambda: float(self._calls),
            "rate of a sum": lambda: samples.rate(clock()),
            "rate of calls": lambda: samples.rate_of_calls(clock()),
            "calls an hour": lambda: 3600 * samples.rate_of_calls(clock()),
            "avg": lambda: samples.mean(clock()),
            "min": lambda: samples.low(clock()),
            "max": lambda: samples.high(clock()),
        }
        return readers[stat]


class MetricRegistry(Mapping[MetricName, Metric]):
    """The metrics of one application by their names: what Kafka's ``KafkaStreams.metrics()`` returns.

    Args:
        level: Meters above this level are not made.
        window_ms: ``metrics.sample.window.ms``.
        samples: ``metrics.num.samples``.
        clock: The wall clock, in milliseconds since 1970.

    >>> registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    >>> registry.gauge(MetricName.of("state", "stream-metrics", {"client-id": "a"}), lambda: "RUNNING")
    >>> registry.value("state", group="stream-metrics", client_id="a")
    'RUNNING'
    """

    def __init__(
        self,
        level: RecordingLevel,
        window_ms: int = 30_000,
        samples: int = 2,
        *,
        clock: Callable[[], int],
    ) -> None:
        self.level = level
        self._window_ms = window_ms
        self._samples = samples
        self._clock = clock
        self._metrics: dict[MetricName, Metric] = {}

    @classmethod
    def of(cls, config: StreamsConfig, clock: Callable[[], int]) -> Self:
        """Return an empty registry with the ``metrics.`` settings of an application."""
        level = RecordingLevel.of(config["metrics.recording.level"])
        return cls(level, config["metrics.sample.window.ms"], config["metrics.num.samples"], clock=clock)

    def gauge(self, name: MetricName, read: Callable[[], MetricValue]) -> None:
        """Add a metric whose value a function returns."""
        self._metrics[name] = Metric(name, read)

    def meter(self, definition: MeterDefinition, tags: Mapping[str, str]) -> Meter | None:
        """Add the metrics of a measured quantity; None if the recording level leaves them out."""
        if definition.level > self.level:
            return None
        meter = Meter(Samples(self._window_ms, self._samples), self._clock)
        for metric in definition.metrics:
            name = MetricName.of(metric.name, definition.group, tags, metric.description)
            self._metrics[name] = Metric(name, meter.reader(metric.stat))
        return meter

    def remove(self, tag: str, value: str) -> None:
        """Remove all metrics with a tag of this value."""
        for name in [name for name in self._metrics if name.tag(tag) == value]:
            del self._metrics[name]

    def find(self, name: str, *, group: str | None = None, **tags: str) -> list[Metric]:
        """Return the metrics of a name; tags are written with ``_`` for ``-``."""
        matching_tags = {tag.replace("_", "-"): value for tag, value in tags.items()}
        return [
            metric
            for key, metric in self._metrics.items()
            if key.name == name
            and group in (None, key.group)
            and all(key.tag(tag) == value for tag, value in matching_tags.items())
        ]

    def value(self, name: str, *, group: str | None = None, **tags: str) -> MetricValue:
        """Return the value of the one metric that matches; tags are written with ``_`` for ``-``.

        Without a group, those of tasks, threads and stores go before those of clients, some of which have their names.

        Raises:
            InvalidStateError: None matches, or several do.
        """
        metrics = _own(self.find(name, group=group, **tags))
        if len(metrics) == 1:
            return metrics[0].metric_value()
        if metrics:
            shown = _listed([str(metric.metric_name) for metric in metrics])
            raise InvalidStateError(
                f"{len(metrics)} metrics are named {name!r}: {shown}", hint="Name a tag, such as task_id."
            )
        same = [str(key) for key in self._metrics if key.name == name]
        hint = f"Of that name there are {_listed(same)}." if same else "`list(app.metrics)` has the names of all."
        level = f" at the recording level {self.level.name}" if not same else ""
        raise InvalidStateError(f"no metric is named {name!r}{' with these tags' if same else level}", hint=hint)

    def total(self, name: str, *, group: str | None = None, **tags: str) -> float:
        """Return the sum of the metrics that match, such as a total over all tasks; 0 if none does. See `value`."""
        values = (metric.metric_value() for metric in _own(self.find(name, group=group, **tags)))
        return float(sum(value for value in values if not isinstance(value, str)))

    def __getitem__(self, name: MetricName) -> Metric:
        return self._metrics[name]

    def __iter__(self) -> Iterator[MetricName]:
        return iter(list(self._metrics))  # tasks may come while a reader goes through them

    def __len__(self) -> int:
        return len(self._metrics)


def _own(metrics: list[Metric]) -> list[Metric]:
    """Return the metrics of Kafka Streams and of Penstock; those of clients if there are no others."""
    groups = ("stream-", "penstock-")
    return [metric for metric in metrics if metric.metric_name.group.startswith(groups)] or metrics


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


@dataclass(slots=True)
class _Sample:
    """The values that were recorded in one window of time."""

    start_ms: int
    last_ms: int
    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf


class Samples:
    """The last samples of a measured value.

    Args:
        window_ms: The length of a sample: ``metrics.sample.window.ms``.
        number: The number of samples that are kept: ``metrics.num.samples``.

    >>> samples = Samples(30_000, 2)
    >>> samples.record(0, total=30.0, count=3, low=5.0, high=15.0)
    >>> samples.mean(0), samples.high(0), samples.rate(0), samples.rate_of_calls(0)
    (10.0, 15.0, 1.0, 0.1)
    >>> samples.mean(60_000)
    nan
    """

    __slots__ = ("_number", "_samples", "_window_ms")

    def __init__(self, window_ms: int, number: int) -> None:
        self._window_ms = window_ms
        self._number = number
        self._samples: deque[_Sample] = deque(maxlen=number + 1)  # one more, which overlaps with the oldest window

    def record(self, now_ms: int, total: float, count: int, low: float, high: float) -> None:
        """Add values by their sum, number, minimum and maximum."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._window_ms:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[-1]
        sample.last_ms = now_ms
        sample.count += count
        sample.total += total
        sample.low = min(sample.low, low)
        sample.high = max(sample.high, high)

    def mean(self, now_ms: int) -> float:
        """Return the mean of the values; NaN if there are none."""
        fresh = self._fresh(now_ms)
        count = sum(sample.count for sample in fresh)
        return sum(sample.total for sample in fresh) / count if count else math.nan

    def low(self, now_ms: int) -> float:
        """Return the smallest value; NaN if there are none."""
        return min((s.low for s in self._fresh(now_ms) if s.count), default=math.nan)

    def high(self, now_ms: int) -> float:
        """Return the largest value; NaN if there are none."""
        return max((s.high for s in self._fresh(now_ms) if s.count), default=math.nan)

    def rate(self, now_ms: int) -> float:
        """Return the sum of the values a second."""
        fresh = self._fresh(now_ms)
        return sum(sample.total for sample in fresh) / self._seconds(fresh, now_ms)

    def rate_of_calls(self, now_ms: int) -> float:
        """Return the number of the values a second."""
        fresh = self._fresh(now_ms)
        return sum(sample.count for sample in fresh) / self._seconds(fresh, now_ms)

    def _fresh(self, now_ms: int) -> list[_Sample]:
        return [s for s in self._samples if now_ms - s.last_ms < self._number * self._window_ms]

    def _seconds(self, fresh: list[_Sample], now_ms: int) -> float:
        """Return the time that a rate is taken over: at least all windows but the present one, as in Kafka."""
        elapsed = now_ms - fresh[0].start_ms if fresh else 0
        missing = max(0, self._number - 1 - elapsed // self._window_ms)
        return max(elapsed + missing * self._window_ms, self._window_ms) / 1000


def snapshot(metrics: Mapping[MetricName, Metric], matching: str = "") -> list[dict[str, Any]]:
    """Return each metric with its present value, ready for JSON, by group, name and tags.

    Args:
        metrics: The metrics, such as ``app.metrics``.
        matching: A regular expression that ``<group>:<name>`` must contain; empty: all.

    Returns:
        Dicts with ``group``, ``name``, ``tags``, ``description`` and ``value``. What is not a number yet (the mean of
        nothing) has the value None.

    Raises:
        ConfigError: The expression is not a regular expression.

    >>> from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
    >>> registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    >>> registry.gauge(MetricName.of("state", "stream-metrics", {"client-id": "a"}, "The state."), lambda: "RUNNING")
    >>> (found,) = snapshot(registry, "^stream-metrics:")
    >>> found["name"], found["tags"], found["description"], found["value"]
    ('state', {'client-id': 'a'}, 'The state.', 'RUNNING')
    """
    try:
        pattern = re.compile(matching)
    except re.error as error:
        raise ConfigError(f"{matching!r} is not a regular expression: {error}") from error
    documents = [
        {
            "group": name.group,
            "name": name.name,
            "tags": dict(name.tags),
            "description": name.description,
            "value": _value(metric.metric_value()),
        }
        for name, metric in metrics.items()
        if pattern.search(f"{name.group}:{name.name}")
    ]
    return sorted(documents, key=lambda one: (one["group"], one["name"], sorted(one["tags"].items())))


def _value(value: MetricValue) -> MetricValue | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
