"""Running a source's task in a worker: fence earlier runs, go on from the stored offsets, deliver."""

from __future__ import annotations

import time
from typing import cast

from penstock.base.log_lines import own_logger
from penstock.connect.api import SourceTask
from penstock.connect.data import RetriableError
from penstock.connect.delivery import Pipeline, RecordWriter, SourceDelivery, SourceSteps, WritableLog
from penstock.connect.delivery.outgoing import MAX_REQUEST_BYTES
from penstock.connect.delivery.record_errors import ErrorHandler, Tolerance
from penstock.connect.delivery.source import SourceContext, boundary_of
from penstock.connect.delivery.topic_creation import TopicCreation
from penstock.connect.plugins import transformation_chain
from penstock.connect.storage.offset_store import ConnectorOffsets, OffsetStore
from penstock.connect.storage.topic_table import TopicTable
from penstock.connect.tasks.dead_letters import dead_letters
from penstock.connect.tasks.parts import TaskLink, TaskParts
from penstock.connect.tasks.retries import Repeated
from penstock.errors import LogUnavailableError
from penstock.log.thread_clients import Writer

__all__ = ["SourceRun"]

_log = own_logger(__name__)
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
