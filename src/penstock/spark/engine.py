"""The one streaming query of an application."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.errors import AppFailedError, PenstockError
from penstock.spark.envelope import ENVELOPE_DDL, Kind
from penstock.spark.failures import error_from, is_lost_process, reason_in, text_of
from penstock.spark.offsets import SourceOffset
from penstock.spark.private import private_source
from penstock.spark.progress import BatchProgress, progress_of
from penstock.spark.session import quiet_pandas, register_source
from penstock.spark.source import PenstockSource
from penstock.spark.stage import run_stage, shuffle_width
from penstock.spark.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.feed import Feed
    from penstock.spark.job import SparkJob
    from penstock.spark.offsets import Offsets

__all__ = ["Engine"]

_log = logging.getLogger(__name__)
_PATIENCE_S = 3.0


class Engine:
    """Starts, watches and stops the query.

    Args:
        session: Made by `session_for`.
        job: What to run.
        on_batch: Called on the driver after each batch that did something.
        feeds: Queries that fill its topics from DataFrames; they start first and end with it.
    """

    def __init__(
        self,
        session: SparkSession,
        job: SparkJob,
        on_batch: Callable[[BatchProgress], None],
        feeds: Sequence[Feed] = (),
    ) -> None:
        self._session = session
        self._job = job
        self._on_batch = on_batch
        self._feeds = feeds
        self._query: StreamingQuery | None = None

    def start(self, interval_ms: int) -> None:
        """Starts the query; batches begin at most every ``interval_ms``."""
        warm_up(self._session, self._job.dump(), self._job.parallelism)
        with quiet_pandas():
            for feed in self._feeds:
                feed.start(interval_ms, until_latest=self._job.until_latest)
            frame = self._stages()
            writer = (
                frame.writeStream.queryName(self._job.plan.application_id)
                .option("checkpointLocation", f"{self._job.checkpoint}/spark")
                .foreachBatch(self._collect)
            )
            if self._job.until_latest:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
            self._query = writer.start()

    def _stages(self) -> DataFrame:
        data = self._job.dump()
        source = private_source(PenstockSource, f"penstock-{self._job.plan.application_id}", job=data)
        register_source(self._session, source)
        frame = self._session.readStream.format(source.name()).load()
        for level in range(1, self._job.plan.levels):
            width = shuffle_width(self._job, level)
            frame = frame.repartitionById(width, F.col("slot")).mapInArrow(_stage(data, level), ENVELOPE_DDL)
        return frame

    def _collect(self, frame: DataFrame, batch: int) -> None:
        with quiet_pandas():
            rows = frame.select("kind", "payload").collect()
        reports = [bytes(row.payload) for row in rows if row.kind == Kind.REPORT]
        if reports:
            progress = progress_of(batch, reports)
            for name, count in progress.lost.items():
                _log.warning("%s: records were gone before they were read (%d offsets)", name, count)
            self._on_batch(progress)

    def is_running(self) -> bool:
        """Whether the query is active."""
        return self._query is not None and bool(self._query.isActive)

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end; True when it has ended. Raises what made it fail."""
        assert self._query is not None, "start() comes first"  # noqa: S101
        for feed in self._feeds:
            feed.check()
        try:
            return bool(self._query.awaitTermination(timeout_s))  # type: ignore[arg-type] # fractions are fine
        except Exception as error:  # noqa: BLE001 - Spark wraps in many ways
            raise self._failure(error) from None

    def stop(self) -> None:
        """Ends the query, between two batches if that comes soon; a running one is given up, which loses nothing."""
        for feed in self._feeds:
            feed.stop()
        if self._query is not None:
            try:
                deadline = time.monotonic() + _PATIENCE_S
                while self.is_running() and self._is_in_batch(self._query) and time.monotonic() < deadline:
                    time.sleep(0.01)
                self._query.stop()
            except Exception as error:  # noqa: BLE001 - it is over either way
                _log.debug("the query did not stop cleanly: %s", error)

    @staticmethod
    def _is_in_batch(query: StreamingQuery) -> bool:
        status = query.status
        asking = str(status["message"]).startswith(("Getting offsets", "Waiting"))  # whether there is anything to do
        return bool(status["isTriggerActive"]) and not asking

    def committed(self) -> tuple[int, Offsets] | None:
        """The newest batch that Spark has committed, and where its input ended."""
        last = self._query.lastProgress if self._query is not None else None
        if last is None or not last["sources"]:
            return None
        end = last["sources"][0]["endOffset"]
        document = json.loads(end) if isinstance(end, str) else end
        return (int(last["batchId"]), SourceOffset.of(document).ends) if document else None

    @staticmethod
    def _failure(error: Exception) -> PenstockError:
        found = error_from(str(error))
        if found is not None:
            return found
        text = text_of(error)
        return AppFailedError(
            f"the Spark query failed: {reason_in(text)[:500]}",
            hint="Start the application again: it continues where it stopped. The full text is in `.details`.",
            details=text,
            lost_process=is_lost_process(text),
        )


def _stage(data: bytes, level: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_stage(data, level, batches)

    return stage
