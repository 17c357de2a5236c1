"""All metrics of an application, and the meters that move them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from penstock.errors import InvalidStateError
from penstock.metrics.name import Metric, MetricName, MetricValue, RecordingLevel
from penstock.metrics.samples import Samples

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.metrics.shapes import MeterDefinition

__all__ = ["Meter", "MetricRegistry"]


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
        """Return the function that computes a statistic: one of `penstock.metrics.shapes.STATS`."""
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
        wanted = {tag.replace("_", "-"): value for tag, value in tags.items()}
        return [
            metric
            for key, metric in self._metrics.items()
            if key.name == name
            and group in (None, key.group)
            and all(key.tag(tag) == value for tag, value in wanted.items())
        ]

    def value(self, name: str, *, group: str | None = None, **tags: str) -> MetricValue:
        """Return the value of the one metric that matches; tags are written with ``_`` for ``-``.

        Without a group, those of tasks, threads and stores go before those of clients, some of which have their names.

        Raises:
            InvalidStateError: None matches, or several do.
        """
        found = _own(self.find(name, group=group, **tags))
        if len(found) == 1:
            return found[0].metric_value()
        if found:
            shown = _listed([str(metric.metric_name) for metric in found])
            raise InvalidStateError(
                f"{len(found)} metrics are named {name!r}: {shown}", hint="Name a tag, such as task_id."
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


def _own(found: list[Metric]) -> list[Metric]:
    """Return the metrics of Kafka Streams and of Penstock; those of clients if there are no others."""
    groups = ("stream-", "penstock-")
    return [metric for metric in found if metric.metric_name.group.startswith(groups)] or found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
