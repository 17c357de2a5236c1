"""The consumer of a stream thread over Kafka."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.errors import OffsetOutOfRangeError
from penstock.log.base import Fetched, TopicPartition
from penstock.log.kafka.error_codes import ErrorCategory
from penstock.log.kafka.failures import category_of, error_of, failure, may_pass, patience_for
from penstock.log.kafka.wire.batch_reader import BatchSource, decode_batches, end_of_batches
from penstock.log.kafka.wire.connection import arrivals, check
from penstock.log.kafka.wire.fetch import FetchSession, FetchSizes

if TYPE_CHECKING:
    from penstock.log.kafka.refused_access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["FetchLimits", "KafkaFetcher", "OpenTransactions"]
_LOOK_EVERY_S = 1.0
_STUCK_S = 10.0  # longer than transactions of stream threads take
_AGAIN_S = 60.0


class OpenTransactions:
    """The partitions of a fetcher whose last stable offset stands still before their end.

    Args:
        on_stuck: Called after 10 s and then once a minute, to end the transaction if it is the application's own.
        clock: Returns the time in seconds.
    """

    def __init__(self, on_stuck: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_stuck = on_stuck
        self._clock = clock
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._look_at = self._call_at = 0.0

    def note(self, tp: TopicPartition, stable: int, end: int) -> None:
        """Note the last stable offset and the end (high watermark) of a partition, as a broker has just said."""
        if stable >= end:
            self._since.pop(tp, None)
        elif self._since.get(tp, (-1, 0.0))[0] != stable:
            self._since[tp] = (stable, self._clock())

    def keep(self, places: Collection[TopicPartition]) -> None:
        """Forget all but these partitions."""
        self._since = {tp: since for tp, since in self._since.items() if tp in places}

    def look(self) -> None:
        """Warn of transactions that have been open for long, and try to end them."""
        now = self._clock()
        if not self._since or now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_S
        stuck = {tp: at for tp, at in self._since.items() if now - at[1] >= _STUCK_S}
        if not stuck or now < self._call_at:
            return
        self._call_at = now + _AGAIN_S
        for tp, (stable, since) in stuck.items():
            _log.warning(
                "%s-%d: a transaction has been open at offset %d for %.0f s; the records behind it are read when it "
                "ends. Its producer may be slow or gone (transaction.timeout.ms), or the broker has lost its end "
                "(kafka-transactions.sh find-hanging)",
                tp.topic, tp.partition, stable, now - since,
            )  # fmt: skip
        self._on_stuck()


_log = own_logger(__name__)
_BACKOFF = Backoff(0.02, 0.3)
_WARN_AFTER_S, _WARN_EVERY_S = 0.5, 5.0
_ANSWER_S = 0.002  # the least wait for the answer to a new request: what it brings is in time for the next commit
_MUCH_BYTES = 1 << 18  # after so many there will be more
_MOST_WAKES = 256
_HURRY_S = 0.05  # the wait at the broker while partitions are paused: those that are resumed must wait for its end


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of fetches: sizes (``fetch.max.bytes``, ``max.partition.fetch.bytes``), ``fetch.max.wait.ms``."""

    sizes: FetchSizes
    wait_s: float


@dataclass(slots=True)
class _Progress:
    """The progress of fetching a partition.

    Attributes:
        returned: The offset after the last records that `poll` has returned.
        fetched: The offset to fetch from next.
        answer: The answer that is not decoded yet: data, and aborted transactions.
    """

    returned: int
    fetched: int
    answer: tuple[bytes | memoryview, list[tuple[int, int]]] | None = None


class KafkaFetcher:
    """The `Fetcher` of Kafka: a fetch session with each leader.

    While it is behind, a request is in flight as records are processed. When it has caught up, the next one is sent by
    the next `poll`: the broker would answer an earlier one with the first record that comes, and those that come while
    the caller processes and commits would wait for the answer after it.

    Args:
        cluster: Connections of its own: a waiting request delays all later ones.
        limits: Its limits.
        patience_s: The time in which a topic that brokers do not know is expected to appear, at most.
        access: Explains refusals.
        on_stuck: Called when a transaction has been open for long in front of records: it may hang.
    """

    def __init__(
        self,
        cluster: Cluster,
        limits: FetchLimits,
        patience_s: float,
        access: ClusterAccess,
        on_stuck: Callable[[], object] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._patience_s = patience_s
        self._access = access
        self._places: dict[TopicPartition, _Progress] = {}
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._sessions: dict[BrokerConnection, FetchSession] = {}
        self._homes: dict[BrokerConnection, list[TopicPartition]] = {}
        self._behind: set[BrokerConnection] = set()  # their last answers were not all that they had
        self._homeless: set[TopicPartition] = set()
        self._undecoded: list[TopicPartition] = []
        self._open = OpenTransactions(on_stuck)
        self._waker, self._wakes = socket.socketpair()
        for end in (self._waker, self._wakes):
            end.setblocking(False)  # noqa: FBT003
        self._troubles = _Troubles(access, patience_s)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these offsets on, and no others; kept ones keep what has been fetched."""
        before, self._places = self._places, {}
        for tp, offset in positions.items():
            progress = before.get(tp)
            self._places[tp] = progress if progress and progress.returned == offset else _Progress(offset, offset)
        self._homeless = {tp for tp in positions if tp not in before or tp in self._homeless}
        for connection, places in self._homes.items():
            self._homes[connection] = [tp for tp in places if tp in positions]
        self._undecoded = [tp for tp in self._undecoded if tp in positions and self._places[tp].answer]
        self._paused &= positions.keys()
        self._ends = {tp: end for tp, end in self._ends.items() if tp in positions}
        for session in self._sessions.values():
            if any(tp in session.sent for tp in positions.keys() - before.keys()):
                session.begin_anew()
        self._troubles.keep(positions.keys())
        self._open.keep(positions.keys())

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions no further until `resume`; records that are on their way still arrive."""
        self._paused.update(self._places.keys() & set(places))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._paused.difference_update(places)

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the last stable offset of each partition as of its last answer."""
        return self._ends

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        """Return the committed records that have arrived; wait for some until the time-out.

        Raises:
            OffsetOutOfRangeError: Records behind a position are gone.
            UnknownTopicError: A topic has been deleted.
            AuthorizationError: The user may not read a topic.
            LogError: A record batch is damaged.
        """
        deadline = time.monotonic() + timeout_s
        self._open.look()
        while True:
            if self._request():
                deadline = max(deadline, time.monotonic() + _ANSWER_S)
            left = deadline - time.monotonic()
            if not self._undecoded and self._receive(max(0.0, left)):
                self._request(if_behind=True)  # before the records are decoded and processed
            if self._undecoded or left <= 0 or self._is_woken():
                return self._decode()

    def wake(self) -> None:
        """End the wait of `poll`, or of the next one; from any thread."""
        with suppress(OSError):  # full, or closed: nobody has to be woken
            self._waker.send(b"\0")

    def _is_woken(self) -> bool:
        try:
            return bool(self._wakes.recv(_MOST_WAKES))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close its connections."""
        self._waker.close()
        self._wakes.close()
        self._sessions.clear()
        self._behind.clear()
        self._homes.clear()
        self._homeless = set(self._places)
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _request(self, *, if_behind: bool = False) -> bool:
        """Send a request to each leader that has none in flight; return whether any was sent.

        Args:
            if_behind: Only to leaders whose last answer was not all that they had.
        """
        has_sent = False
        if self._homeless and self._troubles.may_retry():
            self._find_leaders()
        for connection, session in list(self._sessions.items()):
            if session.number is not None or (if_behind and connection not in self._behind):
                continue
            places = self._homes[connection]
            session.offsets = {tp: self._places[tp].fetched for tp in places if tp not in self._paused}
            if not session.offsets:
                continue
            wait_s = self._limits.wait_s
            if len(session.offsets) < len(places):
                wait_s = min(wait_s, _HURRY_S)
            try:
                session.send(connection, wait_s)
                has_sent = True
            except KafkaException as error:
                self._lose(connection, error)
        return has_sent

    def _find_leaders(self) -> None:
        by_leader, errors = self._cluster.reachable(self._homeless)
        for connection, places in by_leader.items():
            self._sessions.setdefault(connection, FetchSession(self._limits.sizes))
            self._homes.setdefault(connection, []).extend(places)
            self._homeless.difference_update(places)
        for tp, error in errors.items():
            self._troubles.note(error, tp, self._places[tp].fetched)

    def _receive(self, timeout_s: float) -> bool:
        """Wait for answers, and take their records; return whether there are any."""
        if self._homeless:
            timeout_s = min(timeout_s, self._troubles.pause_s)
        asked = {each: session.number for each, session in self._sessions.items() if session.number is not None}
        for connection in asked:
            timeout_s = min(timeout_s, self._sessions[connection].patience_s)
        for connection in arrivals(asked, timeout_s, self._wakes):
            self._behind.discard(connection)
            try:
                for tp, offset, part in self._sessions[connection].receive(connection):
                    self._take(connection, tp, offset, part)
            except KafkaException as error:
                self._lose(connection, error)
        for connection, session in list(self._sessions.items()):
            try:
                session.check_due(connection)
            except KafkaException as error:
                self._lose(connection, error)
        return bool(self._undecoded)

    def _take(self, connection: BrokerConnection, tp: TopicPartition, offset: int, part: Any) -> None:
        """Take the answer's part for a partition, if it is still wanted from this offset on."""
        progress = self._places.get(tp)
        if progress is not None and not part.error_code and part.last_stable_offset >= 0:
            self._ends[tp] = part.last_stable_offset  # the broker does not tell it again
        if progress is None or progress.fetched != offset:
            return
        try:
            check(part.error_code, f"reading {tp.topic}-{tp.partition} from offset {offset}")
        except KafkaException as error:
            if tp not in self._homes[connection]:  # it was unassigned, and is assigned again
                return
            self._homes[connection].remove(tp)
            self._homeless.add(tp)
            self._cluster.forget_leaders([tp])
            self._troubles.note(error, tp, offset)
            return
        self._troubles.forget(tp)
        if part.last_stable_offset >= 0:
            self._open.note(tp, part.last_stable_offset, part.high_watermark)
        after = end_of_batches(part.records, offset) if part.records else offset
        if after > offset:
            aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
            if after < part.last_stable_offset or len(part.records) > _MUCH_BYTES:
                self._behind.add(connection)
            progress.answer = part.records, aborted
            progress.fetched = after
            self._undecoded.append(tp)

    def _decode(self) -> dict[TopicPartition, Fetched]:
        fetched = {}
        places, self._undecoded = self._undecoded, []
        for tp in places:
            progress = self._places[tp]
            assert progress.answer is not None  # noqa: S101
            data, aborted = progress.answer
            source = BatchSource(tp, self._cluster.most_unpacked_bytes)
            part = fetched[tp] = decode_batches(data, progress.returned, progress.fetched, aborted, source)
            progress.returned = part.next_offset
            if part.next_offset < progress.fetched:  # the rest would take too much memory at once
                self._undecoded.append(tp)
            else:
                progress.answer = None
        return fetched

    def _lose(self, connection: BrokerConnection, error: KafkaException) -> None:
        """Give up a connection; the leaders of its partitions are looked up again."""
        connection.close()
        self._behind.discard(connection)
        del self._sessions[connection]
        places = self._homes.pop(connection)
        self._homeless.update(places)
        self._cluster.forget_leaders(places)
        self._troubles.note(error)


class _Troubles:
    """The failures of a fetcher: how long each partition has failed, when to try again, when to warn."""

    def __init__(self, access: ClusterAccess, patience_s: float) -> None:
        self._access = access
        self._patience_s = patience_s
        self._since: dict[TopicPartition | None, float] = {}
        self._retry_at = self._warned = 0.0
        self._failures = 0

    @property
    def pause_s(self) -> float:
        """The pause before the next try."""
        return _BACKOFF.pause_s(self._failures + 1)

    def may_retry(self) -> bool:
        """Return whether it is time to look up leaders again."""
        return time.monotonic() >= self._retry_at

    def keep(self, places: Iterable[TopicPartition]) -> None:
        """Forget all but these partitions."""
        kept = {*places, None}
        self._since = {tp: since for tp, since in self._since.items() if tp in kept}
        self._retry_at = 0.0

    def forget(self, tp: TopicPartition) -> None:
        """Note that a partition has answered."""
        if self._since:
            self._since.pop(tp, None)
            self._since.pop(None, None)
            self._failures = 0

    def note(self, error: KafkaException, tp: TopicPartition | None = None, offset: int = -1) -> None:
        """Note the failure of a partition, or of a connection.

        Raises:
            LogError: It does not pass.
        """
        now = time.monotonic()
        since = self._since.setdefault(tp, now)
        doing = "fetching records" if tp is None else f"reading {tp.topic}-{tp.partition}"
        facts = {} if tp is None else {"topic": tp.topic, "partition": tp.partition, "offset": offset}
        if error_of(error).code() == KafkaError.OFFSET_OUT_OF_RANGE and tp is not None:
            raise OffsetOutOfRangeError(
                f"{tp.topic}-{tp.partition} has no offset {offset}",
                hint="Retention has removed it, or the topic was created again.",
                **facts,
            ) from error
        settles = category_of(error) is ErrorCategory.SETTLES
        if not may_pass(error) or (settles and now - since > patience_for(error, self._patience_s)):
            raise failure(error, doing, self._access, operation="READ", **facts) from error
        if now - since >= _WARN_AFTER_S and now - self._warned >= _WARN_EVERY_S:
            _log.warning("%s: %s; trying again", doing, error_of(error).str())
            self._warned = now
        self._retry_at = now + self.pause_s
        self._failures += 1
