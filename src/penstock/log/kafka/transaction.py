"""A transaction over Kafka: outputs and ledger entry become visible together, whatever fails on the way."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import FencedError, InvalidStateError, PenstockError, ProductionError
from penstock.log.base import TopicPartition
from penstock.log.kafka.failures import error_of, failure, is_fenced, may_be_repeated
from penstock.log.kafka.ledger import LEASE, Ledger, entry_part, partition_of
from penstock.log.kafka.refusals import is_too_large, record_limit, refused_rows
from penstock.log.kafka.wire.produce import NotWrittenError
from penstock.log.kafka.writing import Part, checked, placed

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.kafka.log import KafkaLog
    from penstock.log.kafka.producers import OwnProducer

__all__ = ["KafkaTransaction"]

_log = logging.getLogger(__name__)
_FENCED_TRIES = 8
_FENCED_USUALLY = 3
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class _Again(Exception):  # noqa: N818 - no error: the way out of an attempt that can be repeated
    """The attempt has written nothing that anybody will see; another may succeed."""

    def __init__(self, error: KafkaException, *, fenced: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.fenced = fenced


class KafkaTransaction:
    """Buffers appends, group offsets and ledger entries until the block ends.

    Attributes:
        already_written: True after the commit if the ledger said that this very batch was written before.
    """

    def __init__(self, log: KafkaLog, transactional_id: str, epoch: int | None) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = epoch
        self._parts: list[Part] = []
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._entry: tuple[str, str, int] | None = None
        self._ended = False
        self.already_written = False

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Records as RECORD_SCHEMA; the ``offset`` column may be absent and is not read."""
        self._check_open()
        if records.num_rows:
            self._parts.append((topic, partition, checked(topic, partition, records)))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's next offsets, set right after the records."""
        self._check_open()
        self._offsets.setdefault(group, {}).update(offsets)

    def put_ledger(self, application: str, task: str, batch: int) -> None:
        """Notes that this task has written batch ``batch``; the commit checks that it had not."""
        self._check_open()
        if self._entry is not None or not self._id:
            raise InvalidStateError(
                "a ledger entry needs a transaction of its own with an id", hint="give each task its own transaction"
            )
        self._entry = (application, task, batch)

    def commit(self) -> None:
        """Writes everything; called by the log when the block ends."""
        self._check_open()
        self._ended = True
        if not self._id:
            self._log.write_plainly(self._parts)
        elif self._parts or self._entry:
            self._write()
        for group, offsets in self._offsets.items():
            self._log.commit_offsets(group, offsets)

    def _write(self) -> None:
        """Tries until it is written or cannot be; each attempt leaves all or nothing."""
        access, began = self._log.clients.access, time.monotonic()
        deadline = began + self._log.patience_s
        pause, fenced = _PAUSE_S, 0
        while True:
            try:
                self._attempt()
            except _Again as again:
                fenced += again.fenced
                refused = access.refused_since(began)
                if refused is not None or fenced > _FENCED_TRIES or time.monotonic() > deadline:
                    raise self._failure(refused or again.error) from None
                # Being fenced is usual where tasks change processes; to be fenced again and again is not.
                level = logging.DEBUG if again.fenced and fenced < _FENCED_USUALLY else logging.WARNING
                _log.log(level, "transaction %s is repeated: %s", self._id, error_of(again.error).str())
                if again.fenced and fenced == 1:
                    continue
            else:
                return
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that two that fence each other part
            pause = min(2 * pause, _LONGEST_PAUSE_S)

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
                application, task, batch = self._entry
                note = json.dumps({"batch": batch, "epoch": self._epoch or 0}).encode()
                topic, partition, record = entry_part(application, task, note)
                parts = [*parts, (topic, partition, checked(topic, partition, record))]
            own.writer.write([placed(part) for part in parts])
        except KafkaException as error:
            self._give_up(own, error)
        except BaseException:
            self._log.producers.drop(self._id)
            raise
        if self._entry is not None:
            own.written[self._entry[1]] = self._entry[2]

    def _is_overtaken(self, own: OwnProducer) -> bool:
        """Whether another process has written for the task since: then this producer is fenced, and need not find out.

        Looks only where this process has not done the batch before.
        """
        if self._entry is None or not own.writer.ready:
            return False
        application, task, batch = self._entry
        mine = own.written.get(task)
        if mine is None or mine >= batch - 1:
            return False
        with self._log.ledger_of(application) as ledger:
            ledger.read([partition_of(task)])
            entry = ledger.entry(task)
        return entry is not None and entry.batch > mine

    def _is_written(self, own: OwnProducer) -> bool:
        """Looks into the ledger, unless nobody else can have written since this producer did."""
        own.initialise()
        if self._entry is None:
            return False
        application, task, batch = self._entry
        if task not in own.written:
            with self._log.ledger_of(application) as ledger:
                ledger.read([partition_of(LEASE), partition_of(task)])
                self._check_epoch(ledger)
                entry = ledger.entry(task)
            own.written[task] = -1 if entry is None else entry.batch
        if own.written[task] > batch:
            raise FencedError(
                f"task {task} of {application!r} wants to write batch {batch}, but batch "
                f"{own.written[task]} is written",
                hint="an old attempt needs nothing; if the checkpoint was deleted, reset the application as well",
                application=application, task=task, batch=batch, written=own.written[task],
            )  # fmt: skip
        return own.written[task] == batch

    def _check_epoch(self, ledger: Ledger) -> None:
        held = ledger.lease()
        if held is not None and self._epoch is not None and int(str(held["epoch"])) > self._epoch:
            raise FencedError(
                f"transaction {self._id!r} of epoch {self._epoch}: {held['owner']} (process {held['pid']} on "
                f"{held['host']}) has taken over with epoch {held['epoch']}",
                hint="stop this instance; the newer one goes on",
                transactional_id=self._id, epoch=self._epoch, newest=held["epoch"],
            )  # fmt: skip

    def _give_up(self, own: OwnProducer, error: KafkaException) -> None:
        """After an error of Kafka: raises what is final, or `_Again`.

        Whether the transaction was committed is open then. A new producer ends it, and will know from the ledger.
        """
        self._log.producers.drop(self._id)
        if may_be_repeated(error):
            self._log.clients.cluster().forget()
            raise _Again(error, fenced=is_fenced(error)) from error
        with suppress(KafkaException):  # it ends by itself after transaction.timeout.ms
            own.initialise()
        if isinstance(error, NotWrittenError):
            self._refuse(error_of(error), error.place)
        raise self._failure(error) from error

    def _failure(self, error: KafkaException | KafkaError) -> PenstockError:
        access = self._log.clients.access
        return failure(error, f"transaction {self._id!r}", access, transactional_id=self._id, operation="WRITE")

    def _refuse(self, error: KafkaError, place: TopicPartition) -> None:
        """Raises what the broker has against records of ours; which ones, is told in ``refused``."""
        access, topic = self._log.clients.access, place.topic
        doing = f"writing to {topic}-{place.partition}"
        found = failure(error, doing, access, topic=topic, partition=place.partition, operation="WRITE")
        if isinstance(found, ProductionError):
            found.facts["refused"] = refused_rows(self._log, self._parts, topic, error.code())
            if not found.facts["refused"] and is_too_large(error.code()):
                # Each record is small enough, but the client packs them into batches that are not.
                self._log.clients.limit_batches(record_limit(self._log, topic))
                raise _Again(KafkaException(error))
        raise found

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidStateError("this transaction has ended", hint="begin another with log.transaction(...)")
