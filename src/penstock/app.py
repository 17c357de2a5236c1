"""KafkaStreams: a topology as a running application."""

from __future__ import annotations

import enum
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.config import StreamsConfig
from penstock.errors import AppFailedError, InvalidStateError, PenstockError
from penstock.log.url import kafka_servers
from penstock.spark.interactive import InteractiveQueries
from penstock.topology.dataframes import for_application, session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.plan import PhysicalPlan
    from penstock.spark.progress import BatchProgress
    from penstock.spark.running import Run
    from penstock.topology.topology import Topology

__all__ = ["KafkaStreams", "State", "StateListener"]

_log = logging.getLogger(__name__)
_LOOK_S = 0.1


class State(enum.Enum):
    """Kafka's ``KafkaStreams.State``."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


StateListener = Callable[[State, State], None]
_ENDED = (State.NOT_RUNNING, State.ERROR)


class KafkaStreams(InteractiveQueries):
    """Runs a topology on Spark; Kafka's ``KafkaStreams``.

    Args:
        topology: What ``StreamsBuilder.build()`` gave.
        config: Settings by Kafka's names; ``application.id`` and ``bootstrap.servers`` are required.
        session: The Spark session to use; by default that of the topology's DataFrames or the active one, else a new
            one from the ``spark.*`` settings.
        dataframes: Streaming DataFrames by name, in place of those that the builder was given.

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
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.config.require("application.id", "bootstrap.servers")
        self.topology = for_application(topology, self.config["application.id"], dataframes or {})
        self._session = session or session_of(self.topology)
        self._state = State.CREATED
        self._changed = threading.Condition()
        self._ended = False  # after the listeners have been told
        self._state_listener: StateListener | None = None
        self._on_error: Callable[[PenstockError], None] | None = None
        self._progress_listeners: list[Callable[[BatchProgress], None]] = []
        self._run: Run | None = None
        self._watcher: threading.Thread | None = None
        self._error: PenstockError | None = None
        self._stop = threading.Event()

    @property
    def state(self) -> State:
        """The present state."""
        return self._state

    def _state_name(self) -> str:
        return self._state.value

    @property
    def error(self) -> PenstockError | None:
        """What made the application fail; None while it has not."""
        return self._error

    def set_state_listener(self, listener: StateListener) -> None:
        """Calls ``listener(new, old)`` at each change of state; Kafka's ``setStateListener``."""
        self._require_created("set_state_listener")
        self._state_listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[PenstockError], None]) -> None:
        """Calls ``handler(error)`` when the application fails, before it goes to ERROR."""
        self._require_created("set_uncaught_exception_handler")
        self._on_error = handler

    def add_progress_listener(self, listener: Callable[[BatchProgress], None]) -> None:
        """Calls ``listener(progress)`` after each micro-batch that did something."""
        self._progress_listeners.append(listener)

    def start(self, *, until: Literal["stopped", "latest"] = "stopped") -> None:
        """Checks everything, then starts; returns once the query runs.

        Args:
            until: "latest" stops when the records that are there now are processed.

        Raises:
            UnknownTopicError: A source topic does not exist.
            CoPartitionError: Topics that are joined have different partition counts.
            CheckpointMismatchError: The checkpoint is of another application or topology.
            FencedError: Another instance of the application runs.
            EnvironmentProblemError: Java, a directory or a port.
        """
        self._require_created("start")
        self._become(State.REBALANCING)
        from penstock.spark.running import Run

        run = self._run = Run(self.topology, self.config, self._session, self._progress_listeners)
        try:
            run.launch(until_latest=until == "latest")
            self._serve()
        except BaseException as error:
            self._error = error if isinstance(error, PenstockError) else None
            self._stop_serving()
            run.release()
            self._become(State.NOT_RUNNING if isinstance(error, KeyboardInterrupt) else State.ERROR)
            raise
        self._become(State.RUNNING)
        self._watcher = threading.Thread(target=self._watch, name="penstock-watcher", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        run = self._run
        assert run is not None  # noqa: S101 - set by start()
        try:
            while not self._ended_after(run):
                if self._stop.is_set():
                    run.stop()
                elif (plan := run.new_plan()) is not None:
                    self._become(State.REBALANCING)
                    run.rebalance(plan)
                    self._become(State.RUNNING)
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody must wait for ever for a watcher that is gone
            if not self._stop.is_set():
                self._fail(error if isinstance(error, PenstockError) else _gone(error))
                return
        self._become(State.PENDING_SHUTDOWN)
        self._stop_serving()
        run.release(commit=True)
        self._become(State.NOT_RUNNING)

    def _ended_after(self, run: Run) -> bool:
        """Looks after the run for a while; whether it has ended. A query that a lost process has ended goes on anew."""
        try:
            return run.wait(_LOOK_S)
        except AppFailedError as error:
            if self._stop.is_set() or not run.may_recover(error):
                raise
            self._become(State.REBALANCING)
            run.recover()
            self._become(State.RUNNING)
            return False

    def _fail(self, error: PenstockError) -> None:
        self._error = error
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
        """Stops; what the running batch has not committed is done after the next start. Safe to call twice.

        Args:
            timeout_ms: How long to wait; by default ``penstock.shutdown.timeout.ms``.

        Returns:
            Whether it has stopped within that time.
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
        """Waits until it has stopped; raises what made it fail. Gives whether it has stopped."""
        ended = self._await_end(None if timeout_ms is None else timeout_ms / 1000)
        if self._error is not None:
            raise self._error
        return ended

    def _await_end(self, timeout_s: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, timeout_s)

    def run(self, *, until: Literal["stopped", "latest"] = "stopped") -> None:
        """Starts and blocks until it is stopped by a signal, by ``close`` or by an error, which it raises.

        SIGINT and SIGTERM stop it cleanly; a second one ends the process at once, which loses nothing either.

        Args:
            until: "latest" stops when the records that are there at the start are processed.
        """
        from penstock.spark.interrupts import interruptible

        before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with interruptible():
                self.start(until=until)
            for number in before:  # PySpark has put a handler of its own in place
                signal.signal(number, self._on_signal)
            while not self.wait(500):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        if self._stop.is_set() or self._watcher is None:
            os._exit(128 + number)
        self._stop.set()

    def reset(self) -> None:
        """Forgets all that the application has done: state, checkpoint, ledger, committed offsets.

        Outputs stay in their topics. The next start reads from the beginning (``auto.offset.reset``). Kafka's
        ``cleanUp()`` together with its application reset tool.
        """
        self._require_created("reset")
        from penstock.spark.reset import forget_application
        from penstock.spark.running import LEASE_TTL_MS

        forget_application(self.config, LEASE_TTL_MS)

    def to_dataframe(self, topic: str, *, key_serde: Any = None, value_serde: Any = None) -> DataFrame:
        """A topic as a streaming DataFrame: topic, partition, offset, timestamp, key, value.

        Keys and values are binary; with a serde that Spark can read (text, JSON, whole numbers) they get its type.
        """
        run = self._run
        if run is None or run.session is None or run.log is None:
            raise InvalidStateError("the application has no Spark session yet", hint="Call start() first.")
        from penstock.spark.frames import topic_frame

        return topic_frame(run.session, run.log, topic, key_serde, value_serde)

    def explain(self) -> str:
        """How it will run: stages, tasks, stores, and which operators run by column. Starts nothing."""
        from penstock.plan.explain import explain_text

        return explain_text(*self._explained(), **self._mode())

    def explain_json(self) -> dict[str, Any]:
        """As `explain`, as plain data."""
        from penstock.plan.explain import explain_json

        return explain_json(*self._explained(), **self._mode())

    def _mode(self) -> dict[str, Any]:
        is_kafka = kafka_servers(str(self.config["bootstrap.servers"])) is not None
        return {"mode": self.config["processing.mode"], "is_kafka": is_kafka}

    def _explained(self) -> tuple[PhysicalPlan, Topology, dict[int, str | None]]:
        from penstock.spark.launch import open_app_log, plan_for, sliced_reasons

        with open_app_log(self.config) as log:
            plan = plan_for(self.topology, self.config, log)
        return plan, self.topology, sliced_reasons(self.topology, self.config, plan)

    def metadata(self) -> dict[str, Any]:
        """State, tasks and places, as plain data.

        ``replicas_on`` says which machines hold a replica of a task, and of which batch. The task runs on the one with
        the newest; the others are its standbys: the task goes on there by applying the batches since.
        """
        from penstock.spark.launch import Places

        places = Places.of(self.config)
        plan, log, lease = (self._run.plan, self._run.log, self._run.lease) if self._run else (None, None, None)
        tasks = [f"{s.id}_{p}" for s in plan.subtopologies for p in range(s.tasks)] if plan else []
        return {
            "application_id": self.config["application.id"],
            "state": self._state.value,
            "log": log.url if log is not None else str(self.config["bootstrap.servers"]),
            "checkpoint": places.checkpoint,
            "replicas": places.replicas,
            "tasks": tasks,
            "replicas_on": {task: dict(held) for task, held in self._run.replicas.items()} if self._run else {},
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


def _gone(error: Exception) -> AppFailedError:
    return AppFailedError(
        f"Spark does not answer any more: {type(error).__name__}: {error}",
        hint="Was its JVM killed, or out of memory? Start the application again: it continues where it stopped.",
    )
