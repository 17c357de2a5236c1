"""Running a sink's task in a worker: a member of the connector's group, which commits from time to time."""

from __future__ import annotations

import re
import time

from penstock.base.java_text.regex import compile_java
from penstock.connect.api import SinkTask
from penstock.connect.data import RetriableError, SettingError
from penstock.connect.delivery import Pipeline, SinkDelivery
from penstock.connect.delivery.record_errors import ErrorHandler, Tolerance
from penstock.connect.plugins import transformation_chain
from penstock.connect.tasks.dead_letters import dead_letters
from penstock.connect.tasks.parts import TaskLink, TaskParts
from penstock.connect.tasks.retries import Repeated
from penstock.errors import UnknownTopicError
from penstock.log import Consumer

__all__ = ["SinkRun"]

_POLL_S = 0.2
_RETRY_MS = 1000
_LOOK_S = 1.0  # between two looks for topics that are not there yet
_QUEUED_KB = 4096  # of records that wait for the task: librdkafka's own limit is 64 MB for each consumer
_LITTLE_QUEUED = {
    "consumer.queued.max.messages.kbytes": str(_QUEUED_KB),
    "consumer.fetch.queue.backoff.ms": "20",  # its own 1000 are for a queue that lasts for longer
}


class SinkRun:
    """A sink's task while it runs."""

    def __init__(self, parts: TaskParts, link: TaskLink) -> None:
        self._parts = parts
        self._link = link
        self._letters = dead_letters(parts)
        self._log = parts.open_log("consumer", _LITTLE_QUEUED)
        errors = ErrorHandler(Tolerance.of(parts.connector), link.wait, self._letters)
        pipeline = Pipeline(parts.converters(), transformation_chain(parts.connector, parts.plugins), errors)
        reset = (parts.client_override("consumer", "auto.offset.reset") or "earliest").lower()
        self._consumer = Consumer(
            self._log,
            group=parts.client_override("consumer", "group.id") or f"connect-{parts.name}",
            auto_offset_reset="latest" if reset == "latest" else "none" if reset == "none" else "earliest",
            client_id=f"connector-consumer-{parts.name}-{parts.spec.task[1]}",
            assignors=("cooperative-sticky",),
        )
        task: SinkTask = parts.plugin.make().task_class()
        self._delivery = SinkDelivery(self._log, self._consumer, task, parts.config, pipeline, watcher=link)
        topics = (parts.connector.get("topics") or "").split(",")
        self._topics = [name.strip() for name in topics if name.strip()]
        self._existing: list[str] = []
        self._repeated = Repeated(parts.spec.task, link)
        self._next_look = 0.0
        self._most = int(parts.client_override("consumer", "max.poll.records") or 500)
        if self._most < 1:
            raise SettingError.invalid("consumer.override.max.poll.records", self._most, "Value must be at least 1")
        self._interval_s = parts.worker["offset.flush.interval.ms"] / 1000
        self._next_commit = time.monotonic() + self._interval_s

    def start(self) -> None:
        """Start the task, and join the connector's group."""
        self._delivery.start()
        pattern = (self._parts.connector.get("topics.regex") or "").strip()
        if pattern:
            compile_java(pattern)
            self._consumer.subscribe(re.compile(pattern), listener=self._delivery)
            self._topics = []
        self._look_for_topics()

    def step(self) -> None:
        """Read and put one batch, and commit if it is time.

        Raises:
            ConnectError: The task fails.
        """
        if self._delivery.context.commit_requested or time.monotonic() >= self._next_commit:
            try:
                self._delivery.commit()
            except RetriableError as error:
                self._next_commit = 0.0  # again before anything else is taken
                self._wait_after(error)
                self._delivery.stay()
                return
            self._next_commit = time.monotonic() + self._interval_s
        if len(self._existing) < len(self._topics):
            self._look_for_topics()
            if not self._existing:
                self._link.wait(_POLL_S)
                return
        try:
            self._delivery.deliver(self._most, min(_POLL_S, self._interval_s))
        except RetriableError as error:
            self._wait_after(error)
            return
        self._repeated.passed()

    def _wait_after(self, error: RetriableError) -> None:
        self._repeated.note(error)
        self._link.wait(self._delivery.context.take_timeout_ms(_RETRY_MS) / 1000)

    def idle(self) -> None:
        """Stay in the group while the task is paused."""
        if self._topics and not self._existing:
            self._link.wait(_POLL_S)
        else:
            self._delivery.idle(_POLL_S)

    def wake(self) -> None:
        """Read on after a pause."""
        self._delivery.wake()

    def finish(self, *, failed: bool) -> None:
        """Commit what was delivered, leave the group, and stop the task."""
        try:
            self._delivery.stop(failed=failed)
        finally:
            if self._letters is not None:
                self._letters.close()

    def _look_for_topics(self) -> None:
        """Subscribe to the topics that are there; those that are not may come."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_S
        topics = [name for name in self._topics if self._is_there(name)]
        if topics != self._existing:
            self._existing = topics
            self._consumer.subscribe(topics, listener=self._delivery)

    def _is_there(self, topic: str) -> bool:
        try:
            self._log.partitions(topic)
        except UnknownTopicError:
            return False
        return True
