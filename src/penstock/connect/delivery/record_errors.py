"""Errors of records: retries, what is tolerated, where failed records are reported, and their stack traces."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.connect.data import RetriableError, SinkRecord, java_name
from penstock.errors import ConnectError
from penstock.log import ConsumerRecord

__all__ = [
    "EXCEEDED",
    "NOT_PUT",
    "NOT_SENT",
    "ErrantRecords",
    "ErrorHandler",
    "FailedRecord",
    "Tolerance",
    "error_message",
    "trace_text",
]

_MOST_CAUSES = 10


def trace_text(error: BaseException) -> str:
    """Return the stack trace of an error and of its causes.

    >>> from penstock.errors import ConnectError
    >>> print(trace_text(ConnectError("no configs today")))
    org.apache.kafka.connect.errors.ConnectException: no configs today
    """
    parts = []
    for number, each in enumerate(_chain(error)):
        frames = traceback.extract_tb(each.__traceback__)
        lines = [f"\tat {frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames)]
        head = f"{java_name(each)}: {error_message(each)}"
        parts.append("\n".join([head if number == 0 else f"Caused by: {head}", *lines]))
    return "\n".join(parts)


def error_message(error: BaseException) -> str:
    """Return the message of an error, without the hint."""
    return str(getattr(error, "message", None) or error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__


_log = own_logger(__name__)
T = TypeVar("T")
EXCEEDED = "Tolerance exceeded in error handler"
NOT_SENT = "Unrecoverable exception from producer send callback"
NOT_PUT = "Exiting WorkerSinkTask due to unrecoverable exception."
_FIRST_DELAY_S = 0.3  # Kafka Connect's
_FOREVER = -1
_TASK_PUT, _SINK_TASK = "TASK_PUT", "org.apache.kafka.connect.sink.SinkTask"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The ``errors.*`` settings of a connector.

    Attributes:
        all: Failed records are skipped (``errors.tolerance=all``).
        retry_ms: For how long an operation is tried again; -1: for ever.
        most_delay_ms: The longest wait between two tries.
        logs: Failed records are logged.
        logs_records: With their contents.
    """

    all: bool = False
    retry_ms: int = 0
    most_delay_ms: int = 60_000
    logs: bool = False
    logs_records: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str | None]) -> Tolerance:
        """Read the settings of a connector's config, which was validated."""

        def flag(name: str) -> bool:
            return str(config.get(name)).strip().lower() == "true"

        return cls(
            (config.get("errors.tolerance") or "none").strip().lower() == "all",
            int(config.get("errors.retry.timeout") or 0),
            int(config.get("errors.retry.delay.max.ms") or 60_000),
            flag("errors.log.enable"),
            flag("errors.log.include.messages"),
        )


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record that failed, with the place of the failure.

    Attributes:
        stage: The step, such as ``VALUE_CONVERTER``.
        java_class: The class of the plugin that failed.
        error: The error.
        record: The record as it was read from the topic; None: it comes from a source.
        shown: The record for log messages.
    """

    stage: str
    java_class: str
    error: BaseException
    record: ConsumerRecord | None
    shown: object = None


class Reporter(Protocol):
    """A receiver of failed records."""

    def report(self, failed: FailedRecord) -> None: ...


class ErrorHandler:
    """The handling of errors in the steps of records, as ``errors.*`` says.

    Args:
        tolerance: The settings.
        wait: Waits for some seconds, or less when the task is stopped.
        reporter: Takes failed records besides the log; None: nobody.
    """

    def __init__(self, tolerance: Tolerance, wait: Callable[[float], None], reporter: Reporter | None = None) -> None:
        self.tolerance = tolerance
        self.reporter = reporter
        self._wait = wait
        self.tolerated = 0

    def run(
        self, step: tuple[str, str], operation: Callable[[], T], record: ConsumerRecord | None, shown: object = None
    ) -> tuple[bool, T | None]:
        """Run a step of a record: stage and class.

        Returns:
            Whether it succeeded, and its result.

        Raises:
            ConnectError: It failed, and errors are not tolerated.
        """
        try:
            return True, operation()
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises
            return self.after(error, step, operation, record, shown)

    def after(
        self,
        error: Exception,
        step: tuple[str, str],
        operation: Callable[[], T],
        record: ConsumerRecord | None,
        shown: object = None,
    ) -> tuple[bool, T | None]:
        """Go on after a step has failed: try it again if the error and the settings say so, or report the record.

        Returns and raises what `run` does.
        """
        try:
            if isinstance(error, RetriableError):
                return True, self._tried_again(operation, error)
        except Exception as later:  # noqa: BLE001 - the last of its errors counts
            error = later
        self.failed(FailedRecord(*step, error, record, shown))
        if not self.tolerance.all:
            raise ConnectError(EXCEEDED) from error
        return False, None

    def failed(self, failed: FailedRecord) -> None:
        """Report a record that failed."""
        if self.tolerance.logs:
            more = f" with record {failed.record or failed.shown}" if self.tolerance.logs_records else ""
            _log.error(
                "Error encountered in stage '%s' executed by class '%s'%s: %s",
                failed.stage, failed.java_class, more, error_message(failed.error),
            )  # fmt: skip
        if self.reporter is not None:
            self.reporter.report(failed)
        if self.tolerance.all:
            self.tolerated += 1

    def _tried_again(self, operation: Callable[[], T], error: RetriableError) -> T:
        began = time.monotonic()
        backoff = Backoff(_FIRST_DELAY_S, self.tolerance.most_delay_ms / 1000)
        for failures in itertools.count(1):
            limit = self.tolerance.retry_ms
            if limit == 0 or (limit != _FOREVER and (time.monotonic() - began) * 1000 >= limit):
                raise error
            is_longest = backoff.pause_s(failures) == backoff.longest_s
            self._wait((replace(backoff, jitter=1.0) if is_longest else backoff).pause_s(failures))
            try:
                return operation()
            except RetriableError as again:
                error = again
        raise AssertionError  # pragma: no cover


class OriginalRecords(Protocol):
    """The records as they were read from a topic, before any conversion."""

    def get(self, where: tuple[str | None, int | None, int | None], /) -> ConsumerRecord | None:
        """Return the record of a topic, partition and offset."""
        ...


class ErrantRecords:
    """The reporter of a sink's task: an `ErrantRecordReporter`."""

    def __init__(self, handler: ErrorHandler, originals: OriginalRecords) -> None:
        self._handler = handler
        self._originals = originals

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Send a record to the dead letters.

        Raises:
            ConnectError: Errors are not tolerated.
        """
        position = (record.original_topic, record.original_partition, record.original_offset)
        self._handler.failed(FailedRecord(_TASK_PUT, _SINK_TASK, error, self._originals.get(position), record))
        done: Future[None] = Future()
        if not self._handler.tolerance.all:
            raise ConnectError(EXCEEDED) from error
        done.set_result(None)
        return done
