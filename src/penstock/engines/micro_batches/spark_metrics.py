"""The application's totals where Spark's tools look: in its metrics system, and in the progress of the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.metrics.definitions import OWN
from penstock.metrics.metric import MetricName
from penstock.metrics.prometheus import family_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.metrics.metric import Metric

__all__ = ["SparkMetrics", "chosen", "observed"]

_log = own_logger(__name__)
_TOTALS = {  # sums over tasks and partitions, by the names that they have in Prometheus
    (group, name): family_of(MetricName.of(name, group, {}))
    for group, names in {
        "stream-thread-metrics": ("process-total", "commit-total"),
        "stream-task-metrics": ("dropped-records-total",),
        "stream-topic-metrics": (
            "records-consumed-total", "bytes-consumed-total", "records-produced-total", "bytes-produced-total",
        ),
        OWN: ("batches-total", "batch-duration-seconds", "batch-skew-ratio", "lag-records", "store-rows"),
    }.items()
    for name in names
}  # fmt: skip


def chosen(metrics: Mapping[MetricName, Metric]) -> dict[str, float]:
    """Return the totals that Spark gets, each summed over its series; those that do not exist yet are 0.

    >>> from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
    >>> registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    >>> for partition, lag in enumerate((3, 4)):
    ...     tags = {"topic": "in", "partition": str(partition)}
    ...     registry.gauge(MetricName.of("lag-records", "penstock-metrics", tags), lambda lag=lag: lag)
    >>> chosen(registry)["penstock_lag_records"]
    7.0
    """
    totals = dict.fromkeys(_TOTALS.values(), 0.0)
    for name, metric in metrics.items():
        if (total_name := _TOTALS.get((name.group, name.name))) is not None:
            value = metric.metric_value()
            totals[total_name] += 0.0 if isinstance(value, str) else float(value)
    return totals


class SparkMetrics:
    """Gauges of Spark's metrics system, as ``<namespace>.driver.AccumulatorSource.<name>``.

    They are accumulators of Spark's, which its ``DoubleAccumulatorSource`` shows to all sinks.
    """

    def __init__(self) -> None:
        self._accumulators: dict[str, Any] = {}
        self._set: dict[str, float] = {}
        self._has_failed = False

    def show(self, metrics: Mapping[MetricName, Metric]) -> None:
        """Give Spark the present totals; each that has changed is a call into the JVM. An error ends it for good."""
        if self._has_failed:
            return
        try:
            totals = chosen(metrics)
            if not self._accumulators:
                self._register(totals)
            for name, value in totals.items():
                if self._set.get(name) != value:
                    self._accumulators[name].setValue(value)
                    self._set[name] = value
        except Exception as error:  # noqa: BLE001 - of py4j, or of another Spark: no application ends for it
            self._has_failed = True
            _log.warning("Spark's metrics system does not get the application's totals: %s", error)

    def _register(self, names: Mapping[str, float]) -> None:
        from pyspark import SparkContext  # here: `from penstock import KafkaStreams` needs no Spark

        context: Any = SparkContext.getOrCreate()  # that of the application, which runs
        jvm, scala = context._jvm, context._jsc.sc()  # noqa: SLF001 - there is no public way
        accumulators = {name: scala.doubleAccumulator(name) for name in names}
        gauges = jvm.java.util.HashMap()
        for name, accumulator in accumulators.items():
            gauges.put(name, accumulator)
        converters = getattr(getattr(jvm.scala.jdk, "CollectionConverters$"), "MODULE$")
        mutable = converters.MapHasAsScala(gauges).asScala()
        maps = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$")
        source = getattr(getattr(jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$"), "MODULE$")
        source.register(scala, getattr(maps, "from")(mutable))
        self._accumulators = accumulators


def observed(frame: DataFrame) -> DataFrame:
    """Return the envelopes of a batch, whose sums listeners of the query find as ``observedMetrics["penstock"]``.

    Spark's own ``numInputRows`` counts envelopes; these are the records.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    from penstock.engines.micro_batches.envelope import EnvelopeKind

    report = F.when(F.col("kind") == int(EnvelopeKind.REPORT), F.col("payload").cast("string"))

    def sums(path: str, name: str) -> Column:
        return F.coalesce(F.sum(F.get_json_object(report, path).cast("double")), F.lit(0.0)).alias(name)

    counts = (("records_read", "records_in"), ("records_written", "records_out"), ("dropped", "dropped"))
    steps = tuple((f"seconds.{step}", f"seconds_{step}") for step in ("state", "read", "process", "publish", "write"))
    facts = (*counts, ("segment_bytes", "segment_bytes"), *steps)
    return frame.observe("penstock", *(sums(f"$.{path}", name) for path, name in facts))
