"""The run of a task in a worker: of a source, which fences earlier runs, or of a sink, which is a member of a group."""

from __future__ import annotations

import re
import time
from typing import cast

from penstock.base.java_text.regex import compile_java
from penstock.base.log_lines import own_logger
from penstock.connect.api import SinkTask, SourceTask
from penstock.connect.data import RetriableError, SettingError
from penstock.connect.delivery import Pipeline, RecordWriter, SinkDelivery, SourceDelivery, SourceSteps, WritableLog
from penstock.connect.delivery.record_errors import ErrorHandler, Tolerance
from penstock.connect.delivery.source import SourceContext, boundary_of
from penstock.connect.delivery.source_encoding import MAX_REQUEST_BYTES
from penstock.connect.delivery.topic_creation import TopicCreation
from penstock.connect.plugins import transformation_chain
from penstock.connect.storage.config_store import ConnectorTaskId
from penstock.connect.storage.offset_store import ConnectorOffsets, OffsetStore
from penstock.connect.storage.topic_table import TopicTable
from penstock.connect.tasks.dead_letters import dead_letters
from penstock.connect.tasks.task_parts import TaskLink, TaskParts
from penstock.errors import LogUnavailableError, UnknownTopicError
from penstock.log import Consumer
from penstock.log.thread_clients import Writer

__all__ = ["SinkRun", "SourceRun"]

_log = own_logger(__name__)


class Repeated:
    """The errors of a task that may pass.

    Args:
        task: The task.
        link: Its worker.
    """

    def __init__(self, task: ConnectorTaskId, link: TaskLink) -> None:
        self._task, self._link = task, link
        self._last: str | None = None

    def note(self, error: Exception) -> None:
        """Note an error after which the task tries again."""
        text = str(error)
        self._link.count(0, text)
        if text != self._last:
            self._last = text
            _log.warning("task %s-%d tries again: %s", *self._task, text)

    def passed(self) -> None:
        """Note that it has succeeded."""
        if self._last is not None:
            self._last = None
            _log.warning("task %s-%d continues", *self._task)


_IDLE_S = 0.1
_RETRY_S = 1.0
_OPEN_S = 120.0


class SourceRun:
    """A source's task while it runs."""

    def __init__(self, parts: TaskParts, link: TaskLink) -> None:
        self._parts = parts
        self._link = link
        self._task: SourceTask = parts.plugin.make().task_class()
        converters = parts.converters()
        chain = transformation_chain(parts.connector, parts.plugins)
        self._letters = dead_letters(parts)
        errors = ErrorHandler(Tolerance.of(parts.connector), link.wait, self._letters)
        self._pipeline = Pipeline(converters, chain, errors)
        self._log = cast("WritableLog", parts.open_log("producer"))
        self._creation = TopicCreation(self._log, parts.connector, enabled=parts.worker["topic.creation.enable"])
        self._writer: RecordWriter | None = None
        self._delivery: SourceDelivery | None = None
        self._has_begun = False
        self._repeated = Repeated(parts.spec.task, link)

    def start(self) -> None:
        """Fence earlier runs of this task, read the offsets that they have stored, and start the task."""
        parts = self._parts
        topic, (name, number) = parts.spec.offsets_topic, parts.spec.task
        exactly_once = parts.worker["delivery.guarantee"] == "exactly_once"
        writer = Writer(parts.group, f"{name}-{number}", None, exactly_once)
        self._writer = RecordWriter(self._log, writer, topic, number)
        store = OffsetStore(TopicTable(self._log, topic, 1))
        self._catch_up(store)
        boundary = boundary_of(parts.connector, parts.worker["offset.flush.interval.ms"])
        most_bytes = int(parts.client_override("producer", "max.request.size") or MAX_REQUEST_BYTES)
        steps = SourceSteps(self._pipeline, most_bytes)
        self._delivery = SourceDelivery(
            name, self._task, steps, self._writer, self._creation, boundary=boundary, watcher=self._link
        )
        self._task.context = SourceContext(
            parts.config, ConnectorOffsets(store, name), boundary.context, copies=exactly_once and self._pipeline.copies
        )
        self._has_begun = True
        self._task.start(parts.config)

    def _catch_up(self, store: OffsetStore) -> None:
        """Read all stored offsets; those behind the open transaction of another task show when that one ends.

        Raises:
            LogUnavailableError: It stays open for longer than brokers let any.
        """
        deadline = time.monotonic() + _OPEN_S
        while True:
            try:
                store.catch_up()
            except LogUnavailableError:
                if self._link.target == "STOPPED" or time.monotonic() >= deadline:
                    raise
                _log.warning("task %s-%d waits for another task's transaction to end", *self._parts.spec.task)
            else:
                return

    def step(self) -> None:
        """Poll once, and deliver what comes.

        Raises:
            ConnectError: The task, a transformation, a converter or the log fails.
        """
        delivery = self._delivery
        assert delivery is not None  # noqa: S101 - start comes first
        try:
            records = delivery.deliver()
        except RetriableError as error:
            self._repeated.note(error)
            self._link.wait(_RETRY_S)
            return
        self._repeated.passed()
        if not records:
            self._link.wait(_IDLE_S)

    def finish(self, *, failed: bool) -> None:
        """Deliver what is pending, and stop the task."""
        try:
            if self._delivery is not None and not failed:
                self._delivery.finish()
        finally:
            if self._has_begun:
                self._task.stop()
            self._pipeline.close()
            if self._letters is not None:
                self._letters.close()
            if self._writer is not None:
                self._writer.close()


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
