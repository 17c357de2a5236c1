"""Tasks without a worker: with stored offsets, a writer and a consumer of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from penstock.connect.api import SinkTask, SourceTask
from penstock.connect.data import RetriableError, SourceRecord
from penstock.connect.delivery.boundaries import boundary_of
from penstock.connect.delivery.outgoing import SourceSteps
from penstock.connect.delivery.pipeline import Pipeline
from penstock.connect.delivery.record_errors import EXCEEDED, NOT_PUT, NOT_SENT
from penstock.connect.delivery.sink import SinkDelivery
from penstock.connect.delivery.source import SourceDelivery, Watcher
from penstock.connect.delivery.source_context import SourceContext
from penstock.connect.delivery.steps import OnStep
from penstock.connect.delivery.stored_offsets import StoredOffsets
from penstock.connect.delivery.topic_creation import TopicCreation
from penstock.connect.delivery.writing import RecordWriter, WritableLog
from penstock.errors import ConnectError
from penstock.log import Consumer
from penstock.log.base import TopicLog
from penstock.log.thread_clients import Writer

__all__ = ["SingleSource", "plainly", "single_sink"]


@contextmanager
def plainly() -> Iterator[None]:
    """Raise the errors of connectors and plugins themselves, without the words that a worker shows around them."""
    try:
        yield
    except ConnectError as error:
        if error.message in (EXCEEDED, NOT_SENT, NOT_PUT) and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


class SingleSource:
    """A source's task that delivers exactly once, or at least once.

    Args:
        log: The log that is written to.
        identity: The name of the connector and the number of the task.
        task: The task, not started yet.
        settings: Its config.
        pipeline: Transformations and converters.
        exactly_once: Records and source offsets are one transaction.
        more: The ``watcher`` and ``on_step`` of a `SourceDelivery`.
    """

    def __init__(
        self,
        log: TopicLog,
        identity: tuple[str, int],
        task: SourceTask,
        settings: Mapping[str, str],
        pipeline: Pipeline,
        *,
        exactly_once: bool = True,
        **more: Any,
    ) -> None:
        self._exactly_once = exactly_once
        self.task, self._settings = task, settings
        self.offsets = StoredOffsets(log, identity[0])
        self._log, self._identity = log, identity
        self._pipeline, self._more = pipeline, more
        self._writer: RecordWriter | None = None
        self._delivery: SourceDelivery | None = None

    def start(self) -> None:
        """Fence an earlier run, and start the task at its stored offsets."""
        name, number = self._identity
        writable = cast("WritableLog", self._log)
        writer = Writer("connect", f"{name}-{number}", None, self._exactly_once)
        self._writer = RecordWriter(writable, writer, self.offsets.topic, number)
        boundary = boundary_of(self._settings)
        creation = TopicCreation(self._log, self._settings, enabled=True)
        steps = SourceSteps(self._pipeline)
        self._delivery = SourceDelivery(
            name, self.task, steps, self._writer, creation, boundary=boundary, **self._more
        )  # fmt: skip
        self.task.context = SourceContext(
            self._settings, self.offsets, boundary.context, self._exactly_once and self._pipeline.copies
        )
        self.task.start(self._settings)

    def deliver(self) -> Sequence[SourceRecord]:
        """Poll once, and write what is due; returns what the task returned.

        Raises:
            ConnectError: The task, a transformation or a converter fails.
        """
        assert self._delivery is not None  # noqa: S101 - start comes first
        try:
            return self._delivery.deliver()
        except RetriableError:
            return ()

    def stop(self, *, failed: bool = False) -> None:
        """Write what is pending, and stop the task."""
        try:
            if self._delivery is not None and not failed:
                self._delivery.finish()
        finally:
            self.task.stop()
            self._pipeline.close()
            if self._writer is not None:
                self._writer.close()


def single_sink(
    log: TopicLog,
    task: SinkTask,
    settings: Mapping[str, str],
    pipeline: Pipeline,
    *,
    watcher: Watcher | None = None,
    on_step: OnStep = lambda _step: None,
) -> SinkDelivery:
    """Return a sink's task whose partitions are assigned by hand; the group is that of the connector in a worker."""
    consumer = Consumer(log, group=f"connect-{settings['name']}")
    return SinkDelivery(log, consumer, task, settings, pipeline, watcher=watcher, on_step=on_step)
