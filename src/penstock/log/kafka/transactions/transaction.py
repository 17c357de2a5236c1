"""A transaction of Kafka: outputs and ledger entry become visible together, whatever fails on the way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.base.log_lines import own_logger
from penstock.errors import (
    FencedError,
    InvalidStateError,
    PenstockError,
    other_inputs,
)
from penstock.log.base import TopicPartition
from penstock.log.kafka.error_codes import ErrorCategory
from penstock.log.kafka.failures import category_of, error_of, failure, not_in_time
from penstock.log.kafka.transactions.failed_transactions import TransactionAttempts, refusal
from penstock.log.kafka.transactions.ledger import LEASE, Ledger, LedgerRecord, entry_part, partition_of
from penstock.log.kafka.wire.produce import NotWrittenError
from penstock.log.kafka.wire.transactions import TransactionTimedOutError
from penstock.log.kafka.writing import AnyPart, checked
from penstock.log.stored_batches import joined

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.kafka.transactions.core import KafkaCore
    from penstock.log.kafka.transactions.producer_fencing import OwnProducer
    from penstock.log.stored_batches import StoredRecords

__all__ = ["KafkaTransaction", "transaction"]

_log = own_logger(__name__)
_WORTH_ANOTHER = (ErrorCategory.PASSES, ErrorCategory.SETTLES, ErrorCategory.ABORTABLE, ErrorCategory.FENCED)


class _RetryableError(Exception):
    """The attempt has written nothing visible; another may succeed."""

    def __init__(self, error: KafkaException) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def transaction(log: KafkaCore, transactional_id: str, epoch: int | None = None) -> Iterator[KafkaTransaction]:
    """Begin a transaction, which commits when the block ends and writes nothing if it raises."""
    begun = KafkaTransaction(log, transactional_id, epoch)
    yield begun
    begun.commit()


class KafkaTransaction:
    """Buffers appends, group offsets and ledger entries until the block ends.

    Attributes:
        already_written: True after the commit if the ledger shows that this very batch was written before.
        first_offsets: After the commit, the offset of the first record of each partition.
        following: After the commit, the offset after the last record of each partition, where it is known.
    """

    def __init__(self, log: KafkaCore, transactional_id: str, epoch: int | None) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = epoch
        self._parts: list[AnyPart] = []
        self._may_be_written: Callable[[], bool] | None = None
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._entry: tuple[str, str, LedgerRecord] | None = None
        self._ended = False
        self._size_bytes = 0
        self._timeout_ms = 0
        self.already_written = False
        self.first_offsets: dict[TopicPartition, int] = {}
        self.following: dict[TopicPartition, int] = {}

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Add records (RECORD_SCHEMA); the ``offset`` column may be absent and is ignored."""
        self._check_open()
        if records.num_rows:
            self._parts.append((topic, partition, checked(topic, partition, records)))
            self._size_bytes += records.nbytes

    def append_stored(self, topic: str, partition: int, records: StoredRecords) -> None:
        """Add record batches as another log has stored them; their producers and offsets are replaced."""
        self._check_open()
        if records.batches:
            self._parts.append((topic, partition, records))
            self._size_bytes += records.nbytes

    def ask_before_repeating(self, is_written: Callable[[], bool]) -> None:
        """Set a check for a transaction without a ledger entry, which raises FencedError if another writer was here.

        It is asked whenever the producer has been initialised, as it is before the transaction is repeated: a commit
        whose answer was lost may have succeeded, and another producer may have written before. Without a check, a
        producer that was fenced is not initialised again.
        """
        self._check_open()
        self._may_be_written = is_written

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Add a group's next offsets, set right after the records."""
        self._check_open()
        self._offsets.setdefault(group, {}).update(offsets)

    def put_ledger(self, application: str, task: str, batch: int, inputs: str = "") -> None:
        """Record that this task has written batch ``batch``; the commit checks that it had not."""
        self._check_open()
        if self._entry is not None or not self._id:
            raise InvalidStateError(
                "a ledger entry needs its own transaction, with an id", hint="give each task its own transaction"
            )
        self._entry = (application, task, LedgerRecord(batch, self._epoch or 0, inputs))

    def commit(self) -> None:
        """Write everything; called by the log when the block ends."""
        self._check_open()
        self._ended = True
        if not self._id:
            self._log.write_plainly(self._parts)
        elif self._parts or self._entry:
            self._write()
        for group, offsets in self._offsets.items():
            self._log.commit_offsets(group, offsets)

    def _write(self) -> None:
        """Retry until it is written or fails for good; each attempt writes all or nothing."""
        access, began = self._log.clients.access, time.monotonic()
        attempts = TransactionAttempts(self._log.patience_s)
        while True:
            try:
                self._attempt()
            except TransactionTimedOutError as error:
                self._extend_timeout(error)
            except _RetryableError as again:
                refused = access.refused_since(began)
                if refused is not None or not attempts.allow_retry(again.error):
                    raise self._failure(refused or again.error) from None
                level = logging.DEBUG if attempts.is_ordinary else logging.WARNING
                _log.log(level, "transaction %s is repeated: %s", self._id, error_of(again.error).str())
                time.sleep(attempts.pause_s())
            else:
                return

    def _extend_timeout(self, error: TransactionTimedOutError) -> None:
        """Use a longer time-out for the next attempt.

        Raises:
            LogUnavailableError: The brokers do not allow a longer one.
        """
        longer = self._log.clients.timeouts.longer(error.timeout_ms)
        if longer is None:
            raise not_in_time(self._id, self._size_bytes, error.timeout_ms) from error
        _log.warning("%s; it is written again, within %d s", error_of(error).str(), longer // 1000)
        self._timeout_ms = longer

    def _attempt(self) -> None:
        own = self._log.producers.transactional(self._id, self._epoch)
        try:
            if self._is_overtaken(own):
                self._log.producers.drop(self._id)
                own = self._log.producers.transactional(self._id, self._epoch)
            if self._is_written(own):
                self.already_written = True
                return
            parts = self._parts
            if self._entry is not None:
                application, task, entry = self._entry
                topic, partition, record = entry_part(application, task, entry.pack())
                parts = [*parts, (topic, partition, checked(topic, partition, record))]
            self.following = own.writer.write(joined(parts))
            self.first_offsets = dict(own.writer.firsts)
        except TransactionTimedOutError:
            self._log.producers.drop(self._id)
            raise
        except KafkaException as error:
            self._give_up(own, error)
        except BaseException:
            self._log.producers.drop(self._id)
            raise
        if self._entry is not None:
            own.written[self._entry[1]] = self._entry[2]

    def _is_overtaken(self, own: OwnProducer) -> bool:
        """Return whether another process has written for the task since, which has fenced this producer.

        It reads the ledger only if this process has not written the batch before.
        """
        if self._entry is None or not own.writer.ready:
            return False
        application, task, record = self._entry
        mine = own.written.get(task)
        if mine is None or mine.batch >= record.batch - 1:
            return False
        with self._log.ledger_of(application) as ledger:
            ledger.read([partition_of(task)])
            entry = ledger.entry(task)
        return entry is not None and entry.batch > mine.batch

    def _is_written(self, own: OwnProducer) -> bool:
        """Return whether the batch is written; reads the ledger only if another producer may have written since."""
        is_new = own.initialise(max(self._timeout_ms, self._log.clients.timeouts.needed(self._size_bytes)))
        if self._entry is None:  # whatever it compares, stays true until it is fenced
            return is_new and self._may_be_written is not None and self._may_be_written()
        application, task, record = self._entry
        if task not in own.written:
            with self._log.ledger_of(application) as ledger:
                ledger.read([partition_of(LEASE), partition_of(task)])
                self._check_epoch(ledger)
                own.written[task] = ledger.entry(task) or LedgerRecord(-1, 0)
        written = own.written[task]
        if written.batch > record.batch:
            raise FencedError(
                f"task {task} of {application!r} wants to write batch {record.batch}, but batch "
                f"{written.batch} is written",
                hint="an old attempt can be ignored; if the checkpoint was deleted, reset the application as well",
                application=application, task=task, batch=record.batch, written=written.batch,
            )  # fmt: skip
        if written.batch == record.batch and written.inputs and record.inputs not in ("", written.inputs):
            raise other_inputs(task, record.batch, f"the ledger of {application!r}", application=application)
        return written.batch == record.batch

    def _check_epoch(self, ledger: Ledger) -> None:
        held = ledger.lease()
        if held is not None and self._epoch is not None and int(str(held["epoch"])) > self._epoch:
            raise FencedError(
                f"transaction {self._id!r} of epoch {self._epoch}: {held['owner']} (process {held['pid']} on "
                f"{held['host']}) has taken over with epoch {held['epoch']}",
                hint="stop this instance; the newer one continues",
                transactional_id=self._id, epoch=self._epoch, newest=held["epoch"],
            )  # fmt: skip

    def _give_up(self, own: OwnProducer, error: KafkaException) -> None:
        """Raise the final error, or `_RetryableError`, after an error of Kafka.

        The transaction may be committed or not: another attempt ends it, and finds out from the ledger. After an error
        that is final it is aborted by the producer that began it.
        """
        self._log.producers.drop(self._id)
        is_compared = self._entry is not None or self._may_be_written is not None
        if category_of(error) is ErrorCategory.FENCED and not is_compared:
            raise self._failure(error) from error  # it could not see what the newer producer has written
        if category_of(error) in _WORTH_ANOTHER:
            self._log.clients.cluster().forget()
            raise _RetryableError(error) from error
        with suppress(KafkaException):  # it ends by itself after transaction.timeout.ms
            own.writer.abort()
        if isinstance(error, NotWrittenError):
            refused = refusal(self._log, self._parts, error)
            if refused is None:
                raise _RetryableError(error) from error
            raise refused
        raise self._failure(error) from error

    def _failure(self, error: KafkaException | KafkaError) -> PenstockError:
        access = self._log.clients.access
        return failure(error, f"transaction {self._id!r}", access, transactional_id=self._id, operation="WRITE")

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidStateError("this transaction has ended", hint="begin another with log.transaction(...)")
