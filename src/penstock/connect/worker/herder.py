"""The herder: brings the connectors and tasks that run in line with the configs and the worker's share of the work.

Connectors of a worker that run: their instances, their states, the configs of their tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from penstock.base.backoff import Backoff
from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.connect.api import Connector
from penstock.connect.delivery.record_errors import trace_text
from penstock.connect.plugins import Plugin, PluginKind, Plugins, start_notes
from penstock.connect.storage.config_store import ConfigStore, ConnectorTaskId, RestartRequest
from penstock.connect.storage.offset_store import OffsetStore
from penstock.connect.storage.status_store import StatusStore, StoredStatus
from penstock.connect.tasks.task_handles import Message, TaskHandle
from penstock.connect.tasks.task_parts import TaskSpec, plugins_of
from penstock.connect.worker.group import WorkerMembership, WorkerView
from penstock.connect.worker.loggers import Loggers
from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.task_restarts import TaskRestarts
from penstock.connect.worker_settings import Providers, WorkerConfig, config_providers
from penstock.errors import ConnectError, FencedError, LogError
from penstock.log.base import TopicLog

__all__ = ["Herder", "LogTrouble", "Stages", "StartTask", "TaskSlots", "WorkerStores", "task_configs"]

_log = own_logger(__name__)


class TooManyTasksError(ConnectError):
    """A connector makes more tasks than its config allows. Kafka's ``TooManyTasksException``."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.runtime.TooManyTasksException"


class ConnectorSlot:
    """A connector that this worker has.

    Attributes:
        name: Its name.
        config: Its config, as it is stored.
        revision: The number of this config, which each change and each creation makes larger.
        target: The state that it is in: STARTED, PAUSED, STOPPED; empty before the first.
        failed: It could not be brought into that state.
        reconfigures: It has asked to make the configs of its tasks again.
        task_configs_error: Why they could not be made.
    """

    def __init__(self, name: str, config: Mapping[str, str | None], revision: int) -> None:
        self.name = name
        self.revision = revision
        self.config = dict(config)
        self.target = ""
        self.failed = False
        self.reconfigures = False
        self.task_configs_error: str | None = None
        self.settings: dict[str, str] = {}
        self.running = False
        self.plugin: Plugin | None = None
        self._connector: Connector | None = None

    def make(self, plugins: Plugins, resolved: Mapping[str, str | None]) -> None:
        """Make the instance.

        Raises:
            LookupError: There is no such class.
        """
        self.plugin = plugins.connector(resolved.get("connector.class") or "")
        self.settings = {name: value for name, value in resolved.items() if value is not None}
        self._connector = self.plugin.make()
        self._connector.context = _ConnectorContext(self)

    @property
    def version(self) -> str | None:
        """The version of the connector."""
        return None if self.plugin is None else self.plugin.version

    @property
    def is_source(self) -> bool:
        """Whether it is a source."""
        return self.plugin is not None and PluginKind.SOURCE in self.plugin.kinds

    @property
    def connector(self) -> Connector:
        """The instance."""
        assert self._connector is not None  # noqa: S101 - make comes first
        return self._connector

    def move(self, target: str) -> None:
        """Start or stop it, as the state wants.

        Raises:
            Exception: Whatever the connector raises.
        """
        self.target = target
        if target == "STARTED" and not self.running:
            self.connector.start(dict(self.settings))
            self.running, self.failed = True, False
        elif target != "STARTED" and self.running:
            self.stop()

    def stop(self) -> None:
        """Stop it; an error of its own is logged."""
        if self.running:
            self.running = False
            try:
                self.connector.stop()
            except Exception:  # noqa: BLE001 - it is stopped anyway
                _log.warning("connector %s did not stop cleanly", self.name, exc_info=True)


class _ConnectorContext:
    """The `ConnectorContext` of a connector."""

    def __init__(self, slot: ConnectorSlot) -> None:
        self._slot = slot

    def request_task_reconfiguration(self) -> None:
        """Let the worker call ``task_configs`` again."""
        self._slot.reconfigures = True

    def raise_error(self, error: BaseException) -> None:
        """Report a failure."""
        _log.error("connector %s reports a failure: %s", self._slot.name, error)
        self._slot.failed = True


def task_configs(slot: ConnectorSlot) -> list[dict[str, str]]:
    """Return the configs of a connector's tasks, as they are stored.

    Raises:
        TooManyTasksError: There are more than ``tasks.max``.
    """
    most = int(slot.settings.get("tasks.max") or 1)
    configs = slot.connector.task_configs(most)
    if len(configs) > most:
        text = (
            f"The connector {slot.name} has generated {len(configs)} tasks, which is greater than {most}, the maximum "
            "number of tasks it is configured to create. "
        )
        if str(slot.settings.get("tasks.max.enforce", "true")).strip().lower() == "true":
            raise TooManyTasksError(
                f"{text}This behaviour should be considered a bug and is disallowed. If necessary, it can be permitted "
                "by reconfiguring the connector with 'tasks.max.enforce' set to false; however, this option will be "
                "removed in a future release of Kafka Connect."
            )
        _log.warning("%sThis will be disallowed in a future release.", text)
    more = {"task.class": slot.connector.task_class.java_class}
    if not slot.is_source:
        more |= {name: slot.settings[name] for name in ("topics", "topics.regex") if name in slot.settings}
    return [_stored({**config, **more}, slot) for config in configs]


def _stored(config: dict[str, str], slot: ConnectorSlot) -> dict[str, str]:
    """Return a task's config with references to config providers in place of the values that came from them."""
    stored = {name: str(value) for name, value in config.items() if value is not None}
    for name, value in slot.config.items():
        if value is not None and "${" in value and stored.get(name) == slot.settings.get(name):
            stored[name] = value
    return stored


TaskTargets = Mapping[ConnectorTaskId, tuple[TaskSpec, int, str]]
_KILLED_S = 5.0


class LogTrouble:
    """The trouble with the log, if it cannot be used at present.

    >>> trouble = LogTrouble()
    >>> trouble.passed()
    """

    def __init__(self) -> None:
        self._last: str | None = None

    def note(self, error: LogError) -> None:
        """Note an error."""
        if error.message != self._last:
            self._last = error.message
            _log.warning("the log cannot be used at present: %s", error.message)

    def passed(self) -> None:
        """Note that the log can be used."""
        if self._last is not None:
            self._last = None
            _log.warning("the log can be used again")


_TICK_S, _GATHER_S, _MOST_WAITS = 0.1, 0.03, 10
_BACKOFF, _LOOK_AGAIN_S = Backoff(0.25, 60.0), 2.0
_AFTER_ERROR_S = 1.0
StartTask = Callable[[TaskSpec, str], TaskHandle]
PublishTasks = Callable[[str, list[dict[str, str]]], None]


class WorkerStores:
    """The stores of a worker.

    Attributes:
        configs: Configs of connectors and tasks.
        statuses: Their states.
        offsets: Source offsets.
        offsets_topic: The topic of the offsets.
    """

    def __init__(self, configs: ConfigStore, statuses: StatusStore, offsets: OffsetStore, offsets_topic: str) -> None:
        self.configs = configs
        self.statuses = statuses
        self.offsets = offsets
        self.offsets_topic = offsets_topic

    def close(self) -> None:
        """Close the topics."""
        for store in (self.configs, self.statuses, self.offsets):
            store.close()


class Herder:
    """The owner of a worker's connectors and tasks; all changes happen under its lock, in a `turn`.

    The lock is held while the log is read and written, so those who only look take no turn: the view and the states of
    the stores are snapshots.

    Args:
        config: The worker's settings.
        log: The log.
        stores: The stores.
        membership: Its membership in the group.
        start_task: Starts a task.
        worker_id: The worker, ``host:port``.
    """

    def __init__(
        self,
        config: WorkerConfig,
        log: TopicLog,
        stores: WorkerStores,
        *,
        membership: WorkerMembership,
        start_task: StartTask,
        worker_id: str,
    ) -> None:
        self.config = config
        self.log = log
        self.stores = stores
        self.membership = membership
        self.worker_id = worker_id
        self.plugins: Plugins = plugins_of(tuple(config["plugin.path"]))
        self.providers: Providers = config_providers(config.given)
        self.stages = Stages()
        self._lock = threading.RLock()
        self._passes = threading.Condition()
        self._begun = self._ended = 0  # passes of the loop
        self.view = WorkerView("", False, 0, frozenset(), frozenset(), joined=False)  # noqa: FBT003 - nothing is known yet
        self.publish_tasks: PublishTasks = self.store_tasks
        self.connectors: dict[str, ConnectorSlot] = {}
        self.tasks = TaskSlots(start_task, config["task.shutdown.graceful.timeout.ms"] / 1000)
        self.ready = threading.Event()
        self.loggers = Loggers()
        self.restarts = TaskRestarts()
        self._retries: dict[str, tuple[float, int]] = {}  # connector -> time of the next try, failures
        self._stop = threading.Event()
        self._woken = threading.Event()
        self._changed_s = 0.0
        self._thread = threading.Thread(target=self._run, name="connect-herder", daemon=True)
        self._led = False
        self._trouble = LogTrouble()

    def start(self) -> None:
        """Read the stores, and begin to work.

        Raises:
            LogError: The log cannot be reached.
        """
        self.stores.configs.refresh()
        self.stores.statuses.refresh()
        self._woken.set()  # the first tick comes at once
        self._thread.start()

    def stop(self) -> None:
        """Stop all connectors and tasks, and leave the group."""
        self._stop.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            gone, mine = StoredStatus("UNASSIGNED", self.worker_id, self.view.generation), list(self.connectors)
            for name in mine:
                self._stop_connector(name)
            stopped = [(task, gone) for task in self.tasks.stop_all()]
            try:
                for name in mine:
                    self._put_status(name, gone)
                self._take_news()
                self.stores.statuses.put_tasks(stopped)
            except LogError as error:
                _log.warning("the states of what has stopped cannot be written: %s", error.message)
                self.membership.abandon()
            else:
                self.membership.close()
            self.stores.close()

    @contextmanager
    def turn(self, purpose: str) -> Iterator[None]:
        """Have the herder to oneself: nobody else changes connectors and tasks meanwhile.

        Args:
            purpose: What is done, for those who wait: "creating connector x".
        """
        with self._lock, self.stages.of(purpose):
            yield

    def passed(self, timeout_s: float) -> bool:
        """Wait until the herder's loop has gone once from its beginning to its end; return whether it has in time."""
        with self._passes:
            next_pass = self._begun + 1
            self._woken.set()
            return self._passes.wait_for(lambda: self._ended >= next_pass, timeout_s)

    def wake(self) -> None:
        """Let the next tick come soon."""
        self._changed_s = time.monotonic()
        self._woken.set()

    def tick(self) -> None:
        """Read what is new, and bring all in line with it."""
        stage = self.stages.of
        with self._lock:
            with stage("reading to the end of the config topic"):
                self.stores.configs.refresh()
            with stage("reading to the end of the status topic"):
                self.stores.statuses.refresh()
            self.tasks.reap()
            owned: list[str | ConnectorTaskId] = [*self.connectors, *self.tasks.owned()]
            with stage("ensuring membership in the cluster"):
                self.view = self.membership.poll(self.stores.configs.state, owned)
                self._begin_to_lead()
            with stage("starting, restarting and stopping connectors"):
                self._take_restarts()
                for task in self.restarts.due(self.tasks.owned()):
                    self.restart_task(task)
                self._align_connectors()
            with stage("starting and stopping tasks"):
                self._align_tasks()
            with stage("writing states of tasks to the status topic"):
                self._take_news()
            if self.view.joined:
                self.ready.set()

    def store_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Store the configs of a connector's tasks, as the leader; earlier runs of a source's tasks are fenced."""
        java_class = self.resolved(self.stores.configs.state.connectors[name]).get("connector.class") or ""
        if self.config.plugin_settings.exactly_once and PluginKind.SOURCE in self.plugins.connector(java_class).kinds:
            self.stores.configs.put_fencing(name, len(configs))
        self.stores.configs.put_tasks(name, configs)
        self.wake()

    def restart_connector(self, name: str) -> None:
        """Stop a connector of this worker, and start it again."""
        self._stop_connector(name)
        self._start_connector(name)

    def restart_task(self, task: ConnectorTaskId) -> None:
        """Stop a task of this worker; it starts again when it has ended."""
        self.tasks.stop(task)

    def resolved(self, config: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return a config with the values that its references to config providers stand for."""
        return self.providers.resolve(config)

    # The loop

    def _run(self) -> None:
        while not self._stop.is_set():
            self._woken.wait(_TICK_S)
            with self._passes:
                self._woken.clear()
                self._begun += 1
            try:
                self._tick_when_quiet()
                self._trouble.passed()
            except FencedError as error:
                _log.warning("this worker leads no more: %s", error.message)
                self.membership.step_down()
                self._end_pass()
            except LogError as error:
                self._trouble.note(error)
                with self._lock, suppress(LogError):  # known here, if not written
                    self._take_news()
                self._end_pass(_AFTER_ERROR_S)
            except Exception:  # noqa: BLE001 - the loop goes on
                _log.exception("the worker continues after an error")
                self._end_pass(_AFTER_ERROR_S)
            else:
                self._end_pass()

    def _end_pass(self, rest_s: float = 0) -> None:
        with self._passes:
            self._ended = self._begun
            self._passes.notify_all()
        if rest_s:
            self._stop.wait(rest_s)

    def _tick_when_quiet(self) -> None:
        """Tick when no change was asked for a moment ago: requests that follow each other are part of one step."""
        for _ in range(_MOST_WAITS):
            with self._lock:
                left_s = self._changed_s + _GATHER_S - time.monotonic()
                if left_s <= 0:
                    self.tick()
                    return
            self._stop.wait(left_s)
        self.tick()

    def _begin_to_lead(self) -> None:
        """Make sure that no earlier leader writes configs any more, and that there is a key for internal requests."""
        configs = self.stores.configs
        if not self.view.leads:
            self._led = False
            return
        if not (self._led and configs.leading):
            configs.lead()
            self._led = True
        ttl_ms = self.config.values.get("inter.worker.key.ttl.ms", 3_600_000)
        if self.config.distributed and time.time() * 1000 - configs.state.session_since_ms > ttl_ms:
            configs.renew_session_key()

    def _take_restarts(self) -> None:
        levels, self.stores.configs.levels = self.stores.configs.levels, []
        for name, level in levels:
            with suppress(RequestError):  # a level that this worker does not know
                self.loggers.set(name, level)
        requests = self.stores.configs.restarts
        while requests:  # if one fails, the next tick takes those behind it
            self._restart(requests.pop(0))

    def _restart(self, request: RestartRequest) -> None:
        statuses = self.stores.statuses
        name = request.connector
        if name not in self.stores.configs.state.connectors:
            return  # it was deleted after the request
        if name in self.connectors and name in self.view.connectors:
            status = statuses.connectors.get(name)
            if not request.only_failed or (status is not None and status.state == "FAILED"):
                self.restart_connector(name)
        if request.include_tasks:
            restarted = []
            for task in self.tasks.of(name):
                if task not in self.view.tasks:
                    continue  # another worker may have it by now, and write its state
                status = statuses.tasks.get(task)
                if not request.only_failed or (status is not None and status.state == "FAILED"):
                    self.restart_task(task)
                    restarted.append((task, self._task_status("RESTARTING", task)))
            statuses.put_tasks(restarted)  # a further request for those that have failed leaves them alone

    # Connectors

    def _align_connectors(self) -> None:
        state = self.stores.configs.state
        for name in [
            name for name in self.connectors if name not in self.view.connectors or name not in state.connectors
        ]:
            version = self.connectors[name].version
            self._stop_connector(name)
            self._retries.pop(name, None)
            if name not in state.connectors:
                self.stores.statuses.forget(name)
            elif self.view.joined:  # else others have it by now, and write its state
                let_go = StoredStatus("UNASSIGNED", self.worker_id, self.view.generation, version)
                self._put_status(name, let_go)
        for name in sorted(self.view.connectors & state.connectors.keys()):
            slot = self.connectors.get(name)
            if slot is None or slot.revision != state.revisions[name]:
                self._stop_connector(name)
                self._start_connector(name)
            elif slot.target != state.target(name):
                self._move_connector(slot, state.target(name))
            elif slot.reconfigures or self._is_due(name):
                self._configure_tasks(slot)
        if self.view.leads:
            self._forget_deleted(state.connectors)

    def _forget_deleted(self, configured: Mapping[str, Any]) -> None:
        """Delete states of connectors that were deleted while nobody had them."""
        statuses = self.stores.statuses
        gone = (
            {*statuses.connectors, *(name for name, _ in statuses.tasks)} - configured.keys() - self.connectors.keys()
        )
        for name in gone:
            if not self.tasks.of(name):
                statuses.forget(name)

    def _start_connector(self, name: str) -> None:
        state = self.stores.configs.state
        slot = ConnectorSlot(name, state.connectors[name], state.revisions[name])
        self.connectors[name] = slot
        try:
            slot.make(self.plugins, self.resolved(slot.config))
        except Exception as error:  # noqa: BLE001 - a connector's own code
            self._fail(slot, error)
            return
        for note in start_notes(slot.settings, self.plugins, self.config.plugin_settings):
            _log.warning("%s", note)
        self._move_connector(slot, state.target(name))

    def _move_connector(self, slot: ConnectorSlot, target: str) -> None:
        """Bring a connector into its target state."""
        try:
            slot.move(target)
        except Exception as error:  # noqa: BLE001 - a connector's own code
            self._fail(slot, error)
            return
        shown = "RUNNING" if target == "STARTED" else target
        self._put_status(slot.name, StoredStatus(shown, self.worker_id, self.view.generation, slot.version))
        if target == "STARTED":
            self._configure_tasks(slot)

    def _configure_tasks(self, slot: ConnectorSlot) -> None:
        """Ask a connector for the configs of its tasks, and store them if they are new."""
        slot.reconfigures = False
        if not slot.running:
            return
        state = self.stores.configs.state
        try:
            configs = task_configs(slot)
        except Exception as error:  # noqa: BLE001 - a connector's own code
            if getattr(error, "java_class", "").endswith("TooManyTasksException"):
                self._fail(slot, error)
                return
            failures = self._retries.get(slot.name, (0.0, 0))[1] + 1
            self._retries[slot.name] = (time.monotonic() + _BACKOFF.pause_s(failures), failures)
            slot.task_configs_error = trace_text(error)
            _log.warning("the tasks of connector %s cannot be configured: %s", slot.name, error)
            return
        self._retries.pop(slot.name, None)
        slot.task_configs_error = None
        if configs != state.task_configs(slot.name) or state.applied.get(slot.name) != slot.config:
            if not self.view.leads:  # look again whether the leader has stored them
                self._retries[slot.name] = (time.monotonic() + _LOOK_AGAIN_S, 0)
            self.publish_tasks(slot.name, configs)

    def _is_due(self, name: str) -> bool:
        return name in self._retries and time.monotonic() >= self._retries[name][0]

    def _fail(self, slot: ConnectorSlot, error: BaseException) -> None:
        slot.failed = True
        trace = trace_text(error)
        self._put_status(slot.name, StoredStatus("FAILED", self.worker_id, self.view.generation, slot.version, trace))

    def _stop_connector(self, name: str) -> None:
        slot = self.connectors.pop(name, None)
        if slot is not None:
            slot.stop()

    def _put_status(self, name: str, status: StoredStatus) -> None:
        if self.stores.statuses.connectors.get(name) != status:
            self.stores.statuses.put_connector(name, status)

    # Tasks

    def _align_tasks(self) -> None:
        state = self.stores.configs.state
        targets = {}
        for task in self.view.tasks:
            name = task[0]
            target = state.target(name)
            if name in state.connectors and task in state.tasks and target != "STOPPED":
                spec = TaskSpec(
                    task, state.connectors[name], state.tasks[task], self.config.given, self.config.mode,
                    self.stores.offsets_topic, self.log.url,
                )  # fmt: skip
                targets[task] = (spec, state.versions.get(name, 0), target)
        self.tasks.align(targets)
        gone: list[tuple[ConnectorTaskId, StoredStatus | None]] = []
        for task in self.tasks.take_ended():
            if task not in targets:
                kept = task in self._configured()
                gone.append((task, self._task_status("UNASSIGNED", task) if kept else None))
        if self.view.joined:
            self.stores.statuses.put_tasks(gone)
        if self.view.leads:
            self._forget_old_tasks()

    def _task_status(self, state: str, task: ConnectorTaskId) -> StoredStatus:
        """Return a state that this worker gives a task; the version stays the one that the task has told."""
        before = self.stores.statuses.tasks.get(task)
        return StoredStatus(state, self.worker_id, self.view.generation, None if before is None else before.version)

    def _configured(self) -> set[ConnectorTaskId]:
        state = self.stores.configs.state
        return {task for name in state.connectors for task in state.task_ids(name)}

    def _forget_old_tasks(self) -> None:
        """Delete states of tasks that are configured no more and run nowhere here."""
        current = {*self._configured(), *self.tasks.owned()}
        old = [task for task in self.stores.statuses.tasks if task not in current]
        self.stores.statuses.put_tasks((task, None) for task in old)

    def _take_news(self) -> None:
        statuses, topics = [], []
        for task, message in self.tasks.news():
            if message.topic:
                topics.append((message.topic, task))
            if message.state:
                status = StoredStatus(
                    message.state, self.worker_id, self.view.generation, message.version, message.trace
                )
                statuses.append((task, status))
                self.restarts.note(task, message.state, self.stores.configs.state.connectors.get(task[0], {}))
        try:
            self.stores.statuses.put_tasks(statuses)
            for topic, task in topics if self.config["topic.tracking.enable"] else ():
                self.stores.statuses.put_topic(topic, task)
        except FencedError:
            _log.warning("another worker has this worker's name: %s", self.worker_id)


@dataclass(slots=True)
class _Stage:
    description: str
    started_ms: int
    completed_ms: int | None = None


class Stages:
    """The steps of the herder's work, of which one may wait for the log.

    One thread at a time enters them; any thread may ask for the summary. The sentences are Kafka Connect's.

    Example:
        >>> stages = Stages()
        >>> stages.summary()
        ''
        >>> with stages.of("reading to the end of the config topic"):
        ...     stages.summary().partition(", which began at ")[0]
        'The worker is currently reading to the end of the config topic'
    """

    def __init__(self) -> None:
        self._entered: tuple[_Stage, ...] = ()
        self._last: _Stage | None = None

    @contextmanager
    def of(self, description: str) -> Iterator[None]:
        """Note a step for as long as the block runs."""
        before, stage = self._entered, _Stage(description, unix_ms())
        self._entered = (*before, stage)
        try:
            yield
        finally:
            stage.completed_ms = unix_ms()
            self._last, self._entered = stage, before

    def summary(self) -> str:
        """Return one sentence; empty before the first step."""
        entered, last = self._entered, self._last
        if entered:
            return f"The worker is currently {entered[-1].description}, which began at {_shown(entered[-1].started_ms)}"
        if last is None:
            return ""
        return (
            f"The last operation the worker completed was {last.description}, which began at "
            f"{_shown(last.started_ms)} and completed at {_shown(last.completed_ms or last.started_ms)}"
        )


def _shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class _Slot:
    handle: TaskHandle
    version: int
    target: str
    deadline: float | None = None  # it is being stopped, and is killed then


class TaskSlots:
    """The tasks of a worker. A task starts only when its earlier run has ended here.

    Args:
        start: Starts a task.
        grace_s: The time that a task has to stop, before it is killed.
    """

    def __init__(self, start: Callable[[TaskSpec, str], TaskHandle], grace_s: float) -> None:
        self._start = start
        self._grace_s = grace_s
        self._slots: dict[ConnectorTaskId, _Slot] = {}
        self._ended: list[ConnectorTaskId] = []

    def of(self, connector: str) -> list[ConnectorTaskId]:
        """Return the tasks of a connector that are here."""
        return [task for task in list(self._slots) if task[0] == connector]

    def owned(self) -> list[ConnectorTaskId]:
        """Return all tasks that are here, also those that still stop."""
        return list(self._slots)

    def handle(self, task: ConnectorTaskId) -> TaskHandle | None:
        """Return a task that runs here."""
        slot = self._slots.get(task)
        return None if slot is None else slot.handle

    def align(self, targets: TaskTargets) -> None:
        """Start, stop and pause tasks: what each is to run with, the version of its config, its target state."""
        for task, slot in list(self._slots.items()):
            if slot.deadline is None and (task not in targets or targets[task][1] != slot.version):
                self.stop(task)
        self.reap()
        for task, (spec, version, target) in targets.items():
            held = self._slots.get(task)
            if held is None:
                self._slots[task] = _Slot(self._start(spec, target), version, target)
            elif held.target != target and held.deadline is None:
                held.target = target
                held.handle.want(target)

    def stop(self, task: ConnectorTaskId) -> None:
        """Ask a task to stop."""
        slot = self._slots.get(task)
        if slot is not None and slot.deadline is None:
            slot.deadline = time.monotonic() + self._grace_s
            slot.handle.want("STOPPED")

    def forget_topics(self, connector: str) -> None:
        """Let the tasks of a connector report their topics again."""
        for task in self.of(connector):
            self._slots[task].handle.forget_topics()

    def reap(self) -> None:
        """Let go of stopped tasks that have ended, and kill those that have not in time."""
        for task, slot in list(self._slots.items()):
            if slot.deadline is None:
                continue
            if not slot.handle.alive():
                del self._slots[task]
                self._ended.append(task)
            elif time.monotonic() >= slot.deadline:
                slot.handle.kill()
                if slot.handle.join(_KILLED_S) or time.monotonic() >= slot.deadline + _KILLED_S:
                    del self._slots[task]
                    self._ended.append(task)

    def take_ended(self) -> list[ConnectorTaskId]:
        """Return tasks that were stopped and have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def news(self) -> Iterator[tuple[ConnectorTaskId, Message]]:
        """Yield what the tasks have reported since the last call; a task that is stopped has nothing to report."""
        for task, slot in list(self._slots.items()):
            for message in slot.handle.news():
                if slot.deadline is None or message.topic:
                    yield task, message

    def stop_all(self) -> list[ConnectorTaskId]:
        """Stop all tasks and wait for their ends."""
        tasks = list(self._slots)
        for task in tasks:
            self.stop(task)
        deadline = time.monotonic() + self._grace_s + _KILLED_S
        while self._slots and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.01)
        return tasks
