"""The instances that answer an application's queries, registered in its checkpoint.

The driver of a running application is the active host of all its partitions, as a lease allows only one. Query servers
beside it are standbys: they read the same committed state. Each writes a small document to ``instances`` in the
checkpoint every few seconds; instances with an old document, or whose process on this machine is gone, are ignored.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from penstock.base.clock import unix_ms
from penstock.base.java_names import with_java_names
from penstock.base.log_lines import own_logger
from penstock.errors import ConfigError, PenstockError
from penstock.log.partitioner import partition_for
from penstock.query.placement import TaskPlaces
from penstock.query.source import GLOBAL, CommittedStores, StoreInfo
from penstock.state.checkpoint import delete_document, list_documents, read_document, write_document

__all__ = ["HostInfo", "Instance", "Instances", "KeyQueryMetadata", "Registration", "StreamsMetadata", "key_metadata"]

_log = own_logger(__name__)
_FOLDER = "instances"
_BEAT_S = 3.0
_ALIVE_MS = 15_000
_FORGOTTEN_MS = 600_000


@with_java_names
@dataclass(frozen=True, slots=True, order=True)
class HostInfo:
    """Kafka's ``HostInfo``: the address of an instance."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> HostInfo:
        """Parse ``host:port``.

        >>> HostInfo.of("localhost:7070")
        HostInfo(host='localhost', port=7070)
        """
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"application.server is {text!r}, not host:port", hint='For example "localhost:7070".')
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def unavailable(cls) -> HostInfo:
        """Return the address that stands for no instance."""
        return cls("unavailable", -1)


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance, as registered in the checkpoint."""

    host: str
    port: int
    role: Literal["active", "standby"]
    machine: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started_ms: int = field(default_factory=unix_ms)
    heartbeat_ms: int = 0
    serves_http: bool = True
    place: str = ""

    @property
    def host_info(self) -> HostInfo:
        return HostInfo(self.host, self.port)

    @property
    def url(self) -> str:
        return f"http://{self.host_info}"

    @property
    def document(self) -> str:
        return f"{_FOLDER}/{self.machine}-{self.pid}-{self.port}.json"

    def is_alive(self, now_ms: int) -> bool:
        """Return whether its heartbeat is recent and its process, if on this machine, runs."""
        if now_ms - self.heartbeat_ms > _ALIVE_MS:
            return False
        if self.machine == socket.gethostname():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return False
            except PermissionError:
                pass
        return True


def unreachable_text(one: Instance, reason: str) -> str:
    """Return what to say of an instance that does not answer queries of others, and what to do."""
    return (
        f"queries cannot be passed on to the instance on {one.machine or one.host}, which says that it is at "
        f"{one.host_info}: {reason}. They are answered from the committed state here. If that instance runs, set "
        "its application.server to a host and port by which other machines reach it, and penstock.http.host to an "
        "address at which it listens for them (0.0.0.0: all)"
    )


class Instances:
    """The instances of one application.

    Args:
        checkpoint: Its checkpoint location.
        refresh_s: The longest age of a cached answer.
    """

    def __init__(self, checkpoint: str, refresh_s: float = 1.0) -> None:
        self._checkpoint = checkpoint
        self._refresh_s = refresh_s
        self._looked = float("-inf")
        self._instances: list[Instance] = []

    def alive(self) -> list[Instance]:
        """List the live instances, the active one first, then the newest first."""
        if time.monotonic() - self._looked > self._refresh_s:
            self._instances = self._read()
            self._looked = time.monotonic()
        now = unix_ms()
        instances = [one for one in self._instances if one.is_alive(now)]
        return sorted(instances, key=lambda one: (one.role != "active", -one.started_ms))

    def active(self) -> Instance | None:
        """Return the instance that runs the application; None if there is none."""
        return next((one for one in self.alive() if one.role == "active"), None)

    def role_of(self, one: Instance, store: str, partition: int) -> Literal["active", "standby"] | None:  # noqa: ARG002 - all are alike
        """Return what an instance is for a partition of a store; None: it has no copy of it."""
        return one.role

    def machine_of(self, one: Instance) -> str:  # noqa: ARG002 - its driver notes where each task is
        """Return the machine of an instance that runs the tasks of its place; empty: it is not known."""
        return ""

    def close(self) -> None:
        """Let go of what was opened: nothing here."""

    def _read(self) -> list[Instance]:
        instances = []
        for name in list_documents(self._checkpoint, _FOLDER):
            text = read_document(self._checkpoint, f"{_FOLDER}/{name}")
            with suppress(ValueError, TypeError):  # one of another version
                instances.append(Instance(**json.loads(text or "")))
        return instances

    def forget_dead(self) -> None:
        """Delete the documents of instances that have been silent for long."""
        now = unix_ms()
        for one in self._read():
            if now - one.heartbeat_ms > _FORGOTTEN_MS:
                delete_document(self._checkpoint, one.document)


class Registration:
    """The registration of an instance, kept up to date until `close`.

    Args:
        checkpoint: The checkpoint location.
        instance: The instance.
        place: Returns the identity of the folder of replicas on its machine; empty if there is none.
    """

    def __init__(self, checkpoint: str, instance: Instance, place: Callable[[], str] = str) -> None:
        self._checkpoint = checkpoint
        self._place = place
        self._instance = instance
        self._stop = threading.Event()
        self._write()
        with suppress(PenstockError, OSError):
            Instances(checkpoint).forget_dead()
        self._thread = threading.Thread(target=self._beat, name="penstock-instance", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        beating = replace(self._instance, heartbeat_ms=unix_ms(), place=self._place())
        write_document(self._checkpoint, self._instance.document, json.dumps(asdict(beating)))

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_S):
            try:
                self._write()
            except (PenstockError, OSError) as error:
                _log.warning("This instance could not be registered in the checkpoint: %s", error)

    def close(self) -> None:
        """Remove the registration."""
        self._stop.set()
        self._thread.join()
        with suppress(PenstockError, OSError):
            delete_document(self._checkpoint, self._instance.document)


@with_java_names
@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """Kafka's ``KeyQueryMetadata``: the partition of a key and its hosts.

    Attributes:
        active_host: The instance that runs the application.
        standby_hosts: The other instances that answer. In continuous mode those with a replica of the partition on
            their machine, if there are any: the others would have to restore one.
        partition: The partition; -1 for a global store.
        active_machine: In continuous mode the machine of the thread that has the partition; else empty.
        standby_machines: In continuous mode the machines with standbys, and the records that these lacked at their last
            look (None before the first one).
    """

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int
    active_machine: str = ""
    standby_machines: Mapping[str, int | None] = field(default_factory=dict)


@with_java_names
@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """Kafka's ``StreamsMetadata``: the stores and partitions of an instance."""

    host_info: HostInfo
    state_store_names: frozenset[str]
    topic_partitions: frozenset[tuple[str, int]]
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[tuple[str, int]] = frozenset()


def key_metadata(state: CommittedStores, info: StoreInfo, key: bytes, instances: Instances) -> KeyQueryMetadata:
    """Return the partition of a key's bytes, by Kafka's partitioner, and its hosts.

    Args:
        state: The application's state.
        info: The store.
        key: The bytes of the key.
        instances: The instances.
    """
    hosts, store = instances.alive(), info.spec.name
    partition = GLOBAL if info.is_global else partition_for(key, info.partitions)
    roles = {one.host_info: instances.role_of(one, store, partition) for one in hosts}
    active = next((host for host, role in roles.items() if role == "active"), HostInfo.unavailable())
    others = [one for one in hosts if one.host_info != active]
    if info.is_global:
        return KeyQueryMetadata(active, frozenset(one.host_info for one in others), GLOBAL)
    places = state.places(info.spec.name, partition) or TaskPlaces()
    followers = {one.host_info for one in others if one.role == "active" and roles[one.host_info] == "standby"}
    near = [one for one in others if one.place in places.all or one.host_info in followers]
    standbys = frozenset(one.host_info for one in near or others)
    lags = {each.host: each.lag for each in places.standbys}
    machine = places.host or next((instances.machine_of(one) for one in hosts if one.host_info == active), "")
    return KeyQueryMetadata(active, standbys, partition, machine, lags)
