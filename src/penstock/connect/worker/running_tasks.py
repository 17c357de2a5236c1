"""Tasks of a worker that run, or are being stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.connect.storage.config_store import ConnectorTaskId
from penstock.connect.tasks.handles import Message, TaskHandle
from penstock.connect.tasks.parts import TaskSpec

__all__ = ["TaskSlots"]

Wanted = Mapping[ConnectorTaskId, tuple[TaskSpec, int, str]]
_KILLED_S = 5.0


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
        """The tasks of a connector that are here."""
        return [task for task in list(self._slots) if task[0] == connector]

    def owned(self) -> list[ConnectorTaskId]:
        """All tasks that are here, also those that still stop."""
        return list(self._slots)

    def handle(self, task: ConnectorTaskId) -> TaskHandle | None:
        """A task that runs here."""
        slot = self._slots.get(task)
        return None if slot is None else slot.handle

    def align(self, wanted: Wanted) -> None:
        """Start, stop and pause tasks: what each is to run with, the version of its config, its target state."""
        for task, slot in list(self._slots.items()):
            if slot.deadline is None and (task not in wanted or wanted[task][1] != slot.version):
                self.stop(task)
        self.reap()
        for task, (spec, version, target) in wanted.items():
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
        """Tasks that were stopped and have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def news(self) -> Iterator[tuple[ConnectorTaskId, Message]]:
        """What the tasks have reported since the last call; a task that is stopped has nothing to report."""
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
