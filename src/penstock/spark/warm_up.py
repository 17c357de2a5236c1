"""Starts Spark's Python workers while Spark still plans the query, so that the first batch finds them ready.

Spark starts a worker with the first task that needs one. What the worker then loads (Polars, the log's and the stores'
libraries) would take longer than its first records do, and until then one of two cores has nothing to do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.spark.job import load_job
from penstock.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["warm_up"]

_log = logging.getLogger(__name__)
_warm: set[str] = set()  # Spark applications of this process whose workers run


def warm_up(session: SparkSession, data: bytes, workers: int) -> None:
    """Begins it, once for a Spark application, and does not wait. If it fails, the first batch does without.

    Args:
        session: Whose workers.
        data: The job that they will run.
        workers: How many.
    """
    application = session.sparkContext.applicationId
    if application in _warm:
        return
    _warm.add(application)
    threading.Thread(target=_run, args=(session, data, workers), name="penstock-warm-up", daemon=True).start()


def _run(session: SparkSession, data: bytes, workers: int) -> None:
    try:
        session.sparkContext.setLocalProperty("spark.job.description", "Penstock: Python workers start")
        session.range(0, workers, 1, workers).mapInArrow(_warmed(data), "id bigint").collect()
    except Exception as error:  # noqa: BLE001 - the application may have ended meanwhile; nothing depends on this
        _log.debug("the workers were not started early: %s", error)


def _warmed(data: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Of the same kind as the application's own stages: Spark keeps workers apart that were started for other things.
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        import polars as pl

        from penstock.spark.exactly_once import log_of

        job = load_job(data)
        job.topology  # noqa: B018 - unpickled with its functions and what they import
        log_of(job).end_offsets(list(job.plan.external_topics))
        pl.LazyFrame({"a": [""]}).select(pl.col("a").str.len_bytes()).collect()
        yield from batches

    return load
