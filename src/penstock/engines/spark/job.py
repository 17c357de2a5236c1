"""The job: topology, plan and settings of a started application, as every worker receives them."""

from __future__ import annotations

import hashlib
import pickle
import secrets
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config import StreamsConfig
    from penstock.engines.offsets.start_positions import GroupReset, ReadSettings
    from penstock.log.base import TopicLog
    from penstock.state.changelog import ChangelogFormat
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["SparkJob", "load_app", "load_job"]


@dataclass(frozen=True, repr=False)  # passwords are in it
class SparkJob:
    """A started application, as its workers receive it.

    Attributes:
        plan: The physical plan.
        pickled_app: The pickled topology and StreamsConfig; the other fields are what Spark's source needs too.
        log_url: The URL of the log.
        log_settings: The settings of Kafka's clients.
        epoch: The epoch of the lease, which fences writes of older instances.
        checkpoint: The checkpoint location, which holds the segments.
        replica_root: The directory of replicas on each machine.
        fingerprint: The fingerprint of the topology.
        accepts: Fingerprints of earlier topologies whose state may be continued.
        exactly_once: Whether outputs are written together with a ledger entry.
        parallelism: The most Spark tasks of a stage.
        reading: The settings of reading: start positions, and the size of batches.
        tick_ms: The interval in which the clock is checked on idle topics; 0: never.
        group_resets: Offsets that others have set for the group, numbered.
        unsegmented: Sub-topology id -> the newest batch that may be written without a segment (see `StoredPlan`).
        until_latest: Whether to stop at the records that exist at the start.
        driver_pid: The id of the driver's process.
        reads_nothing: Whether no batch is planned: the run finishes the one under way.
        changelogs: Store -> its changelog topic; empty when changelogs are off.
        numbers_topic: The topic of the tasks' numbers; None when changelogs are off.
        journal: The driver's directory of Spark's own checkpoint, if the application's is in an object store.
        error_key: The key that signs errors which processes of this job send to the driver; new with each job.
    """

    plan: PhysicalPlan
    pickled_app: bytes
    log_url: str
    log_settings: Mapping[str, Any]
    epoch: int
    checkpoint: str
    replica_root: str
    fingerprint: str
    accepts: tuple[str, ...]
    exactly_once: bool
    parallelism: int
    reading: ReadSettings
    tick_ms: int
    until_latest: bool
    driver_pid: int
    reads_nothing: bool = False
    group_resets: tuple[GroupReset, ...] = ()
    unsegmented: Mapping[int, int] = field(default_factory=dict)
    changelogs: dict[str, str] = field(default_factory=dict)
    numbers_topic: str | None = None
    journal: str = ""
    error_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def open_log(self) -> TopicLog:
        """Open the application's log."""
        from penstock.log.open import open_log  # some of Spark's processes never need it

        return open_log(self.log_url, self.log_settings)

    @cached_property
    def _app(self) -> tuple[Topology, StreamsConfig]:
        loaded: tuple[Any, Any] = pickle.loads(self.pickled_app)  # noqa: S301 - our own bytes
        return loaded

    @property
    def topology(self) -> Topology:
        return self._app[0]

    @property
    def config(self) -> StreamsConfig:
        return self._app[1]

    @cached_property
    def changelog_formats(self) -> dict[str, ChangelogFormat]:
        """Store -> the format of its changelog."""
        from penstock.state.changelog import changelog_formats  # as above

        return changelog_formats(self.topology.stores, self.changelogs)

    @cached_property
    def unseen_topics(self) -> frozenset[str]:
        """The topics whose records do not count as results: internal topics and changelogs."""
        return frozenset((*self.plan.internal_topics, *self.changelogs.values()))

    @cached_property
    def app_digest(self) -> str:
        """A checksum of the pickled topology and settings."""
        return hashlib.blake2b(self.pickled_app, digest_size=16).hexdigest()

    def dump(self) -> bytes:
        """Pickle the job; `load_job` reads it."""
        return pickle.dumps(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_app", "app_digest", "unseen_topics")
        }


def load_job(data: bytes) -> SparkJob:
    """Load a pickled job, once in a process."""
    return _load(hashlib.blake2b(data, digest_size=16).digest(), _Bytes(data))


def load_app(data: bytes) -> tuple[Topology, StreamsConfig]:
    """Load a topology and its settings from the bytes of `pickle_app`, once in a process."""
    return _load_app(hashlib.blake2b(data, digest_size=16).digest(), _Bytes(data))


class _Bytes:
    """Bytes that the cache's comparison leaves out."""

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


@lru_cache(maxsize=4)
def _load_app(digest: bytes, data: _Bytes) -> tuple[Topology, StreamsConfig]:  # noqa: ARG001 - the digest is the key
    loaded: tuple[Any, Any] = pickle.loads(data.data)  # noqa: S301 - our own bytes
    return loaded
