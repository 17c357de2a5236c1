"""Waiting for records behind known offsets: one request to each broker, which answers when there are some.

The requests belong to fetch sessions, so waiting for 1,000 idle partitions costs no more than for one.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.log.kafka.wire.connection import arrivals
from penstock.log.kafka.wire.fetch_session import FetchSession, FetchSizes
from penstock.log.kafka.wire.protocol_errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.log.base import TopicPartition
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["DataWaiter"]

_SIZES = FetchSizes(1, 1)  # a broker returns a whole batch of one partition all the same
_SLACK_S = 0.05


class DataWaiter:
    """A waiter for committed records; one thread at a time.

    Args:
        cluster: Connections of its own: a waiting request delays all later ones.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._awaited: dict[TopicPartition, int] = {}
        self._sessions: dict[BrokerConnection, FetchSession] = {}

    def wait(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """Wait for committed records at or behind these offsets; return False if there were none in time.

        Raises:
            KafkaException: A broker or a partition has an error; the next call looks up the leaders again.
        """
        with self._lock:
            try:
                self._assign(offsets)
                return self._wait(timeout_s)
            except BaseException:
                self._forget()
                raise

    def close(self) -> None:
        """Close its connections."""
        self._cluster.close()

    def _forget(self) -> None:
        self._cluster.forget()
        self._sessions.clear()
        self._awaited = {}

    def _assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._awaited == offsets and all(connection.usable for connection in self._sessions):
            return
        self._awaited = dict(offsets)
        by_leader: dict[BrokerConnection, dict[TopicPartition, int]] = {}
        for tp, offset in offsets.items():
            by_leader.setdefault(self._cluster.leader(tp), {})[tp] = offset
        for connection in self._sessions.keys() - by_leader.keys():
            self._sessions[connection].leave(connection)
        self._sessions = {connection: self._sessions.get(connection, FetchSession(_SIZES)) for connection in by_leader}
        for connection, places in by_leader.items():
            self._sessions[connection].wanted = places

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        has_news, left = False, timeout_s
        while not has_news and left >= 0:
            for connection, session in self._sessions.items():
                session.send(connection, left)  # unless one of an earlier call is in flight
            asked = {each: session.number for each, session in self._sessions.items() if session.number is not None}
            for connection in arrivals(asked, left + _SLACK_S):
                has_news |= _has_news(self._sessions[connection].receive(connection))
            for connection, session in self._sessions.items():
                session.check_due(connection)
            left = deadline - time.monotonic()
        return has_news


def _has_news(parts: Iterable[tuple[TopicPartition, int, Any]]) -> bool:
    """Return whether there are records behind a wanted offset."""
    has_news = False
    for tp, offset, each in parts:
        check(each.error_code, f"waiting for records of {tp.topic}-{tp.partition}")
        has_news |= bool(each.records) or each.last_stable_offset > offset
    return has_news
