"""Metrics to OpenTelemetry, under the names of Kafka's telemetry."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.escapes import one_line
from penstock.base.log_lines import own_logger
from penstock.errors import ConfigError
from penstock.metrics.definitions import OWN

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

    from penstock.metrics.metric import Metric, MetricName

__all__ = ["OtelExport", "telemetry_name"]

_log = own_logger(__name__)


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
    """An export of metrics by OTLP over HTTP, as the ``OTEL_EXPORTER_OTLP_*`` variables say; extra ``otel``.

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
        self._observed: dict[str, list[Observation]] = {}
        # The reader has no interval of its own: instruments must exist before it collects, and none can be added while
        # it does, under its lock.
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint), math.inf)
        self._provider = MeterProvider([reader], resource=Resource.create(dict(attributes or {})))
        self._meter: Meter = self._provider.get_meter("penstock")
        self._exporting = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._export, args=(every_ms / 1000,), name="otel-export", daemon=True)
        self._thread.start()

    def flush(self) -> bool:
        """Send everything now; return whether the collector has taken it."""
        with self._exporting:
            self._observe()
            return bool(self._provider.force_flush())

    def close(self) -> None:
        """Send the last figures and end; safe to call twice."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self.flush()
            self._provider.shutdown()

    def _export(self, every_s: float) -> None:
        while not self._closing.wait(every_s):
            try:
                self.flush()
            except Exception:  # noqa: BLE001 - whatever the metrics or the collector raise, the next export comes
                _log.exception("the metrics were not sent to OpenTelemetry; they are again in %.0f s", every_s)

    def _observe(self) -> None:
        """Read all metrics, and make the instruments of those that are new."""
        from opentelemetry.metrics import Observation

        observed: dict[str, list[Observation]] = {}
        metrics = self._metrics()
        for name, metric in metrics.items():
            exported_name = telemetry_name(name)
            if exported_name not in self._observed and exported_name not in observed:
                create: Any = self._meter.create_observable_gauge
                if name.name.endswith("-total"):
                    create = self._meter.create_observable_counter
                create(exported_name, [self._observer(exported_name)], description=name.description)
            observations = observed.setdefault(exported_name, [])
            value = metric.metric_value()
            if not isinstance(value, str) and math.isfinite(value):
                observations.append(
                    Observation(value, {tag.replace("-", "_"): one_line(text) for tag, text in name.tags})
                )
        self._observed = {name: [] for name in self._observed} | observed

    def _observer(self, exported_name: str) -> Callable[[CallbackOptions], list[Observation]]:
        return lambda _: self._observed.get(exported_name, [])
