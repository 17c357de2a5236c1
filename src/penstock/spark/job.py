"""What every worker of an application is given, once: topology, plan and settings."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from penstock.log.open import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.plan.plan import PhysicalPlan
    from penstock.spark.moves import Move
    from penstock.spark.reading import Reading
    from penstock.topology.topology import Topology

__all__ = ["SparkJob", "load_job"]


@dataclass(frozen=True, repr=False)  # passwords are in it
class SparkJob:
    """One started application. ``program`` is the pickled (topology, settings); the rest is needed by the source too.

    Attributes:
        plan: The physical plan.
        program: Topology and StreamsConfig, pickled.
        log_url: Of the log.
        log_settings: Of Kafka's clients.
        epoch: Of the lease; writes of older instances are fenced by it.
        checkpoint: Where the segments are.
        replica_root: A directory of each machine, for replicas.
        fingerprint: Of the topology.
        accepts: Fingerprints of earlier topologies that may be continued.
        exactly_once: Whether outputs go with a ledger entry.
        parallelism: How many Spark tasks a stage has at most.
        reading: How topics are read: from where, and how much at a time.
        tick_ms: How often wall-clock time is looked at on idle topics; 0 never.
        moves: Offsets that somebody else set for the group: the numbered changes of where to read on.
        until_latest: Stop at the records that are there at the start.
        driver_pid: The driver's process.
        changelogs: Store -> the topic that its changes are written to; empty when changelogs are off.
        numbers_topic: Where the tasks' numbers go with them; None when they are off.
    """

    plan: PhysicalPlan
    program: bytes
    log_url: str
    log_settings: Mapping[str, Any]
    epoch: int
    checkpoint: str
    replica_root: str
    fingerprint: str
    accepts: tuple[str, ...]
    exactly_once: bool
    parallelism: int
    reading: Reading
    tick_ms: int
    until_latest: bool
    driver_pid: int
    moves: tuple[Move, ...] = ()
    changelogs: dict[str, str] = field(default_factory=dict)
    numbers_topic: str | None = None

    def open_log(self) -> TopicLog:
        """The application's log, opened anew."""
        return open_log(self.log_url, self.log_settings)

    @cached_property
    def _program(self) -> tuple[Topology, StreamsConfig]:
        loaded: tuple[Any, Any] = pickle.loads(self.program)  # noqa: S301 - our own bytes
        return loaded

    @property
    def topology(self) -> Topology:
        return self._program[0]

    @property
    def config(self) -> StreamsConfig:
        return self._program[1]

    @cached_property
    def unseen_topics(self) -> frozenset[str]:
        """Topics whose records are not the application's results."""
        return frozenset((*self.plan.internal_topics, *self.changelogs.values()))

    @cached_property
    def program_id(self) -> str:
        """Equal for equal programs: a checksum."""
        return hashlib.blake2b(self.program, digest_size=16).hexdigest()

    def dump(self) -> bytes:
        """As bytes; `load_job` is the way back."""
        return pickle.dumps(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_program", "program_id", "unseen_topics")
        }


def load_job(data: bytes) -> SparkJob:
    """The job in these bytes; unpickled once a process."""
    return _load(hashlib.blake2b(data, digest_size=16).digest(), _Bytes(data))


class _Bytes:
    """Bytes that do not take part in the cache's comparison."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes)


@lru_cache(maxsize=4)
def _load(digest: bytes, data: _Bytes) -> SparkJob:  # noqa: ARG001 - the digest is the key
    job: SparkJob = pickle.loads(data.data)  # noqa: S301 - our own bytes
    return job
