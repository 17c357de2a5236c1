"""A record that only one writer at a time may change, over Kafka, and the leases of applications made of it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.base.backoff import Backoff
from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.errors import AuthorizationError, FencedError, LogError, LogUnavailableError
from penstock.log.base import HEADERS_TYPE, TopicPartition
from penstock.log.fenced_record import ATTEMPT, RecordName, StoredRecord, newest_in, newest_record, overtaken
from penstock.log.kafka.failures import error_of
from penstock.log.kafka.transactions.commit_producer import KafkaCommitProducer
from penstock.log.kafka.transactions.ledger import entry_part
from penstock.log.kafka.transactions.producer_fencing import PLANNER, is_own_id
from penstock.log.kafka.wire.transactions import ProducerTransactions, list_transactions
from penstock.log.leases import LEASE_WRITER, Leases, check_not_fenced, lease_name, lease_of
from penstock.log.streams_groups.group_refusals import shared_already
from penstock.log.thread_clients import CHANGELOG_WRITER, Part, Writer

if TYPE_CHECKING:
    from penstock.log.base import Lease
    from penstock.log.kafka.transactions.core import KafkaCore

__all__ = ["KafkaFencedRecord", "KafkaLeases", "KafkaRecords"]

_log = own_logger(__name__)
_NONE = StoredRecord(None, -1)
_MOST_CLAIMS = 12
_CLOSE_S = 1.0
_EXPIRED = "INVALID_PRODUCER_ID_MAPPING"  # transactional.id.expiration.ms has passed without a write: nothing is open
_BACKOFF = Backoff(0.075, 1.5, jitter=2 / 3)


class KafkaFencedRecord:
    """The `FencedRecord` of Kafka.

    Args:
        log: The log.
        name: The name of the record.
        guard: Raises FencedError if a newer instance has the lease that guards the record.
    """

    def __init__(self, log: KafkaCore, name: RecordName, guard: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._name = name
        self._guard = guard
        self._lock = threading.RLock()
        self._producer: KafkaCommitProducer | None = None  # while this process may write, as far as it knows
        self._is_unsure = False  # whether its last transaction has an unknown end
        self._newest = _NONE
        self._position = -1  # all before this offset is in `_known`

    def read(self) -> StoredRecord:
        """Read the newest value; no writer is disturbed."""
        with self._lock:
            if self._is_unsure:
                self._find_out()
            return self._read()

    def take(self) -> StoredRecord:
        """Fence all earlier writers, and read.

        Raises:
            FencedError: A newer instance has the lease.
        """
        with self._lock:
            self._claim()
            return self._newest

    def held(self) -> StoredRecord:
        """Return the value as this writer has read or written it last; the first time it takes the record."""
        with self._lock:
            return self._newest if self._position >= 0 else self.take()

    def replace(self, value: bytes, version: int, beside: tuple[Part, ...] = ()) -> StoredRecord:
        """Replace the value of this version; it is durable when this returns.

        Args:
            value: The new value.
            version: The version that it replaces.
            beside: Other records to write in the same transaction.

        Raises:
            FencedError: Another writer has changed it since, or a newer instance has the lease. Nothing is written.
            LogUnavailableError: It could not be found out whether it was written; the next call finds out.
        """
        attempt = secrets.token_hex(8)
        for claims in range(_MOST_CLAIMS):
            if claims and self._producer is None:  # whoever has claimed it may write now; others may read meanwhile
                time.sleep(_BACKOFF.pause_s(claims))
            with self._lock:
                if self._is_unsure:
                    self._find_out()
                if self._producer is None:
                    self._compare(version)  # before another writer is fenced
                    self._claim()
                self._compare(version, anew=False)
                written = self._write(value, attempt, beside)
            if written is not None:
                return written
        raise overtaken(self._name)

    def close(self) -> None:
        """Forget the producer, and close its connections, unless another thread still waits for a broker."""
        if self._lock.acquire(timeout=_CLOSE_S):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _compare(self, version: int, *, anew: bool = True) -> None:
        if anew:
            self._guard()
        stored = self._read() if anew else self._newest
        if stored.version != version:
            raise overtaken(self._name)

    def _claim(self) -> None:
        """Become the only writer, and read what all earlier ones have written."""
        self._drop()
        name = self._name
        self._guard()
        self._producer = KafkaCommitProducer(self._log, Writer(name.application, name.writer, None), lambda: None)
        try:
            self._guard()  # the holder of a newer lease claims the record after it has the lease
            self._read()
        except BaseException:
            self._drop()
            raise

    def _write(self, value: bytes, attempt: str, beside: tuple[Part, ...]) -> StoredRecord | None:
        """Write, and return the record; None: it is not written: another writer has claimed it, or a broker failed."""
        producer, name, before = self._producer, self._name, max(0, self._position)
        assert producer is not None  # noqa: S101 - _claim() comes first
        try:
            producer.send([(name.topic, 0, _record(name.key, value, attempt)), *beside])
            following = producer.commit({})
        except FencedError:
            self._drop()
            self._read()
        except LogError as error:
            self._is_unsure = True
            _log.warning("%s of %s may be written or not: %s", name.key.decode(), name.application, error.message)
            self._find_out()
            if not isinstance(error, LogUnavailableError):
                self._drop()
                raise
        except BaseException:
            self._is_unsure = True
            raise
        else:
            end = following.get(TopicPartition(name.topic, 0), -1)
            if end > 0 and not beside:
                self._newest, self._position = StoredRecord(value, end - 1, attempt), end
            else:
                self._read()
        return self._newest if self._newest.attempt == attempt else self._of_attempt(attempt, before)

    def _of_attempt(self, attempt: str, start: int) -> StoredRecord | None:
        """Return the record of an attempt that a newer writer has replaced already; None: it was not written."""
        for records in self._log.iterate(self._name.topic, 0, start, self._position):
            for row in range(records.num_rows):
                stored = newest_in(records.slice(row, 1), pa.scalar(self._name.key, pa.large_binary()), _NONE)
                if stored.attempt == attempt:
                    return stored
        return None

    def _find_out(self) -> None:
        """End the last transaction, as the producer that began it: it fences no other one.

        Raises:
            LogUnavailableError: It is still not known.
        """
        try:
            if self._producer is not None:
                self._producer.abort()
        except FencedError:
            self._drop()
        except LogError as error:
            if error.facts.get("code") != _EXPIRED:
                raise
            self._drop()
        self._read()
        self._is_unsure = False

    def _read(self) -> StoredRecord:
        """Read up to the present end; all transactions that are open now have ended by then."""
        topic = self._name.topic
        end = self._log.settled_end(topic, self._name.application)
        if end is None:
            self._newest, self._position = _NONE, -1
        elif self._position < 0 or end < self._position:  # the first time, or the topic was made anew
            self._newest, self._position = newest_record(self._log, topic, self._name.key, end), end
        else:
            key_scalar, newest = pa.scalar(self._name.key, pa.large_binary()), self._newest
            for records in self._log.iterate(topic, 0, self._position, end):
                newest = newest_in(records, key_scalar, newest)
            self._newest, self._position = newest, end
        return self._newest

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


def _record(key: bytes, value: bytes, attempt: str) -> pa.RecordBatch:
    headers = [[{"key": ATTEMPT, "value": attempt.encode()}]]
    columns = {
        "timestamp": pa.array([unix_ms()], pa.int64()),
        "key": pa.array([key], pa.large_binary()),
        "value": pa.array([value], pa.large_binary()),
        "headers": pa.array(headers, HEADERS_TYPE),
    }
    return pa.RecordBatch.from_pydict(columns)


class KafkaRecords:
    """The open records of a log."""

    def __init__(self, log: KafkaCore) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._open: dict[tuple[RecordName, bool], tuple[tuple[str, int] | None, KafkaFencedRecord]] = {}

    def get(self, name: RecordName, lease: tuple[str, int] | None = None) -> KafkaFencedRecord:
        """Return a record, always the same one for a lease.

        Args:
            name: Its name.
            lease: The application and the epoch of the lease that guards it: after it is lost, the record may not be
                changed.
        """
        with self._lock:
            before, open_record = self._open.get((name, lease is None), (None, None))
            if open_record is not None and before == lease:
                return open_record
            check = partial(self._check_lease, *lease) if lease is not None else lambda: None
            record = KafkaFencedRecord(self._log, name, check)
            self._open[name, lease is None] = (lease, record)
        if open_record is not None:
            open_record.close()
        return record

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            records, self._open = self._open, {}
        for _, record in records.values():
            record.close()

    def _check_lease(self, application: str, epoch: int) -> None:
        """Raise FencedError if a newer instance of the application has taken over."""
        check_not_fenced(lease_of(self.get(lease_name(application)).read()), application, epoch)


_NOTE_EVERY_S = 60.0
_MUCH = 1_000  # entries


class KafkaLeases(Leases):
    """The leases of a `KafkaLog`."""

    def __init__(self, log: KafkaCore, records: KafkaRecords) -> None:
        super().__init__(lambda application: records.get(lease_name(application)))
        self._log = log
        self._noted_at = time.monotonic()

    def prepare(self, application: str) -> None:
        """Create the ledger, which the lease is in, if it is not there."""
        with self._log.ledger_of(application) as ledger:
            ledger.create(self._log.replication)

    def acquire(
        self, application: str, owner: str, ttl_ms: int, *, force: bool, replacing: Lease | None = None
    ) -> Lease:
        """Take the right to run an application, with a new epoch.

        Raises:
            FencedError: Another instance runs, or has run since ``replacing``; or instances share the work of the
                application.
        """
        self._refuse_members(application)
        if replacing is None:  # else it has been created, with the settings of this version
            self.prepare(application)
        before = self.read(application)
        lease = super().acquire(application, owner, ttl_ms, force=force, replacing=replacing)
        try:
            self._refuse_members(application)  # they look for a lease once they have joined
        except FencedError:
            super().release(lease)
            raise
        is_taken_over = replacing is None and before is not None and not before.released
        # What the one before had on its way may come later than anything that is read from now on.
        self._fence(
            lease, tuple(f"{application}-{each}" for each in (CHANGELOG_WRITER, PLANNER)) if is_taken_over else ()
        )
        self._note(application)
        return lease

    def _refuse_members(self, application: str) -> None:
        """Raise FencedError if stream threads are members of the application's group, as far as that can be seen."""
        with suppress(AuthorizationError):
            described = self._log.streams_group(application)
            if described is not None and described.members:
                raise shared_already(application, described)

    def _fence(self, lease: Lease, others: tuple[str, ...]) -> None:
        """End transactions that tasks of an earlier start have left open: they hide all later records.

        Each ends when its task writes again, or after transaction.timeout.ms. But until then another task, which runs
        first, may have to wait for it to read the ledger.

        Args:
            lease: The lease that was just acquired.
            others: More transactional ids to fence, those whose next writer may come much later.

        Raises:
            FencedError: Another instance has taken over meanwhile: the transactions are its own.
        """
        clients, application = self._log.clients, lease.application
        try:
            listed = (each.transactional_id for each in list_transactions(clients.cluster(), "Ongoing"))
            own = {each for each in listed if is_own_id(application, each) and each != f"{application}-{LEASE_WRITER}"}
            for transactional_id in sorted(own.union(others)):
                self.check(application, lease.epoch)
                if transactional_id in own:
                    _log.info("the open transaction of %s is ended", transactional_id)
                transactions = ProducerTransactions(clients.cluster(), transactional_id, "", clients.limits())
                transactions.init(clients.timeouts.least_ms)
        except KafkaException as error:
            clients.cluster().forget()
            _log.debug("open transactions are left to time out: %s", error_of(error).str())

    def renew(self, lease: Lease) -> None:
        """Send a heartbeat; raises FencedError if a newer instance has taken over, but nothing if no broker answers."""
        try:
            super().renew(lease)
            if time.monotonic() - self._noted_at > _NOTE_EVERY_S:
                self._note(lease.application)
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be renewed: %s", lease.application, error.message)

    def _note(self, application: str) -> None:
        """Write notes to the ledger once they save later readers much."""
        self._noted_at = time.monotonic()
        with self._log.ledger_of(application) as ledger:
            ledger.follow()
            notes = ledger.notes() if ledger.unnoted >= _MUCH else {}
        if notes:
            record = cast("KafkaFencedRecord", self._record(application))
            stored = record.held()
            parts = tuple(entry_part(application, key, value) for key, value in notes.items())
            record.replace(stored.value or b"", stored.version, beside=parts)

    def release(self, lease: Lease) -> None:
        """Release the lease; does nothing if another instance has it, and only warns if no broker answers."""
        clients = self._log.clients
        before, clients.hurry = clients.hurry, True  # most end then; one that shares its tasks goes on
        try:
            super().release(lease)
        except LogUnavailableError as error:
            _log.warning("the lease of %s could not be given back: %s", lease.application, error.message)
        finally:
            clients.hurry = before
