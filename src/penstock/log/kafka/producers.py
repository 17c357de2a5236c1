"""The producers of a process: they live as long as it does, so that a usual batch pays no initialisation.

A transactional producer is initialised once, which fences all earlier ones of its id and ends their transactions. As
long as nobody fences it in turn, nobody else has written under this id since. So what it knows of the ledger from then
on is what it has written itself, and it need not look again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.log.kafka.wire.idempotent import IdempotentWriter
from penstock.log.kafka.wire.transactions import TransactionalWriter

if TYPE_CHECKING:
    from penstock.log.kafka.clients import Clients

__all__ = ["OwnProducer", "Producers"]


@dataclass(slots=True)
class OwnProducer:
    """A producer of this process.

    Attributes:
        writer: What writes its transactions.
        epoch: Of the lease under which it was made.
        written: Task -> the newest batch that is known to be written.
    """

    writer: TransactionalWriter
    epoch: int | None = None
    written: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def initialise(self) -> None:
        """Fences all earlier producers of this id, unless that is done already; then the ledger has to be looked at."""
        with self.lock:
            if not self.writer.ready:
                self.written.clear()
                self.writer.init()


class Producers:
    """All of one log in this process."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._own: dict[str, OwnProducer] = {}
        self._plain: IdempotentWriter | None = None
        self._plain_lock = threading.Lock()

    @contextmanager
    def plain(self) -> Iterator[IdempotentWriter]:
        """The idempotent one, without transactions, for one thread at a time."""
        with self._plain_lock:
            if self._plain is None:
                self._plain = IdempotentWriter(self._clients.cluster(), self._clients.limits())
            yield self._plain

    def transactional(self, transactional_id: str, epoch: int | None) -> OwnProducer:
        """The one of this id, which may have to be initialised yet; one of an earlier start is replaced."""
        with self._lock:
            found = self._own.get(transactional_id)
            if found is None or found.epoch != epoch:
                clients = self._clients
                writer = TransactionalWriter(
                    clients.cluster(), transactional_id, clients.transaction_timeout_ms, clients.limits()
                )
                found = self._own[transactional_id] = OwnProducer(writer, epoch)
            return found

    def drop(self, transactional_id: str) -> None:
        """Forgets a producer that has been fenced or is otherwise of no more use."""
        with self._lock:
            self._own.pop(transactional_id, None)

    def warm(self, transactional_ids: Iterable[str], epoch: int | None) -> None:
        """Makes what is not there yet and initialises it; what fails here fails again when it is used."""
        for each in transactional_ids:
            own = self.transactional(each, epoch)
            if not own.writer.ready:
                with suppress(KafkaException):
                    own.initialise()

    def close(self) -> None:
        """Forgets them all."""
        with self._lock:
            self._own.clear()
        with self._plain_lock:
            self._plain = None
