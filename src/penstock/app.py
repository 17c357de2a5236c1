"""KafkaStreams: a topology as a running application."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.config import StreamsConfig
from penstock.console.recorder import Recorder
from penstock.console.shown import ShownApplication
from penstock.errors import (
    AppFailedError,
    ConfigError,
    EnvironmentProblemError,
    FencedError,
    InvalidStateError,
    PenstockError,
)
from penstock.java_names import with_java_names
from penstock.log_lines import Work, own_logger
from penstock.spark.driver.app_metrics import AppMetrics
from penstock.spark.driver.figures import Meter, RunLog
from penstock.spark.failures import spark_is_gone
from penstock.states import State, StateListener
from penstock.terminal.app_lines import lines_on_terminal, told_briefly
from penstock.topology.dataframes import for_application, session_of
from penstock.topology.operations.functions import Function
from penstock.topology.topology import require_topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.plan import PhysicalPlan
    from penstock.spark.batch.progress import BatchProgress
    from penstock.spark.driver.running import Run
    from penstock.state.restores.listener import StateRestoreListener
    from penstock.topology.topology import Topology

__all__ = ["KafkaStreams", "State", "StateListener"]

_log = own_logger(__name__)
_LOOK_S = 0.1
_check_called = partial(Function.wrap, expression=False)
_ENDED = (State.NOT_RUNNING, State.ERROR)


@with_java_names
class KafkaStreams(ShownApplication):
    """An application that runs a topology on Spark: Kafka's ``KafkaStreams``.

    Args:
        topology: The topology that ``StreamsBuilder.build()`` returned.
        config: Settings by Kafka's names; ``application.id`` and ``bootstrap.servers`` are required.
        session: The Spark session to run in; by default that of the topology's DataFrames or the active one, or else a
            new one from the ``spark.*`` settings. It is not changed: queries run in a copy of it.
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
            raise ConfigError(f"session= must be a SparkSession, not {type(session).__name__} {session!r}")
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.config.require("application.id", "bootstrap.servers")
        self.topology = for_application(topology, self.config["application.id"], dataframes or {})
        self._session = session or session_of(self.topology)
        self._state = State.CREATED
        self._changed = threading.Condition()
        self._opening = threading.Lock()
        self._ended = False  # set after the listeners have been called
        self._state_listener: StateListener | None = None
        self._on_error: Callable[[PenstockError], None] | None = None
        self._restore_listener: StateRestoreListener | None = None
        self._progress_listeners: list[Callable[[BatchProgress], None]] = []
        self._meter = Meter(self.config["application.id"])
        self._app_metrics = AppMetrics(self.topology, self.config, lambda: self._state)
        self._recorder = Recorder.of(self.config, self._state_name, self._app_metrics.batches)
        self._app_metrics.also = self._recorder.take
        self._run: Run | None = None
        self._watcher: threading.Thread | None = None
        self._error: PenstockError | None = None
        self._stop = threading.Event()

    @property
    def state(self) -> State:
        """The current state of the application."""
        return self._state

    def _state_name(self) -> str:
        return self._state.value

    @property
    def error(self) -> PenstockError | None:
        """The error that made the application fail; None while it has not."""
        return self._error

    def set_state_listener(self, listener: StateListener) -> None:
        """Call ``listener(new, old)`` at each change of state (``setStateListener``)."""
        self._require_created("set_state_listener")
        _check_called(listener, verb="set_state_listener", allowed=(2,), passed="(new state, old state)")
        self._state_listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[PenstockError], None]) -> None:
        """Call ``handler(error)`` when the application fails, before its state becomes ERROR."""
        self._require_created("set_uncaught_exception_handler")
        _check_called(handler, verb="set_uncaught_exception_handler", allowed=(1,), passed="(error)")
        self._on_error = handler

    def set_global_state_restore_listener(self, listener: StateRestoreListener) -> None:
        """Call a listener while stores are restored in continuous mode (``setGlobalStateRestoreListener``)."""
        self._require_created("set_global_state_restore_listener")
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
        self._require_created("start")
        _require_pyspark()
        if self.config.without_effect:
            _log.warning(
                "settings without effect here, accepted so that a config can be shared with Kafka Streams: %s",
                ", ".join(sorted(self.config.without_effect)),
            )
        if others := self.config.of_other_mode:
            mode = self.config["processing.mode"]
            _log.warning("settings without effect with processing.mode=%s: %s", mode, ", ".join(sorted(others)))
        work = Work(application=self.config["application.id"])
        work.run(partial(self._become, State.REBALANCING))
        from penstock.console.drawing import watched
        from penstock.spark.driver.running import Run

        run = self._run = Run(self.topology, self.config, self._session, self._progress_listeners, self._meter)
        run.restore_listener, run.metrics = self._restore_listener, self._app_metrics
        self._app_metrics.plan = lambda: run.plan
        try:
            work.run(partial(run.launch, until_latest=until == "latest"))
            self._recorder.begin(watched(run))
            self._show()
        except BaseException as error:
            self._error = error if isinstance(error, PenstockError) else None
            self._stop_serving()
            run.release()
            self._become(State.NOT_RUNNING if isinstance(error, KeyboardInterrupt) else State.ERROR)
            raise
        self._watcher = threading.Thread(target=work.run, args=(self._watch,), name="penstock-watcher", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        run = self._run
        assert run is not None  # noqa: S101 - set by start()
        try:
            while not self._ended_after(run):
                if self._stop.is_set() or self._is_asked_to_stop():
                    self._stop.set()
                    run.stop()
                elif (plan := run.new_plan()) is not None:
                    self._become(State.REBALANCING)
                    run.rebalance(plan)
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody must wait for ever for a watcher that is gone
            if not self._stop.is_set():
                self._fail(error if isinstance(error, PenstockError) else spark_is_gone(error))
                return
        if self._state is State.REBALANCING and not self._stop.is_set():
            self._become(State.RUNNING)  # the query has ended by itself: its tasks have run
        self._become(State.PENDING_SHUTDOWN)
        self._stop_serving()
        run.release(commit=True)
        self._become(State.NOT_RUNNING)

    def _ended_after(self, run: Run) -> bool:
        """Watch the run for a while, and return whether it has ended. A query that lost its processes is restarted."""
        try:
            has_ended = run.wait(_LOOK_S)
        except PenstockError as error:
            if self._stop.is_set() or not run.may_recover(error):
                raise
            self._become(State.REBALANCING)
            run.recover()
            return False
        if self._state is State.REBALANCING and not has_ended and run.has_running_tasks():
            self._become(State.RUNNING)
        return has_ended

    def _fail(self, error: PenstockError) -> None:
        self._error = self._recorder.failure = error
        self._become(State.PENDING_ERROR)
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("the uncaught exception handler raised")
        self._stop_serving()
        if self._run is not None:
            self._run.release()
        self._become(State.ERROR)

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the application. Work that has not been committed is repeated after the next start. Safe to call twice.

        Args:
            timeout_ms: The time to wait; by default ``penstock.shutdown.timeout.ms``.

        Returns:
            Whether the application has stopped within that time.
        """
        if self._state is State.CREATED:
            self._become(State.NOT_RUNNING)
        self._stop.set()
        wait_ms = self.config["penstock.shutdown.timeout.ms"] if timeout_ms is None else timeout_ms
        ended = self._await_end(wait_ms / 1000)
        if ended:
            self._stop_serving()  # stores that were opened after the end
        return ended

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the application has stopped.

        Args:
            timeout_ms: The time to wait; by default without limit.

        Returns:
            Whether the application has stopped within that time.

        Raises:
            PenstockError: The error that made the application fail.
        """
        ended = self._await_end(None if timeout_ms is None else timeout_ms / 1000)
        if self._error is not None:
            raise self._error
        return ended

    def _await_end(self, timeout_s: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, timeout_s)

    def run(self, *, until: Literal["stopped", "latest"] = "stopped") -> None:
        """Start, and block until a signal, ``close`` or an error, which is raised, stops the application.

        SIGINT and SIGTERM stop it cleanly; a second one ends the process at once, and loses nothing either. Each change
        of state, the figures every ten seconds, and a summary at the end go to the logger ``penstock.app``. On a
        terminal and under spark-submit they are shown where the program has not set up logging, too. A program that
        another instance has taken over from ends with a sentence, not with a stack trace.

        Args:
            until: "latest" stops when the records that exist at the start have been processed.
        """
        _require_pyspark()
        from penstock.spark.session.interrupts import interruptible, stop_on_signals
        from penstock.spark.session.session import running_session

        self._session = self._session or running_session()  # Spark looks for it in this thread alone
        with told_briefly((FencedError,)), lines_on_terminal(_log), stop_on_signals(self._stop):
            interruptible(lambda: self.start(until=until), self._stop)
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
        self._require_created("reset")
        from penstock.log.lease_keeper import held_lease
        from penstock.spark.app_log import open_app_log
        from penstock.spark.recovery.reset import find_resources, forget

        with open_app_log(self.config) as log:
            found = find_resources(log, self.config, self.topology)
            found.require_checkpoint()
            if not found.has_run and found.plan is None and found.application not in log.groups():
                _log.warning("%s has not run: there is nothing at %s", found.application, found.checkpoint)
                return ()
            with held_lease(log, found.application, "reset"):
                return forget(log, found)

    def to_dataframe(self, topic: str, *, key_serde: Any = None, value_serde: Any = None) -> DataFrame:
        """Read a topic as a streaming DataFrame of topic, partition, offset, timestamp, key and value.

        Keys and values are binary, or have the type of a serde that Spark can read (text, JSON, whole numbers).
        """
        run = self._run
        if run is None or run.session is None or run.log is None:
            raise InvalidStateError("the application has no Spark session yet", hint="Call start() first.")
        from penstock.spark.dataframes.from_topics import topic_frame

        return topic_frame(run.session, run.log, topic, key_serde, value_serde)

    def explain(self) -> str:
        """Describe the plan: stages, tasks, stores, and the operators that run by column. Does not start anything."""
        from penstock.plan.explain import explain_text

        return explain_text(*self._explained(), **self._mode())

    def explain_json(self) -> dict[str, Any]:
        """Return the plan of `explain` as plain data."""
        from penstock.plan.explain import explain_json

        return explain_json(*self._explained(), **self._mode())

    def _mode(self) -> dict[str, Any]:
        return {"mode": self.config["processing.mode"]}

    def _explained(self) -> tuple[PhysicalPlan, Topology, dict[int, str | None]]:
        from penstock.spark.app_log import open_app_log
        from penstock.spark.planning import plan_for, sliced_reasons

        with open_app_log(self.config) as log:
            plan = plan_for(self.topology, self.config, log)
        return plan, self.topology, sliced_reasons(self.topology, self.config, plan)

    def metadata(self) -> dict[str, Any]:
        """Return the state, the tasks and the directories as plain data.

        ``replicas_on`` maps each task to the machines with a replica of its state, and these to its batch: all but the
        newest are standbys. In continuous mode it is the number of records that a standby lacks.
        """
        from penstock.spark.checkpoint.locations import Locations

        places = (self._run.places if self._run else None) or Locations.of(self.config)
        plan, log, lease = (self._run.plan, self._run.log, self._run.lease) if self._run else (None, None, None)
        tasks = [f"{s.id}_{p}" for s in plan.subtopologies for p in range(s.tasks)] if plan else []
        return {
            "application_id": self.config["application.id"],
            "state": self._state.value,
            "log": log.url if log is not None else str(self.config["bootstrap.servers"]),
            "checkpoint": places.checkpoint,
            "replicas": places.replicas,
            "tasks": tasks,
            "replicas_on": self._run.replicas() if self._run else {},
            "epoch": lease.epoch if lease is not None else None,
        }

    def __enter__(self) -> Self:
        if self._state is State.CREATED:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_created(self, call: str) -> None:
        if self._state is not State.CREATED:
            raise InvalidStateError(
                f"{call}() is for applications that have not been started; this one is {self._state.value}",
                hint="Make a new KafkaStreams object to start again.",
            )

    def _become(self, state: State) -> None:
        old, self._state = self._state, state
        if old is not state:
            _log.info("%s: %s -> %s", self.config["application.id"], old.value, state.value)
        if self._state_listener is not None and old is not state:
            try:
                self._state_listener(state, old)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("the state listener raised")
        if state is State.ERROR and self._error is None:
            self._error = AppFailedError("the application did not start")
        with self._changed:
            self._ended = state in _ENDED
            self._changed.notify_all()


def _require_pyspark() -> None:
    """Raise EnvironmentProblemError in an installation for tests alone, which has no PySpark."""
    if find_spec("pyspark") is None:
        raise EnvironmentProblemError(
            "an application runs on Spark, and PySpark is not installed",
            hint='Install it: pip install "pyspark>=4.2,<5" pandas. TopologyTestDriver works without it.',
        )
