"""Tasks as the worker holds them: in a process each, or in a thread."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import queue
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from penstock.base.clock import unix_ms
from penstock.base.log_lines import Work, follow_environment, own_logger, writes_json
from penstock.connect.delivery.record_errors import trace_text
from penstock.connect.plugins import PluginKind
from penstock.connect.process_memory import take_little_memory
from penstock.connect.tasks.fork_template import has_template, modules_for
from penstock.connect.tasks.task_parts import TaskLink, TaskParts, TaskSpec
from penstock.connect.tasks.task_runs import SinkRun, SourceRun
from penstock.errors import PenstockError

__all__ = ["Message", "TaskHandle", "TaskProcesses", "TaskProgress", "ThreadTask", "run_task"]
_PAUSED_S = 0.5


def run_task(spec: TaskSpec, link: TaskLink) -> None:
    """Run a task until another state is wanted or it fails; the link hears of every state."""
    with Work(application=spec.task[0], task=f"{spec.task[0]}-{spec.task[1]}"):
        _run(spec, link)


def _run(spec: TaskSpec, link: TaskLink) -> None:
    run: SourceRun | SinkRun | None = None
    parts: TaskParts | None = None
    failed = True
    try:
        parts = TaskParts(spec)
        if not _await_start(link, parts):
            failed = False
            return
        is_sink = PluginKind.SINK in parts.plugin.kinds
        run = SinkRun(parts, link) if is_sink else SourceRun(parts, link)
        run.start()
        link.report("RUNNING", version=parts.plugin.version)
        _loop(run, link, parts)
        failed = False
    except BaseException as error:  # noqa: BLE001 - whatever it raises, sys.exit and a panic in Rust too: it is FAILED
        _log.warning("task %s-%d has failed", *spec.task, exc_info=not isinstance(error, PenstockError))
        _finish(run, failed=True)
        run = None
        link.report("FAILED", version=parts.plugin.version if parts else None, trace=trace_text(error))
    finally:
        _finish(run, failed=failed)
        if parts is not None:
            parts.close()


def _await_start(link: TaskLink, parts: TaskParts) -> bool:
    """Wait while the task is to begin paused; return whether it is to begin at all."""
    if link.target == "PAUSED":
        link.report("PAUSED", version=parts.plugin.version)
        while link.target == "PAUSED":
            link.wait(_PAUSED_S)
    return link.target == "STARTED"


def _loop(run: SourceRun | SinkRun, link: TaskLink, parts: TaskParts) -> None:
    while link.target != "STOPPED":
        if link.target == "STARTED":
            run.step()
            continue
        link.report("PAUSED", version=parts.plugin.version)
        while link.target == "PAUSED":
            if isinstance(run, SinkRun):
                run.idle()
            else:
                link.wait(_PAUSED_S)
        if link.target == "STARTED":
            if isinstance(run, SinkRun):
                run.wake()
            link.report("RUNNING", version=parts.plugin.version)


def _finish(run: SourceRun | SinkRun | None, *, failed: bool) -> None:
    if run is None:
        return
    try:
        run.finish(failed=failed)
    except BaseException:  # noqa: BLE001 - it ends anyway
        _log.warning("a task did not stop cleanly", exc_info=True)


_log = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """News of a task: a state, or a topic that it uses.

    Attributes:
        state: The state; empty: it has not changed.
        version: The version of the plugin.
        trace: The stack trace of a failure.
        topic: The topic.
    """

    state: str = ""
    version: str | None = None
    trace: str | None = None
    topic: str = ""


@dataclass(slots=True)
class TaskProgress:
    """The progress of a task.

    Attributes:
        records: Records that were delivered since its start.
        errors: Records that were skipped, and tries that failed.
        last_error: The last of these errors.
        last_record_ms: The time of the last delivery, in milliseconds since 1970.
    """

    records: int = 0
    errors: int = 0
    last_error: str | None = None
    last_record_ms: int | None = None

    def add(self, records: int, error: str | None) -> None:
        """Add what a task reports."""
        self.records += records
        if records:
            self.last_record_ms = unix_ms()
        if error is not None:
            self.errors += 1
            self.last_error = error


class TaskHandle(Protocol):
    """A task that the worker has started."""

    spec: TaskSpec

    @property
    def progress(self) -> TaskProgress: ...
    def want(self, target: str) -> None:
        """Ask for a state: STARTED, PAUSED, STOPPED."""
        ...

    def news(self) -> list[Message]:
        """Return what the task has reported since the last call."""
        ...

    def forget_topics(self) -> None:
        """Let it report its topics again."""
        ...

    def alive(self) -> bool: ...
    def join(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended."""
        ...

    def kill(self) -> None:
        """End it by force."""
        ...


class _ThreadLink:
    """The `TaskLink` of a task in a thread."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._changed = threading.Condition()
        self._topics: set[str] = set()
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.progress = TaskProgress()

    @property
    def target(self) -> str:
        return self._target

    def want(self, target: str) -> None:
        with self._changed:
            self._target = target
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        with self._changed:
            before = self._target
            self._changed.wait_for(lambda: self._target != before, seconds)

    def report(self, state: str, *, version: str | None = None, trace: str | None = None) -> None:
        self.messages.put(Message(state, version, trace))

    def uses(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            self.messages.put(Message(topic=topic))

    def forget_topics(self) -> None:
        self._topics.clear()

    def count(self, records: int, error: str | None = None) -> None:
        self.progress.add(records, error)


class ThreadTask:
    """A task in a thread of the worker, as in Kafka Connect: the default of a standalone one."""

    def __init__(self, spec: TaskSpec, target: str) -> None:
        self.spec = spec
        self._is_left = False
        self._link = _ThreadLink(target)
        name = f"connect-{spec.task[0]}-{spec.task[1]}"
        self._thread = threading.Thread(target=run_task, args=(spec, self._link), name=name, daemon=True)
        self._thread.start()

    @property
    def progress(self) -> TaskProgress:
        """The progress of the task."""
        return self._link.progress

    def want(self, target: str) -> None:
        """Ask for a state."""
        self._link.want(target)

    def news(self) -> list[Message]:
        """Return what the task has reported since the last call."""
        return _drained(self._link.messages)

    def forget_topics(self) -> None:
        """Let it report its topics again."""
        self._link.forget_topics()

    def alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait for its end, unless it was left alone: who waits holds up the whole worker."""
        self._thread.join(0 if self._is_left else seconds)
        return not self._thread.is_alive()

    def kill(self) -> None:
        """Leave it alone: a thread cannot be ended by force; its transactions are fenced by the next run."""
        self._is_left = True


class _PipeLink(_ThreadLink):
    """The `TaskLink` of a task in a process of its own: what it reports goes through a pipe."""

    def __init__(self, target: str, pipe: Connection) -> None:
        super().__init__(target)
        self._pipe = pipe
        self._sending = threading.Lock()
        self._counted = [0, 0.0]
        threading.Thread(target=self._listen, name="connect-worker-link", daemon=True).start()

    def report(self, state: str, *, version: str | None = None, trace: str | None = None) -> None:
        self._flush()
        self._send({"state": state, "version": version, "trace": trace})

    def uses(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            self._send({"topic": topic})

    def count(self, records: int, error: str | None = None) -> None:
        self._counted[0] += records
        if error is not None:
            self._send({"records": 0, "error": error})
        if time.monotonic() - self._counted[1] >= 0.5:
            self._flush()

    def _flush(self) -> None:
        if self._counted[0]:
            self._send({"records": self._counted[0]})
        self._counted = [0, time.monotonic()]

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            try:
                self._pipe.send_bytes(json.dumps(message).encode())
            except OSError:
                self.want("STOPPED")  # the worker is gone

    def _listen(self) -> None:
        try:
            while True:
                message = json.loads(self._pipe.recv_bytes())
                if message.get("forget"):
                    self.forget_topics()
                else:
                    self.want(message["target"])
        except (EOFError, OSError):
            self.want("STOPPED")
            time.sleep(10)
            os._exit(1)  # the worker is gone, and the task does not end


def _child(spec: TaskSpec, target: str, pipe: Connection) -> None:
    """Run a task in its own process."""
    take_little_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's, which stops its tasks
    if writes_json():
        follow_environment()
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    link = _PipeLink(target, pipe)
    run_task(spec, link)


class TaskProcesses:
    """Tasks in processes that are forked from one in which all modules are loaded.

    Args:
        url: The log that tasks open.
    """

    def __init__(self, url: str) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(modules_for(url))
        if not has_template():  # else `multiprocessing` would only start a process that nobody needs before a task
            threading.Thread(target=forkserver.ensure_running, name="connect-forkserver", daemon=True).start()

    def start(self, spec: TaskSpec, target: str) -> ProcessTask:
        """Start a task."""
        here, there = self._context.Pipe()
        name = f"connect-{spec.task[0]}-{spec.task[1]}"
        process = self._context.Process(target=_child, args=(spec, target, there), name=name, daemon=True)
        process.start()
        there.close()
        return ProcessTask(spec, process, here)


@dataclass(slots=True)
class ProcessTask:
    """A task in a process of its own.

    Attributes:
        spec: What it runs.
        process: Its process.
        pipe: The connection to it.
        progress: The progress of the task.
    """

    spec: TaskSpec
    process: BaseProcess
    pipe: Connection
    progress: TaskProgress = field(default_factory=TaskProgress)
    _ended: bool = False
    _stopping: bool = False
    _last: str = ""

    def want(self, target: str) -> None:
        """Ask for a state."""
        self._stopping = target == "STOPPED"
        self._send({"target": target})

    def forget_topics(self) -> None:
        """Let it report its topics again."""
        self._send({"forget": True})

    def news(self) -> list[Message]:
        """Return what the task has reported; a process that has died of itself has FAILED."""
        messages = []
        alive = self.process.is_alive()
        try:
            while self.pipe.poll():
                message = json.loads(self.pipe.recv_bytes())
                if "records" in message:
                    self.progress.add(message["records"], message.get("error"))
                    continue
                messages.append(Message(**message))
        except (EOFError, OSError):
            alive = self.process.is_alive()
        self._last = next((each.state for each in reversed(messages) if each.state), self._last)
        if not alive and not self._ended:
            self._ended = True
            if not self._stopping and self._last != "FAILED":
                code = self.process.exitcode
                cause = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
                messages.append(Message("FAILED", None, f"The process of the task has ended {cause}."))
        return messages

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait for its end."""
        self.process.join(seconds)
        return not self.process.is_alive()

    def kill(self) -> None:
        """End the process by force."""
        self._stopping = True
        self.process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self.pipe.send_bytes(json.dumps(message).encode())
        except OSError:
            _log.debug("the task %s-%d is gone", *self.spec.task)


def _drained(messages: queue.SimpleQueue[Message]) -> list[Message]:
    drained = []
    while True:
        try:
            drained.append(messages.get_nowait())
        except queue.Empty:
            return drained
