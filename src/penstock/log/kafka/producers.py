"""The producers of a process: they live as long as it does, so that a usual batch pays no initialisation.

A transactional producer is initialised once, which fences all earlier ones of its id and ends their transactions. As
long as nobody fences it in turn, nobody else has written under this id since. So what it knows of the ledger from then
on is what it has written itself, and it need not look again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.log.kafka.writing import Deliveries

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from penstock.log.kafka.clients import Clients

__all__ = ["OwnProducer", "Producers"]

_MOST = 48  # transactional ones; each has threads and a connection
_CONNECT_S = 10.0
_INIT_S = 30.0


@dataclass(slots=True)
class OwnProducer:
    """A producer of this process.

    Attributes:
        client: librdkafka's.
        deliveries: What it could not deliver.
        epoch: Of the lease under which it was made.
        written: Task -> the newest batch that is known to be written.
        ready: Whether it is initialised.
    """

    client: Producer
    deliveries: Deliveries
    epoch: int | None = None
    written: dict[str, int] = field(default_factory=dict)
    ready: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def initialise(self) -> None:
        """Fences all earlier producers of this id, unless that is done already.

        Without a connection the client would wait half a second first; asking for metadata makes one.
        """
        with self.lock:
            if not self.ready:
                self.client.list_topics(timeout=_CONNECT_S)
                self.client.init_transactions(_INIT_S)
                self.ready = True


class Producers:
    """All of one log in this process."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._own: OrderedDict[str, OwnProducer] = OrderedDict()
        self._plain: OwnProducer | None = None
        self._reporting: OwnProducer | None = None
        self._plain_lock = threading.Lock()

    @contextmanager
    def plain(self) -> Iterator[OwnProducer]:
        """The idempotent one, without transactions, for one thread at a time."""
        with self._plain_lock:
            if self._plain is None:
                self._plain = self._make(reports_all=False)
            try:
                yield self._used(self._plain)
            except BaseException:
                self._plain = None  # it may not get over what has happened
                raise

    @contextmanager
    def reporting(self) -> Iterator[OwnProducer]:
        """An idempotent one that tells where records went, for one thread at a time."""
        with self._plain_lock:
            if self._reporting is None:
                self._reporting = self._make(reports_all=True)
            try:
                yield self._used(self._reporting)
            except BaseException:
                self._reporting = None
                raise

    def _make(self, *, reports_all: bool) -> OwnProducer:
        deliveries = Deliveries(self._clients.access)
        return OwnProducer(self._clients.producer(deliveries, reports_all=reports_all), deliveries, ready=True)

    @staticmethod
    def _used(own: OwnProducer) -> OwnProducer:
        own.deliveries.forget()
        return own

    def transactional(self, transactional_id: str, epoch: int | None) -> OwnProducer:
        """The one of this id, which may have to be initialised yet; one of an earlier start is replaced."""
        with self._lock:
            found = self._own.get(transactional_id)
            if found is not None and found.epoch == epoch:
                self._own.move_to_end(transactional_id)
                return found
            if found is not None:
                del self._own[transactional_id]
            while len(self._own) >= _MOST:
                self._own.popitem(last=False)
            deliveries = Deliveries(self._clients.access)
            made = OwnProducer(self._clients.producer(deliveries, transactional_id), deliveries, epoch)
            self._own[transactional_id] = made
            return made

    def drop(self, transactional_id: str) -> None:
        """Forgets a producer that has been fenced or is otherwise of no more use."""
        with self._lock:
            self._own.pop(transactional_id, None)

    def warm(self, transactional_ids: Iterable[str], epoch: int | None) -> None:
        """Begins to make and initialise what is not there yet; what fails here fails again when it is used."""

        def initialise(own: OwnProducer) -> None:
            with suppress(KafkaException):
                own.initialise()

        for each in transactional_ids:
            own = self.transactional(each, epoch)
            if not own.ready:
                threading.Thread(target=initialise, args=(own,), daemon=True).start()

    def close(self) -> None:
        """Ends them all."""
        with self._lock:
            self._own.clear()
            self._plain = self._reporting = None
