"""Fencing: the producers of a process, which fence all others of their ids, and live as long as it.

A transactional producer is initialised once, which fences all earlier ones of its id and ends their transactions. Until
another one fences it in turn, no other has written under this id. So from then on its own writes are all that is new in
the ledger, and it need not read it again, and an ordinary batch needs no initialisation.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.log.fenced_record import WRITERS
from penstock.log.kafka.failures import persist
from penstock.log.kafka.wire.produce import IdempotentWriter
from penstock.log.kafka.wire.transactions import ProducerTransactions, TransactionalWriter
from penstock.log.thread_clients import CHANGELOG_WRITER

if TYPE_CHECKING:
    from penstock.log.kafka.client_settings import TransactionTimeouts
    from penstock.log.kafka.clients.connections import Clients
    from penstock.log.kafka.transactions.ledger import LedgerRecord
    from penstock.log.thread_clients import Writer

__all__ = ["PLANNER", "RESET", "OwnProducer", "Producers", "fence", "is_own_id"]

RESET = "reset"
PLANNER = WRITERS[3]
_RECORDS = "|".join(WRITERS)
_PROCESS = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # as in Kafka Streams: processes of a streams group
_TASK, _THREAD = r"\d+_\d+(/\d+)?", rf"(thread|{_PROCESS})-\d+"
# The end of ids of an application "app-dataframe".
_OTHER = rf"(.*-)?({_RECORDS}|{RESET}|{CHANGELOG_WRITER}|{_TASK}|{_THREAD}|dataframe-.*)"
_OWN = re.compile(rf"{_TASK}|{_THREAD}|{_RECORDS}|{RESET}|{CHANGELOG_WRITER}|dataframe-(?!{_OTHER}$).+")


def is_own_id(application: str, transactional_id: str) -> bool:
    """Return whether a transactional id belongs to this application, and not to one with a longer name.

    >>> own = ("app-0_1", "app-2_0/1", "app-driver", "app-thread-3", "app-dataframe-orders")
    >>> [is_own_id("app", each) for each in own]
    [True, True, True, True, True]
    >>> of_a_group = "app-6f1c2d3e-0a1b-4c5d-8e9f-001122334455-3"
    >>> is_own_id("app", of_a_group), is_own_id("app", f"app-two{of_a_group[3:]}")
    (True, False)
    >>> others = ("app-two-0_1", "app-two-driver", "app-two-thread-0", "app-dataframe-thread-0", "app-0_1x")
    >>> [is_own_id("app", each) for each in others]
    [False, False, False, False, False]
    """
    start = f"{application}-"
    return transactional_id.startswith(start) and _OWN.fullmatch(transactional_id, len(start)) is not None


@dataclass(slots=True)
class OwnProducer:
    """A producer of this process.

    Attributes:
        writer: The writer of its transactions.
        timeouts: Their time-outs.
        epoch: The epoch of the lease under which it was made.
        written: The newest batch of each task that is known to be written; -1: none.
    """

    writer: TransactionalWriter
    timeouts: TransactionTimeouts
    epoch: int | None = None
    written: dict[str, LedgerRecord] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def initialise(self, timeout_ms: int = 0) -> bool:
        """Fence all earlier producers of this id, unless that is done already.

        Args:
            timeout_ms: The least time-out of its next transaction, as far as brokers allow.

        Returns:
            Whether it has: then the ledger, or what the caller compares, must be read again.
        """
        is_new = False
        with self.lock:
            allowed_ms = self.timeouts.allowed(max(timeout_ms, self.writer.timeout_ms))
            while not self.writer.ready or self.writer.timeout_ms < allowed_ms:
                self.written.clear()
                is_new = True
                try:
                    self.writer.init(allowed_ms)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
                        raise
                    if not self.timeouts.refused(allowed_ms):
                        raise
                    allowed_ms = self.timeouts.allowed(allowed_ms)
        return is_new


class Producers:
    """All producers of one log in this process."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._own: dict[str, OwnProducer] = {}
        self._plain: IdempotentWriter | None = None
        self._plain_lock = threading.Lock()

    @contextmanager
    def plain(self) -> Iterator[IdempotentWriter]:
        """Lend the idempotent producer without transactions, to one thread at a time."""
        with self._plain_lock:
            if self._plain is None:
                self._plain = IdempotentWriter(self._clients.cluster(), self._clients.limits())
            yield self._plain

    def transactional(self, transactional_id: str, epoch: int | None) -> OwnProducer:
        """Return the producer of this id, perhaps not initialised yet; one of an earlier start is replaced."""
        with self._lock:
            producer = self._own.get(transactional_id)
            if producer is None or producer.epoch != epoch:
                clients = self._clients
                least_ms = clients.timeouts.least_ms
                writer = TransactionalWriter(clients.cluster(), transactional_id, least_ms, clients.limits())
                producer = self._own[transactional_id] = OwnProducer(writer, clients.timeouts, epoch)
            return producer

    def drop(self, transactional_id: str) -> None:
        """Drop a producer that was fenced or is no longer usable."""
        with self._lock:
            self._own.pop(transactional_id, None)

    def initialise_all(self, transactional_ids: Iterable[str], epoch: int | None) -> None:
        """Make and initialise missing producers; errors are left to their first use."""
        for each in transactional_ids:
            own = self.transactional(each, epoch)
            if not own.writer.ready:
                with suppress(KafkaException):
                    own.initialise()

    def close(self) -> None:
        """Drop all producers."""
        with self._lock:
            self._own.clear()
        with self._plain_lock:
            self._plain = None


def fence(clients: Clients, writer: Writer) -> None:
    """Fence the present producer of this identity, and end its open transaction."""
    cluster = clients.cluster()
    transactions = ProducerTransactions(cluster, writer.transactional_id, writer.application, clients.limits())
    text = f"fencing transaction {writer.transactional_id!r}"
    facts = {"transactional_id": writer.transactional_id, "operation": "WRITE"}
    least_ms = clients.thread_timeouts.least_ms
    persist(lambda: transactions.init(least_ms), text, clients.patience_s, clients.access, cluster.forget, **facts)
