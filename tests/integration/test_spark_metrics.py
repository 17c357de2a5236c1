"""What Spark's own tools see of an application: the listeners of its query, and the sinks of the metrics system."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from penstock import Materialized, StreamsBuilder

from .conftest import BATCHES, Bench

APP = Path(__file__).parent / "spark_metrics_app.py"


class Seen(StreamingQueryListener):
    """The observed sums of each batch."""

    def __init__(self) -> None:
        self.sums: list[dict[str, Any]] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        row = event.progress.observedMetrics.get("penstock")
        if row is not None:
            self.sums.append(row.asDict())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass


def test_sparks_metrics_system_and_its_listeners_have_the_records(bench: Bench) -> None:
    bench.log.create_topic("words", 2)
    for partition in (0, 1):
        bench.write("words", [("a", "x", 1), ("b", "y", 2), ("a", "z", 3)], partition)
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("n")).to_stream().to("counts")
    seen = Seen()
    bench.spark.streams.addListener(seen)
    try:
        app = bench.run(builder.build(), **BATCHES, **{"penstock.metrics.spark": True})
        deadline = time.monotonic() + 120
        while sum(each["records_in"] for each in seen.sums) < 6:  # listeners are called from a queue
            assert time.monotonic() < deadline, seen.sums
            time.sleep(0.1)
    finally:
        bench.spark.streams.removeListener(seen)
    assert sum(each["records_in"] for each in seen.sums) == 6
    assert sum(each["records_out"] for each in seen.sums) == len(bench.read("counts", bytes))
    assert app.metrics.total("records-consumed-total", group="stream-topic-metrics") == 6


def test_a_sink_of_spark_gets_the_totals(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    bench.write("words", [("a", "x", 1), ("b", "y", 2)])
    (bench.root / "csv").mkdir()
    subprocess.run([sys.executable, str(APP), bench.url, str(bench.root)], check=True, timeout=240)
    wanted = "kafka_streams_stream_topic_metrics_records_consumed_total"
    files = list((bench.root / "csv").glob(f"*.driver.AccumulatorSource.{wanted}.csv"))
    assert len(files) == 1, sorted(each.name for each in (bench.root / "csv").iterdir())
    assert float(files[0].read_text().splitlines()[-1].split(",")[1]) == 2
