"""An early start of Spark's Python workers, while Spark still plans the query, so the first batch finds them ready.

Spark starts a worker with the first task that needs one. Loading the worker's libraries (Polars, those of the log and
the stores) would take longer than its first records, and until then one of two cores is idle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.spark.job import load_job
from penstock.engines.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["warm_up"]

_log = own_logger(__name__)
_warm: set[str] = set()  # Spark applications of this process whose workers run


def warm_up(session: SparkSession, data: bytes, workers: int, done: threading.Event) -> None:
    """Start the workers in the background, once for a Spark application; without success the first batch starts them.

    Args:
        session: The session whose workers are started.
        data: The pickled job that they will run.
        workers: The number of workers.
        done: Set when the workers are ready, or the early start has failed.
    """
    application = session.sparkContext.applicationId
    if application in _warm:
        done.set()
        return
    _warm.add(application)
    threading.Thread(target=_run, args=(session, data, workers, done), name="penstock-warm-up", daemon=True).start()


def _run(session: SparkSession, data: bytes, workers: int, done: threading.Event) -> None:
    try:
        session.sparkContext.setLocalProperty("spark.job.description", "Penstock: Python workers start")
        session.range(0, workers, 1, workers).mapInArrow(_warmed(data), "id bigint").collect()
    except Exception as error:  # noqa: BLE001 - the application may have ended meanwhile; nothing depends on this
        _log.debug("the workers were not started early: %s", error)
    finally:
        done.set()


def _warmed(data: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # The same kind of call as the application's own stages: Spark uses other workers for other kinds.
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        import polars as pl
        import pyarrow as pa

        from penstock.engines.batches.worker.exactly_once import log_of

        job = load_job(data)
        job.topology  # noqa: B018 - unpickled with its functions and what they import
        log_of(job).end_offsets(list(job.plan.external_topics))
        pl.LazyFrame({"a": [""]}).select(pl.col("a").str.len_bytes()).collect()
        pa.array([""])  # with the first list Arrow imports pandas
        yield from batches

    return load
