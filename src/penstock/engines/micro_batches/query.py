"""The streaming query of micro-batches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.base.clock import unix_ms
from penstock.base.log_lines import Work, own_logger
from penstock.engines.micro_batches.envelope import ENVELOPE_DDL, EnvelopeKind
from penstock.engines.micro_batches.object_store import CheckpointCopy
from penstock.engines.micro_batches.source import PenstockSource
from penstock.engines.micro_batches.spark_metrics import observed
from penstock.engines.micro_batches.spark_tasks import shuffle_width
from penstock.engines.micro_batches.worker.stage import run_stage
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.crash_notes import LONG_STEP_S, notes_of_dead_workers, notes_of_workers
from penstock.engines.spark.failures import is_lost_process, sealed_error_in, spark_error_reason, spark_error_text
from penstock.engines.spark.job import load_job
from penstock.engines.spark.jvm import silence_py4j
from penstock.engines.spark.own_session import (
    active_session,
    clone_session,
    configured_source,
    keep_rdd_to_df,
    load_source,
    map_in_arrow,
)
from penstock.engines.spark.progress import BatchProgress, batch_progress
from penstock.engines.spark.pyspark_warnings import quiet_pyspark
from penstock.engines.spark.query_trigger import commit_trigger, has_ended
from penstock.engines.spark.spark_log import QUERY, drop_damaged
from penstock.engines.spark.worker_process import prepare_worker
from penstock.errors import AppFailedError, PenstockError
from penstock.state.checkpoint import local_directory
from penstock.state.restores.restore_documents import forget_restores, read_restores
from penstock.state.restores.restore_progress import Restore

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.engines.dataframes import DataFrameQuery
    from penstock.engines.offsets.offsets import Offsets
    from penstock.engines.spark.job import SparkJob
    from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology

__all__ = ["BatchQuery", "stage_descriptions", "warm_up"]

_log = own_logger(__name__)
_warm: set[str] = set()  # Spark applications of this process whose workers run
# The JVM sees only a few envelopes of a batch: compiling code for them takes longer than processing them.
_FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_PATIENCE_S = 3.0
_IDLE_S = 1.0
_RESTORES_S = 1.0  # of a batch, before restores are looked for
_LOOK_S, _LOOK_REMOTE_S = 0.5, 5.0
_MOST_NAMES = 3  # of sub-topologies and topics in the description of a stage


class BatchQuery:
    """The streaming query of micro-batches, from its start to its end.

    Args:
        session: The application's own session, made by `SparkApplication`.
        job: The job to run.
        on_batch: Called on the driver after each batch that did something.
        dataframe_queries: Queries that fill topics from DataFrames; they start first and end with this one.
    """

    def __init__(
        self,
        session: SparkSession,
        job: SparkJob,
        on_batch: Callable[[BatchProgress], None],
        dataframe_queries: Sequence[DataFrameQuery] = (),
    ) -> None:
        self._session = session
        self._job = job
        self._on_batch = on_batch
        self._dataframe_queries = dataframe_queries
        self._query: StreamingQuery | None = None
        self._journal = CheckpointCopy(job.journal, job.checkpoint) if job.journal else None
        self._stage_descriptions = stage_descriptions(job.plan)
        self._has_batch = False
        self._running: tuple[int, float] | None = None  # the batch whose tasks run, and since when
        self._restores: tuple[Restore, ...] = ()
        self._looked = float("-inf")
        self._look_s = _LOOK_S if local_directory(job.checkpoint) is not None else _LOOK_REMOTE_S
        self._warm = threading.Event()
        self._idle_since: float | None = None

    def start(self, interval_ms: int) -> None:
        """Start the query; batches begin at most every ``interval_ms``."""
        if self._journal is not None:
            self._journal.fetch()
        forget_restores(self._job.checkpoint)
        for path in drop_damaged(f"{self._job.checkpoint}/{QUERY}"):
            _log.warning("%s was empty, as a power cut leaves a file, and is removed", path)
        spark_settings = self._job.config.with_prefix("spark.")
        settings = {
            name: value for name, value in _FEW_ROWS.items() if name.removeprefix("spark.") not in spark_settings
        }
        self._session = clone_session(self._session, settings)
        warm_up(self._session, self._job.dump(), self._job.parallelism, self._warm)
        with quiet_pyspark():
            for each in self._dataframe_queries:
                each.start(interval_ms, until_latest=self._job.until_latest)
            frame = self._stages()
            writer = (
                frame.writeStream.queryName(self._job.plan.application_id)
                .option("checkpointLocation", self._job.journal or f"{self._job.checkpoint}/{QUERY}")
                .foreachBatch(keep_rdd_to_df(self._collect))
            )
            trigger = commit_trigger(interval_ms, until_latest=self._job.until_latest)
            with active_session(self._session):
                self._query = writer.trigger(**trigger).start()

    def _stages(self) -> DataFrame:
        data = self._job.dump()
        source = configured_source(PenstockSource, f"penstock-{self._job.plan.application_id}", job=data)
        frame = load_source(self._session, source)
        for level in range(1, self._job.plan.levels):
            width = shuffle_width(self._job, level)
            shuffled = frame.repartitionById(width, F.col("slot"))
            frame = map_in_arrow(shuffled, _stage(data, level), ENVELOPE_DDL)
        return observed(frame) if self._job.config["penstock.metrics.spark"] else frame

    def _collect(self, frame: DataFrame, batch: int) -> None:
        with Work(application=self._job.plan.application_id, batch=batch):
            self._take(frame, batch)

    def _take(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        self._running = batch, began
        description = f"{self._job.plan.application_id}, batch {batch}: {self._stage_descriptions}"
        with quiet_pyspark():
            self._session.sparkContext.setJobDescription(description)  # of this thread, which is the query's
            rows = frame.select("kind", "payload").collect()
        self._has_batch, self._running = True, None
        reports = [bytes(row.payload) for row in rows if row.kind == EnvelopeKind.REPORT]
        if reports:
            progress = batch_progress(batch, reports, time.monotonic() - began)
            for name, count in progress.lost.items():
                if count:
                    _log.warning("%s: records were gone before they were read (%d offsets)", name, count)
                else:
                    _log.warning(
                        "%s was cut off, or deleted and made again: it is read from its present position", name
                    )
            _log.debug("%d records in, %d out, %d dropped", progress.records_in, progress.records_out, progress.dropped)
            self._on_batch(progress)

    @property
    def parallelism(self) -> int:
        """The most tasks that Spark runs at a time."""
        return self._job.parallelism

    def phase(self) -> str:
        """Describe what the query is doing now: planning, tasks of a batch with their stage, or Spark's commit.

        Tasks of this machine are named; those of other machines are only counted.
        """
        if self._query is None:
            return "starting"
        with silence_py4j():
            if self._running is None:
                doing = "planning" if self._is_asking(self._query) else "Spark plans or commits a batch"
                return f"{doing}: {self._query.status['message']}"
            batch, began = self._running
            tracker = self._session.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        tasks = "; ".join(
            f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks have ended, "
            f"{each.numActiveTasks} run"
            for each in stages
            if each is not None
        )
        named = [note.doing(unix_ms()) for note in notes_of_workers(self._job.replica_root) if note.batch == batch]
        rest = f" and {len(named) - _MOST_NAMES} more" if len(named) > _MOST_NAMES else ""
        which = f": {', '.join(named[:_MOST_NAMES])}{rest}" if named else ""
        return (
            f"batch {batch:,} runs for {time.monotonic() - began:.0f} s, {tasks or 'no stage of it is active'}{which}"
        )

    def under_way(self) -> list[Restore]:
        """Return the restores of tasks that take longer than a second."""
        running, now = self._running, time.monotonic()
        if running is None or now - running[1] < _RESTORES_S:
            self._restores = ()
        elif now - self._looked >= self._look_s:
            self._looked = now
            self._restores = tuple(map(Restore.of_segments, read_restores(self._job.checkpoint)))
        return list(self._restores)

    def long_steps(self) -> list[dict[str, Any]]:
        """Return the tasks of this machine that are in one step of the batch for long: task, what, seconds."""
        running = self._running
        if running is None or time.monotonic() - running[1] < LONG_STEP_S:
            return []
        now_ms = unix_ms()
        notes = [note for note in notes_of_workers(self._job.replica_root) if note.batch == running[0]]
        steps = [(note.task, note.doing(now_ms), (now_ms - note.since_ms) / 1000) for note in notes]
        return [{"task": task, "what": what, "seconds": s} for task, what, s in steps if s > LONG_STEP_S]

    def is_running(self) -> bool:
        """Return whether the query is active."""
        return self._query is not None and bool(self._query.isActive)

    def has_running_tasks(self) -> bool:
        """Return whether a batch has run, or workers are ready and there is nothing to do yet."""
        if self._has_batch or self._query is None:
            return self._has_batch
        # An idle query asks for offsets nearly all the time; one that is about to run a first batch only briefly.
        if not (self._warm.is_set() and self._is_asking(self._query)):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or time.monotonic()
        return time.monotonic() - self._idle_since > _IDLE_S

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the query; return whether it has ended. Raise the error that ended it, if any."""
        assert self._query is not None, "call start() first"  # noqa: S101
        for each in self._dataframe_queries:
            each.check()
        try:
            return has_ended(self._query, timeout_s)
        except Exception as error:  # noqa: BLE001 - Spark wraps in many ways
            raise self._failure(error) from None

    def stop(self) -> None:
        """End the query, between two batches if that comes soon; a running batch is abandoned, which loses nothing."""
        with silence_py4j():
            self._end()

    def _end(self) -> None:
        for each in self._dataframe_queries:
            each.stop()
        if self._query is not None:
            try:
                deadline = time.monotonic() + _PATIENCE_S
                while self.is_running() and self._is_in_batch(self._query) and time.monotonic() < deadline:
                    time.sleep(0.01)
                self._query.stop()
                if self._journal is not None:
                    self._journal.push()
            except Exception as error:  # noqa: BLE001 - it is over either way
                _log.debug("the query did not stop cleanly: %s", error)

    @staticmethod
    def _is_in_batch(query: StreamingQuery) -> bool:
        return bool(query.status["isTriggerActive"]) and not BatchQuery._is_asking(query)

    @staticmethod
    def _is_asking(query: StreamingQuery) -> bool:
        """Return whether the query asks for new offsets, or waits to ask."""
        return str(query.status["message"]).startswith(("Getting offsets", "Waiting"))

    def committed(self) -> tuple[int, Offsets] | None:
        """Return the newest batch that Spark has committed, and the end of its input."""
        last = self._query.lastProgress if self._query is not None else None
        if last is None or not last["sources"]:
            return None
        end = last["sources"][0]["endOffset"]
        document = json.loads(end) if isinstance(end, str) else end
        return (int(last["batchId"]), SourceOffset.of(document).ends) if document else None

    def _failure(self, error: Exception) -> PenstockError:
        sealed_error = sealed_error_in(str(error), self._job.error_key)
        if sealed_error is not None:
            return sealed_error
        text = spark_error_text(error)
        words = notes_of_dead_workers(self._job.replica_root) if is_lost_process(text) else []
        if words:
            return AppFailedError(
                "; ".join(each.sentence(self._job.topology) for each in words),
                hint="Something ended the process itself: os._exit, a crash of a C library, or the system when out of "
                "memory. `.details` has Spark's text. Start the application again: it continues where it stopped.",
                details=text,
                lost_process=True,
                task=words[0].task,
                batch=words[0].batch,
                node=words[0].node,
                positions={name: start for name, (start, _) in words[0].ranges.items()},
            )
        return AppFailedError(
            f"the Spark query failed: {spark_error_reason(text)[:500]}",
            hint="Start the application again: it continues where it stopped. The full text is in `.details`.",
            details=text,
            lost_process=is_lost_process(text),
        )


def _stage(data: bytes, level: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_stage(data, level, batches)

    return stage


def stage_descriptions(plan: PhysicalPlan) -> str:
    """Describe the stages of a batch for Spark's web page.

    For example ``stage 1: sub-topology 0 (lines); stage 2: sub-topology 1 (counts-repartition)``.
    """
    stages = []
    for level in range(plan.levels):
        runs = [_described(each) for each in plan.subtopologies if level in each.levels]
        stages.append(f"stage {level + 1}: sub-topology {_few(runs)}")
    return "; ".join(stages)


def _described(sub: PlannedSubTopology) -> str:
    return f"{sub.id} ({_few((*sub.external_topics, *sub.internal_topics))})"


def _few(names: Sequence[str]) -> str:
    """Join the first names, with the number of the others."""
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + rest


def warm_up(session: SparkSession, data: bytes, workers: int, done: threading.Event) -> None:
    """Start the workers in the background, once for a Spark application; without success the first batch starts them.

    Spark starts a worker with the first task that needs one. Loading the worker's libraries (Polars, those of the log
    and the stores) would take longer than its first records, and until then one of two cores is idle.

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
        map_in_arrow(session.range(0, workers, 1, workers), _warmed(data), "id bigint").collect()
    except Exception as error:  # noqa: BLE001 - the application may have ended meanwhile; nothing depends on this
        _log.debug("the workers were not started early: %s", error)
    finally:
        done.set()


def _warmed(data: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # The same kind of call as the application's own stages: Spark uses other workers for other kinds.
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        import polars as pl

        from penstock.engines.micro_batches.worker.exactly_once import log_of

        job = load_job(data)
        job.topology  # noqa: B018 - unpickled with its functions and what they import
        log_of(job).end_offsets(list(job.plan.external_topics))
        pl.LazyFrame({"a": [""]}).select(pl.col("a").str.len_bytes()).collect()
        yield from batches

    return load
