"""Micro-batches: an application as one query of Structured Streaming, and the preparation of its start."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.base.clock import unix_ms
from penstock.base.log_lines import Work, own_logger
from penstock.engines.application.application_note import note_application
from penstock.engines.application.identities import check_log_identity
from penstock.engines.application.internal_topic_creation import prepare_changelogs
from penstock.engines.application.locations import log_settings
from penstock.engines.application.stored_plans import read_stored_plan, resumable_plan, write_stored_plan
from penstock.engines.dataframes import dataframe_queries
from penstock.engines.micro_batches.envelope import ENVELOPE_DDL, EnvelopeKind
from penstock.engines.micro_batches.object_store import CheckpointCopy
from penstock.engines.micro_batches.recovery.lost_checkpoint import is_takeover_unfinished, start_over, take_up
from penstock.engines.micro_batches.recovery.moved_stores import move_stores
from penstock.engines.micro_batches.recovery.rebuild import check_put_back
from penstock.engines.micro_batches.source import PenstockSource
from penstock.engines.micro_batches.spark_metrics import observed
from penstock.engines.micro_batches.spark_tasks import shuffle_width
from penstock.engines.micro_batches.takeovers import (
    ResetElsewhereError,
    TakenOverError,
    check_changelog_ends,
    check_group,
    note_changelog_ends,
)
from penstock.engines.micro_batches.worker.stage import run_stage
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.offsets.start_positions import read_settings_of, take_up_group_resets
from penstock.engines.spark import fault_injection
from penstock.engines.spark.crash_notes import LONG_STEP_S, notes_of_dead_workers, notes_of_workers
from penstock.engines.spark.failures import is_lost_process, sealed_error_in, spark_error_reason, spark_error_text
from penstock.engines.spark.job import SparkJob, load_job
from penstock.engines.spark.jvm import silence_py4j
from penstock.engines.spark.own_session import (
    active_session,
    clone_session,
    commit_trigger,
    configured_source,
    has_ended,
    keep_rdd_to_df,
    load_source,
    map_in_arrow,
)
from penstock.engines.spark.progress import BatchProgress, batch_progress
from penstock.engines.spark.pyspark_warnings import quiet_pyspark
from penstock.engines.spark.session import dataframe_query_settings, users_spark_settings
from penstock.engines.spark.spark_log import QUERY, drop_damaged
from penstock.engines.spark.topology_bytes import pickle_app
from penstock.engines.spark.worker_process import prepare_worker
from penstock.errors import AppFailedError, LogError, PenstockError, UnknownTopicError
from penstock.log.groups.offset_regressions import MARK
from penstock.state.checkpoint import local_directory
from penstock.state.restores.restore_progress import Restore, forget_restores, read_restores
from penstock.topology.configured import with_serdes
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.dataframes import DataFrameQuery
    from penstock.engines.engine import Start
    from penstock.engines.offsets.offsets import Offsets
    from penstock.log.base import GroupMembership, Lease, TopicLog, TopicPartition
    from penstock.query.instances import HostInfo
    from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology
    from penstock.topology.topology import Topology

__all__ = ["BatchQuery", "MicroBatchesEngine", "prepare_job", "stage_descriptions", "warm_up"]

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

        from penstock.engines.micro_batches.worker.task_attempt import log_of

        job = load_job(data)
        job.topology  # noqa: B018 - unpickled with its functions and what they import
        log_of(job).end_offsets(list(job.plan.external_topics))
        pl.LazyFrame({"a": [""]}).select(pl.col("a").str.len_bytes()).collect()
        yield from batches

    return load


def prepare_job(app: PlannedApp, lease: Lease, *, parallelism: int, until_latest: bool) -> SparkJob:
    """Compare the checkpoint with the application, note the new plan in it, and make the job for the workers.

    Args:
        app: The application.
        lease: Its lease.
        parallelism: The number of Spark tasks that can run at once.
        until_latest: Whether the run ends at the present ends of the topics.

    Raises:
        CheckpointMismatchError: The checkpoint is of another application or an incompatible topology.
        MissingSegmentError: A store is put back, or moves to another sub-topology, and segments of it are lost.
        TopologyError: A function cannot be pickled.
    """
    topology, config, plan, log = app.topology, app.config, app.plan, app.log
    pickled_app = pickle_app(topology, config)
    checkpoint = app.checkpoint
    before = resumable_plan(checkpoint, app.document, plan, log, config["penstock.state.drop"])
    check_log_identity(checkpoint, log, app.application, loss_fails=app.loss_fails)
    lost: frozenset[str] = frozenset()
    if before is not None:
        before, lost = _as_others_left_it(app, lease, before)
    if before is not None:
        check_group(checkpoint, log, app.application)
    if before is not None:
        check_put_back(app, before)
    prepare_changelogs(app, before, lost)
    if before is not None:
        move_stores(app, before, lease)
    note_changelog_ends(checkpoint, log, [each.topic for each in app.changelogs])
    stored = StoredPlan.first(app.document, app.fingerprint)
    if before is not None:
        stored = before.followed_by(app.document, app.fingerprint, log.ledger(app.application))
    write_stored_plan(checkpoint, stored, topology, config)
    note_application(app, stored, lease)
    return SparkJob(
        plan=plan,
        pickled_app=pickled_app,
        log_url=log.url,
        log_settings=log_settings(config),
        epoch=lease.epoch,
        checkpoint=checkpoint,
        replica_root=app.places.replicas,
        fingerprint=app.fingerprint,
        accepts=stored.fingerprints,
        unsegmented=dict(stored.unsegmented),
        exactly_once=config["processing.guarantee"] == "exactly_once_v2",
        parallelism=parallelism,
        reading=read_settings_of(topology, plan, config),
        tick_ms=int(config["penstock.tick.interval.ms"]) if plan.ticks else 0,
        until_latest=until_latest,
        driver_pid=os.getpid(),
        changelogs={each.store: each.topic for each in app.changelogs if each.store},
        numbers_topic=next((each.topic for each in app.changelogs if not each.store), None),
        journal=app.places.journal,
        group_resets=take_up_group_resets(checkpoint, log, lease, plan.external_topics),
    )


def _as_others_left_it(app: PlannedApp, lease: Lease, before: StoredPlan) -> tuple[StoredPlan | None, frozenset[str]]:
    """Take up the work of other programs on the application since its checkpoint was written.

    Returns:
        The plan that the checkpoint now holds, and the changelogs that do not hold the whole contents of their stores.
    """
    try:
        if is_takeover_unfinished(app.checkpoint):
            take_up(app.topology, app.config, app.log, lease, None)
        return before, check_changelog_ends(app, before.homes())
    except TakenOverError as error:
        take_up(app.topology, app.config, app.log, lease, error)
        return read_stored_plan(app.checkpoint), frozenset()
    except ResetElsewhereError as error:
        start_over(app.config, app.log, error)
        check_log_identity(app.checkpoint, app.log, app.application, loss_fails=app.loss_fails)
        return None, frozenset()


_NOTE_S = 5.0
_MOST_RESTARTS = 3  # of the query, without a batch in between


class MicroBatchesEngine:
    """The `Engine` of micro-batches.

    The checkpoint holds its plan and its positions; the group's offsets are committed for other tools.

    Args:
        config: The application's settings.
        on_batch: Called on the driver after each batch that did something.
        reads_nothing: Whether it only finishes what is half done, for a conversion.
    """

    mode = "micro_batch"
    plans_at_resume = False
    has_batches = True
    look_s = 0.1
    spare_slots = 0
    shares_tasks = False
    stored_plan: StoredPlan | None = None

    def __init__(
        self, config: StreamsConfig, on_batch: Callable[[BatchProgress], None], *, reads_nothing: bool
    ) -> None:
        self._config, self._on_batch, self._reads_nothing = config, on_batch, reads_nothing
        self._query: BatchQuery | None = None
        self._started: Start | None = None
        self._changelogs: list[str] = []
        self._replicas: dict[str, dict[str, int | None]] = {}
        self._committed_batch, self._noted = -1, time.monotonic()
        self._restarts = 0
        self._crashed: tuple[object, object] = (None, None)  # the task that ended its process last, and its batch

    def check(self, topology: Topology, *, until_latest: bool) -> None:
        """Accept every topology."""

    def may_share(self, *, until_latest: bool) -> bool:  # noqa: ARG002 - the engines' interface
        """Return False: one driver plans each batch."""
        return False

    def sharing_identity(self, app: PlannedApp) -> str:  # noqa: ARG002 - the engines' interface
        """Return nothing: no tasks are shared."""
        return ""

    def why_not_shared(self, app: PlannedApp) -> str:  # noqa: ARG002 - the engines' interface
        """Return why not."""
        return "it runs in micro-batches"

    def share(self) -> None:
        """Do nothing: no tasks are shared."""

    def forget_dead(self, app: PlannedApp) -> None:
        """Do nothing: it has no members."""

    def read_notes(self, log: TopicLog) -> None:
        """Do nothing: the checkpoint has the plan."""

    def take_notes(self, log: TopicLog, lease: Lease | None) -> bool:  # noqa: ARG002 - the engines' interface
        """Return that nothing has changed: the checkpoint has the plan."""
        return False

    @property
    def spark_settings(self) -> Mapping[str, Any]:
        """The user's settings of Spark."""
        return users_spark_settings(self._config)

    def cores_to_leave(self, cores: int, topology: Topology) -> int:  # noqa: ARG002 - the engines' interface
        """Return none: all are free between batches."""
        return 0

    def keeps(self, cores: int) -> bool:  # noqa: ARG002 - the engines' interface
        """Return that they are free between batches."""
        return False

    def topics_of_group(self, plan: PhysicalPlan) -> list[str]:
        """Return the source topics."""
        return list(plan.external_topics)

    def known_offsets(self) -> Mapping[TopicPartition, int]:
        """Return nothing: the driver commits for its tasks."""
        return {}

    def start(self, start: Start) -> None:
        """Compare the checkpoint with the application, and start the query."""
        start.doing("planning the query")
        app, self._started = start.app, start
        job = prepare_job(app, start.own_lease, parallelism=start.slots, until_latest=start.until_latest)
        job = replace(job, reads_nothing=self._reads_nothing)
        self._changelogs = [*job.changelogs.values(), *([job.numbers_topic] if job.numbers_topic else [])]
        settings = dataframe_query_settings(self.spark_settings, job.checkpoint)
        topology = with_serdes(app.topology, self._config)
        queries = []
        if not self._reads_nothing:  # what is half done is in their topics
            queries = dataframe_queries(topology, app.log, start.own_lease, job.checkpoint, settings)
        self._query = BatchQuery(start.spark.session, job, self._batch_done, queries)
        self._query.start(int(self._config["commit.interval.ms"]))
        start.doing("starting the query and its Python workers")

    def _batch_done(self, progress: BatchProgress) -> None:
        for task in progress.tasks:
            if "replica" in task:
                self._replicas.setdefault(task["task"], {}).update([task["replica"]])
        self._on_batch(progress)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the query for a while; return whether it has ended. Raise the error that ended it, if any."""
        assert self._query is not None, "call start() first"  # noqa: S101
        return self._query.wait(timeout_s)

    def wake(self) -> None:
        """Do nothing: the wait, which is Spark's, is short."""

    def has_running_tasks(self) -> bool:
        """Return whether a batch has run, or workers are ready and there is nothing to do yet."""
        return self._query is not None and self._query.has_running_tasks()

    def has_room_for(self, plan: PhysicalPlan) -> int:
        """Return the number of tasks of the widest stage."""
        return max(plan.run_count(level) for level in range(plan.levels))

    def extend(self, start: Start) -> bool:  # noqa: ARG002 - the engines' interface
        """Return that a running query keeps its plan."""
        return False

    def serve_at(self, address: HostInfo | None) -> None:
        """Do nothing: instances are registered in the checkpoint."""

    def wants_plan(self) -> bool:
        """Return False: the plan says which tasks there are."""
        return False

    def may_recover(self, error: PenstockError, is_removed: Callable[[], bool]) -> bool:  # noqa: ARG002 - as above
        """Return whether the loss of a process has ended the query, and not the same task's as before."""
        if not error.facts.get("lost_process") or self._restarts >= _MOST_RESTARTS:
            return False
        crashed = (error.facts.get("task"), error.facts.get("batch"))
        if crashed[0] is not None and crashed == self._crashed:  # it would end its process again
            return False
        self._crashed = crashed
        self._restarts += 1
        _log.warning("%s; the query is started again (%d of %d)", error.message, self._restarts, _MOST_RESTARTS)
        return True

    def suspend(self) -> None:
        """End the query, and commit the offsets of its last batch."""
        self.stop()
        self.commit()

    def resume(self, start: Start) -> None:
        """Start the query again; the new lease fences a task that still runs somewhere."""
        start.attend()
        self.start(start)

    def show_membership(self, membership: GroupMembership | tuple[()]) -> None:
        """Do nothing: the driver commits with the lease."""

    def commit(self) -> None:
        """Commit the offsets of the last batch to the group, for lag tools; the checkpoint holds the truth."""
        committed = self._query.committed() if self._query is not None else None
        if committed is None or committed[0] <= self._committed_batch or self._started is None:
            return
        fault_injection.reach(5, committed[0], "driver", os.getpid())
        self._committed_batch = committed[0]
        self._restarts = 0
        app = self._started.app
        try:
            mark = f"{MARK} batch {committed[0]}"
            app.log.commit_offsets(app.application, committed[1], mark, self._started.lease)
        except (LogError, UnknownTopicError) as error:  # lag tools will see it late, nothing else needs it
            _log.warning("the group's offsets are not committed: %s", error)
        if time.monotonic() - self._noted > _NOTE_S:
            self.note_end()

    def note_end(self) -> None:
        """Note the ends of the changelogs, so that the next start sees whether others have written to them."""
        if self._started is None or not self._changelogs:
            return
        self._noted, app = time.monotonic(), self._started.app
        try:
            note_changelog_ends(app.checkpoint, app.log, self._changelogs, self._committed_batch)
        except PenstockError as error:  # without the note, the next start compares the records
            _log.warning("the ends of the changelogs are not noted: %s", error)

    def stop(self) -> None:
        """End the query, between two batches if that comes soon."""
        if self._query is not None:
            self._query.stop()

    @property
    def parallelism(self) -> int:
        """The most tasks that Spark runs at a time."""
        return 0 if self._query is None else self._query.parallelism

    def step(self) -> str:
        """Return nothing: Spark does not say what it does before the first batch."""
        return ""

    def phase(self) -> str:
        """Describe what the query is doing now."""
        return "" if self._query is None else self._query.phase()

    def under_way(self) -> Sequence[Restore]:
        """Return the restores of tasks that take longer than a second."""
        return () if self._query is None else self._query.under_way()

    def long_steps(self) -> Sequence[Mapping[str, Any]]:
        """Return the tasks of this machine that are in one step of the batch for long."""
        return () if self._query is None else self._query.long_steps()

    def replicas(self) -> dict[str, dict[str, int | None]]:
        """Return the machines on which each task has run, with the batch of the replica there."""
        return {task: dict(machines) for task, machines in self._replicas.items()}
