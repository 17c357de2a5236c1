"""Metrics to OpenTelemetry, under the names of Kafka's telemetry."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.metrics.store_definitions import OWN

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

    from penstock.metrics.name import Metric, MetricName

__all__ = ["OtelExport", "telemetry_name"]


def telemetry_name(name: MetricName) -> str:
    """Return the name that Kafka's clients report a metric by (KIP-714).

    >>> from penstock.metrics import MetricName
    >>> telemetry_name(MetricName.of("process-latency-avg", "stream-task-metrics", {}))
    'org.apache.kafka.stream.task.process.latency.avg'
    >>> telemetry_name(MetricName.of("lag-seconds", "penstock-metrics", {}))
    'penstock.lag.seconds'
    """
    own = name.group == OWN
    group = "" if own else name.group.removesuffix("-metrics").replace("-", ".") + "."
    return f"{'penstock.' if own else 'org.apache.kafka.'}{group}{name.name.replace('-', '.')}"


class OtelExport:
    """Sends metrics by OTLP over HTTP at intervals, as the ``OTEL_EXPORTER_OTLP_*`` variables say; extra ``otel``.

    Totals are monotonic sums, everything else is a gauge; metrics that are texts are left out.

    Args:
        metrics: Returns the metrics, such as ``lambda: app.metrics``.
        endpoint: The URL of the collector's ``/v1/metrics``; None: as the variables say.
        every_ms: The time between two exports.
        attributes: Attributes of the resource, such as ``service.name``.

    Raises:
        ConfigError: OpenTelemetry is not installed.

    Example:
        export = OtelExport(lambda: app.metrics, attributes={"service.name": "orders"})
        app.run()
        export.close()
    """

    def __init__(
        self,
        metrics: Callable[[], Mapping[MetricName, Metric]],
        endpoint: str | None = None,
        every_ms: int = 10_000,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise ConfigError("OpenTelemetry is not installed", hint="pip install 'penstock[otel]'") from error
        self._metrics = metrics
        self._known: set[str] = set()
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint), every_ms)
        self._provider = MeterProvider([reader], resource=Resource.create(dict(attributes or {})))
        self._meter: Meter = self._provider.get_meter("penstock")
        self._meter.create_observable_gauge("penstock.series", [self._discover], description="Metrics that exist.")

    def flush(self) -> bool:
        """Send everything now; return whether the collector has taken it."""
        self._add_instruments()
        return bool(self._provider.force_flush())

    def close(self) -> None:
        """Send the last figures and end."""
        self._provider.shutdown()

    def _discover(self, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002 - OpenTelemetry's signature
        from opentelemetry.metrics import Observation

        self._add_instruments()  # for the next export
        return [Observation(len(self._metrics()))]

    def _add_instruments(self) -> None:
        for name in self._metrics():
            known = telemetry_name(name)
            if known in self._known:
                continue
            self._known.add(known)
            create: Any = self._meter.create_observable_gauge
            if name.name.endswith("-total"):
                create = self._meter.create_observable_counter
            create(known, [self._observer(known)], description=name.description)

    def _observer(self, known: str) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(options: CallbackOptions) -> list[Observation]:  # noqa: ARG001 - OpenTelemetry's signature
            from opentelemetry.metrics import Observation

            found = []
            for name, metric in self._metrics().items():
                if telemetry_name(name) != known:
                    continue
                value = metric.metric_value()
                if not isinstance(value, str) and math.isfinite(value):
                    found.append(Observation(value, {tag.replace("-", "_"): text for tag, text in name.tags}))
            return found

        return observe
