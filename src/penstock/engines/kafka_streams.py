"""KafkaStreams: a topology as a running application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from penstock.base.java_names import with_java_names
from penstock.base.log_lines import Work, ended_without_trace, lines_on_terminal, own_logger
from penstock.config import StreamsConfig
from penstock.engines.app_metrics import AppMetrics
from penstock.engines.application_figures import BatchMeter, RunLog
from penstock.engines.committed_state.interactive_queries import StoreQueries
from penstock.engines.extensions import ApplicationExtensions, ApplicationHandle
from penstock.engines.http_port import HttpPort
from penstock.engines.lifecycle import Lifecycle, State, StateListener
from penstock.engines.supervisor import Supervisor
from penstock.errors import ConfigError, EnvironmentProblemError, FencedError, InvalidStateError, PenstockError
from penstock.topology.dataframes import for_application, session_of
from penstock.topology.operations.functions import Function
from penstock.topology.topology import require_topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.application_figures import RunFigures
    from penstock.engines.application_run import Run
    from penstock.engines.event_loop import AsyncKafkaStreams, Embedding
    from penstock.engines.spark.progress import BatchProgress
    from penstock.metrics import BatchHistory, MetricRegistry, PartitionLag
    from penstock.query import StateQueryRequest, StateQueryResult, StoreQueryParameters
    from penstock.query.instances import KeyQueryMetadata, StreamsMetadata
    from penstock.query.placement import LagInfo
    from penstock.state.restores.restore_progress import StateRestoreListener
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["KafkaStreams", "State", "StateListener"]

S = TypeVar("S")

_log = own_logger("penstock.app")
_check_called = partial(Function.wrap, expression=False)


@with_java_names
class KafkaStreams:
    """An application that runs a topology on Spark: Kafka's ``KafkaStreams``.

    Args:
        topology: The topology that ``StreamsBuilder.build()`` returned.
        config: Settings by Kafka's names; ``application.id`` and ``bootstrap.servers`` are required.
        session: The Spark session to run in; by default that of the topology's DataFrames or the active one, or else a
            new one from the ``spark.*`` settings. It is not changed.
        dataframes: Streaming DataFrames by name, in place of those passed to the builder.

    Example:
        KafkaStreams(topology, {"application.id": "os-check", "bootstrap.servers": "sqlite:///logs.db"}).run()
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any],
        *,
        session: SparkSession | None = None,
        dataframes: Mapping[str, DataFrame] | None = None,
    ) -> None:
        require_topology(topology, "KafkaStreams")
        if session is not None and not hasattr(session, "sparkContext"):
            if type(session).__module__.startswith("pyspark."):
                from penstock.engines.spark.session import require_classic

                require_classic(session)
            raise ConfigError(f"session= must be a SparkSession, not {type(session).__name__} {session!r}")
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.config.require("application.id", "bootstrap.servers")
        self.topology = for_application(topology, self.config["application.id"], dataframes or {})
        self._session = session or session_of(self.topology)
        self._lifecycle = Lifecycle(self.config["application.id"])
        self._restore_listener: StateRestoreListener | None = None
        self._progress_listeners: list[Callable[[BatchProgress], None]] = []
        self._meter = BatchMeter(self.config["application.id"])
        self._metrics = AppMetrics(self.topology, self.config, lambda: self.state)
        self._queries = StoreQueries(self.topology, self.config, lambda: self.state)
        self._extensions = ApplicationExtensions()
        self._metrics.also = self._extensions.batch_done
        self._port = HttpPort(self.config, self._queries, self._metrics, self._extensions, lambda: self.state)
        self._supervisor: Supervisor | None = None
        self._embedding: Embedding | None = None

    @property
    def state(self) -> State:
        """The current state of the application."""
        return self._lifecycle.state

    @property
    def error(self) -> PenstockError | None:
        """The error that made the application fail; None while it has not."""
        return self._lifecycle.error

    @property
    def _run(self) -> Run | None:
        return None if self._supervisor is None else self._supervisor.run

    def set_state_listener(self, listener: StateListener) -> None:
        """Call ``listener(new, old)`` at each change of state (``setStateListener``)."""
        self._lifecycle.require_created("set_state_listener")
        _check_called(listener, verb="set_state_listener", allowed=(2,), passed="(new state, old state)")
        self._lifecycle.state_listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[PenstockError], None]) -> None:
        """Call ``handler(error)`` when the application fails, before its state becomes ERROR."""
        self._lifecycle.require_created("set_uncaught_exception_handler")
        _check_called(handler, verb="set_uncaught_exception_handler", allowed=(1,), passed="(error)")
        self._lifecycle.on_error = handler

    def set_global_state_restore_listener(self, listener: StateRestoreListener) -> None:
        """Call a listener while stores are restored in continuous mode (``setGlobalStateRestoreListener``)."""
        self._lifecycle.require_created("set_global_state_restore_listener")
        self._restore_listener = listener

    def add_progress_listener(self, listener: Callable[[BatchProgress], None]) -> None:
        """Call ``listener(progress)`` after each micro-batch with records or other work."""
        _check_called(listener, verb="add_progress_listener", allowed=(1,), passed="(progress)")
        self._progress_listeners.append(listener)

    def start(self, *, until: Literal["stopped", "latest"] = "stopped") -> None:
        """Check the topology, topics and settings, start the query, and return.

        The state is REBALANCING until tasks run; then it becomes RUNNING (see `set_state_listener`). Errors after
        the checks end the application, and are raised by `wait`.

        Args:
            until: "latest" stops when the records that exist now have been processed.

        Raises:
            UnknownTopicError: A source topic does not exist.
            CoPartitionError: Topics that are joined have different partition counts.
            CheckpointMismatchError: The checkpoint belongs to another application or topology.
            FencedError: Another instance of the application runs.
            EnvironmentProblemError: PySpark, Java, a directory or a port cannot be used.
        """
        self._start(until, waits_for_lease=False)

    def _start(self, until: Literal["stopped", "latest"], *, waits_for_lease: bool) -> None:
        self._lifecycle.require_created("start")
        _require_pyspark()
        self._start_ahead()
        from penstock.engines.application_run import Run

        self._extensions.load(self._handle())
        work = Work(application=self.config["application.id"])
        work.run(partial(self._lifecycle.become, State.REBALANCING))
        run = Run(self.topology, self.config, self._session, self._progress_listeners, self._meter)
        run.restore_listener, run.metrics = self._restore_listener, self._metrics
        run.waits_for_lease, run.is_stopped = waits_for_lease, self._lifecycle.stop.is_set
        self._metrics.plan = lambda: run.plan
        self._supervisor = Supervisor(self._lifecycle, run, self._port, self._extensions)
        self._supervisor.start(work, until_latest=until == "latest")

    def _start_ahead(self) -> None:
        """Start Spark's JVM while the engine is imported: each takes a second."""
        from penstock.base.late_pandas import keep_pandas_out
        from penstock.engines.spark.session import launch_ahead, plans_queries, users_spark_settings

        keep_pandas_out()
        launch_ahead(
            users_spark_settings(self.config),
            self._session,
            rows_in_jvm=bool(self.topology.dataframes),
            uses_sql=plans_queries(self.config),
        )

    def _handle(self) -> ApplicationHandle:
        return ApplicationHandle(
            self.config,
            self.topology,
            state=lambda: self.state,
            batches=self._metrics.batches,
            queries=self._queries.service,
            stop=self._lifecycle.stop.set,
        )

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the application. Work that has not been committed is repeated after the next start. Safe to call twice.

        Args:
            timeout_ms: The time to wait; by default ``penstock.shutdown.timeout.ms``.

        Returns:
            Whether the application has stopped within that time.
        """
        if self.state is State.CREATED:
            self._lifecycle.become(State.NOT_RUNNING)
        self._lifecycle.stop.set()
        wait_ms = self.config["penstock.shutdown.timeout.ms"] if timeout_ms is None else timeout_ms
        ended = self._lifecycle.await_end(wait_ms / 1000)
        if ended:
            self._queries.close()  # stores that were opened after the end
        return ended

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the application has stopped, and has released everything: the same application can start again.

        Args:
            timeout_ms: The time to wait; by default without limit.

        Returns:
            Whether the application has stopped within that time.

        Raises:
            PenstockError: The error that made the application fail.
        """
        return self._lifecycle.wait(None if timeout_ms is None else timeout_ms / 1000)

    def run(self, *, until: Literal["stopped", "latest"] = "stopped", wait: bool = True) -> None:
        """Start, and block until a signal, ``close`` or an error, which is raised, stops the application.

        SIGINT and SIGTERM stop it cleanly; a second one ends the process at once, and loses nothing either. Each change
        of state, the figures every ten seconds, and a summary at the end go to the logger ``penstock.app``. On a
        terminal and under spark-submit they are shown where the program has not set up logging, too. A program that
        another instance has taken over from ends with a sentence, not with a stack trace.

        Args:
            until: "latest" stops when the records that exist at the start have been processed.
            wait: In micro-batches, wait while another instance of the application runs, with Spark started, and take
                over when that one has ended or died. False, and until "latest": FencedError.
        """
        _require_pyspark()
        from penstock.engines.spark.jvm import interruptible, stop_on_signals
        from penstock.engines.spark.session import running_session

        self._session = self._session or running_session()  # Spark looks for it in this thread alone
        stopping = self._lifecycle.stop
        with ended_without_trace((FencedError,)), lines_on_terminal(_log), stop_on_signals(stopping) as signals:
            interruptible(lambda: self._start(until, waits_for_lease=wait), stopping, signals)
            report = RunLog(self.figures)
            try:
                while not self.wait(500):
                    report.tick()
            finally:
                report.end()

    def reset(self) -> tuple[str, ...]:
        """Delete everything the application has stored: state, checkpoint, internal topics, ledger, committed offsets.

        Output topics are not changed. The next start reads from the beginning (``auto.offset.reset``). This is Kafka's
        ``cleanUp()`` together with its application reset tool.

        Returns:
            The folders and topics that were deleted; none if the application has never run.

        Raises:
            FencedError: The application is running.
            CheckpointMismatchError: It has run, but its checkpoint is not in the place of these settings.
        """
        self._lifecycle.require_created("reset")
        from penstock.engines.application.locations import open_app_log
        from penstock.engines.reset import find_resources, forget
        from penstock.log.leases import held_lease

        with open_app_log(self.config) as log:
            resources = find_resources(log, self.config, self.topology)
            resources.require_checkpoint()
            if not resources.has_run and resources.plan is None and resources.application not in log.groups():
                _log.warning("%s has not run: there is nothing at %s", resources.application, resources.checkpoint)
                return ()
            with held_lease(log, resources.application, "reset") as keeper:
                return forget(log, resources, keeper.lease)

    def to_dataframe(self, topic: str, *, key_serde: Any = None, value_serde: Any = None) -> DataFrame:
        """Read a topic as a streaming DataFrame of topic, partition, offset, timestamp, key and value.

        Keys and values are binary, or have the type of a serde that Spark can read (text, JSON, whole numbers).
        """
        run = self._run
        if run is None or run.spark is None or run.log is None:
            raise InvalidStateError("the application has not started Spark yet", hint="Call start() first.")
        from penstock.engines.dataframes import topic_frame

        run.warn_of_taken_cores()
        return topic_frame(run.spark.users_session, run.log, topic, key_serde, value_serde)

    # Queries

    @overload
    def store(self, parameters: str) -> Any: ...

    @overload
    def store(self, parameters: StoreQueryParameters[S]) -> S: ...

    def store(self, parameters: str | StoreQueryParameters[Any]) -> Any:
        """Return a read-only store over all partitions; Kafka's ``store``. Queries see committed state only.

        Type checkers know its methods if a type is asked for:
        ``store(StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store()))``.

        Args:
            parameters: The store's name, or `StoreQueryParameters` for a type, one partition, or a stopped application.

        Example:
            streams.store("os-counts").get("linux")

        Raises:
            InvalidStateError: The application does not run, and stale stores are not enabled.
            StateError: There is no such store, or it is of another type.
        """
        return self._queries.store(parameters)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Answer a request partition by partition; Kafka's ``query`` (interactive queries, version 2).

        Example:
            streams.query(StateQueryRequest.in_store("os-counts").with_query(KeyQuery.with_key("linux")))

        Raises:
            StateError: There is no such store.
        """
        return self._queries.query(request)

    def query_metadata_for_key(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return the instances that answer for a key, and its partition; Kafka's ``queryMetadataForKey``."""
        return self._queries.metadata_of_key(store, key)

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have a store; Kafka's ``streamsMetadataForStore``."""
        return self._queries.instances_with(store)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return all registered instances; Kafka's ``metadataForAllStreamsClients``."""
        return self._queries.instances()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return by store and partition how far the copies on this machine are behind (``allLocalStorePartitionLags``).

        In continuous mode the replicas of threads and standbys of this machine, and copies that this process has made
        for queries, by offsets of the changelog. In micro-batches all answers are those of the newest batch.

        Example:
            streams.all_local_store_partition_lags()["os-counts"][0].offset_lag
        """
        return self._queries.lags()

    @property
    def query_url(self) -> str | None:
        """The URL of this application's query server; None if it has none."""
        return self._port.url

    @property
    def console_url(self) -> str | None:
        """The address of the web console with its token, at the port of ``penstock.http.port``; None if there is none.

        Anybody who knows the address can see what the application does, and the messages of its log.
        """
        return self._extensions.url("console")

    # Figures

    @property
    def metrics(self) -> MetricRegistry:
        """The metrics under Kafka's groups, names, tags and units: ``KafkaStreams.metrics()``.

        Totals count since the start of this object. Times of commits and polls are those of micro-batches or of looks
        at stream threads; the largest latency is that of a batch's mean.
        """
        self._metrics.catch_up()
        return self._metrics.registry

    @property
    def batches(self) -> BatchHistory:
        """The last 600 batches with their steps, skew, lags and tasks; of stream threads, one about every second."""
        self._metrics.catch_up()
        return self._metrics.batches

    def exported_metrics(self, matching: str = "") -> dict[str, Any]:
        """Return the metrics, the newest batch and the lags for JSON: what `penstock metrics --json` prints.

        Args:
            matching: A regular expression that ``<group>:<name>`` must contain; empty: all.

        Raises:
            ConfigError: The expression is not a regular expression.
        """
        return self._metrics.exported(matching)

    def partition_lags(self) -> tuple[PartitionLag, ...]:
        """Return how far each source partition is behind, in records and seconds, as of about the last second."""
        return self._metrics.lags()

    def figures(self) -> RunFigures:
        """Return figures since the start: state, records, rate, lag, and seconds for each batch."""
        return self._meter.figures(self.state.value)

    def _repr_html_(self) -> str:
        """Return the figures as HTML for notebooks."""
        return self.figures()._repr_html_()

    # The plan

    def explain(self) -> str:
        """Describe the plan: stages, tasks, stores, and the operators that run by column. Does not start anything."""
        from penstock.topology.plan.explain import explain_text

        return explain_text(*self._explained())

    def explain_json(self) -> dict[str, Any]:
        """Return the plan of `explain` as plain data."""
        from penstock.topology.plan.explain import explain_json

        return explain_json(*self._explained())

    def _explained(self) -> tuple[PhysicalPlan, Topology, dict[int, str | None], StreamsConfig]:
        from penstock.engines.application.application_mode import in_own_mode
        from penstock.engines.application.locations import open_app_log
        from penstock.engines.application.planning import plan_for
        from penstock.runtime.task import sliced_reasons

        with open_app_log(self.config) as log:
            plan, config = plan_for(self.topology, self.config, log), in_own_mode(self.config, log)
        return plan, self.topology, sliced_reasons(self.topology, config, plan), config

    def metadata(self) -> dict[str, Any]:
        """Return the state, the tasks and the directories as plain data.

        ``replicas_on`` maps each task to the machines with a replica of its state, and these to its batch: all but the
        newest are standbys. In continuous mode it is the number of records that a standby lacks.
        """
        from penstock.engines.application.locations import Locations

        places = (self._run.places if self._run else None) or Locations.of(self.config)
        plan, log, lease = (self._run.plan, self._run.log, self._run.lease) if self._run else (None, None, None)
        tasks = [f"{s.id}_{p}" for s in plan.subtopologies for p in range(s.tasks)] if plan else []
        return {
            "application_id": self.config["application.id"],
            "state": self.state.value,
            "log": log.url if log is not None else str(self.config["bootstrap.servers"]),
            "checkpoint": places.checkpoint,
            "replicas": places.replicas,
            "tasks": tasks,
            "replicas_on": self._run.engine.replicas() if self._run else {},
            "epoch": lease.epoch if lease is not None else None,
        }

    def __enter__(self) -> Self:
        if self.state is State.CREATED:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncKafkaStreams:
        """Start inside an event loop, without blocking it; the block's end stops the application.

        If the application fails, the block is cancelled and raises the application's error. Signals stay the host's.

        Example:
            async with KafkaStreams(topology, config) as app:
                count = await app.store("os-counts").get("linux")
        """
        from penstock.engines.event_loop import Embedding

        _require_pyspark()
        if "pyspark" in sys.modules:  # else there is none, and its import would hold up the loop
            from penstock.engines.spark.session import running_session

            self._session = self._session or running_session()  # Spark looks for it in this thread alone
        self._embedding = Embedding(self, self._lifecycle)
        return await self._embedding.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._embedding is not None:
            await self._embedding.leave(kind, error, trace)


def _require_pyspark() -> None:
    """Raise EnvironmentProblemError in an installation for tests alone, which has no PySpark."""
    if find_spec("pyspark") is None:
        raise EnvironmentProblemError(
            "an application runs on Spark, and PySpark is not installed",
            hint='Install it: pip install "pyspark>=4.2,<5" pandas. TopologyTestDriver works without it.',
        )
