"""The instances of an application that share its tasks, as its group knows them: for queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from penstock.base.log_lines import own_logger
from penstock.errors import PenstockError
from penstock.log.streams_groups.description import GroupTask
from penstock.query.metadata import HostInfo, Instance, Instances, unreachable_text

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.log.streams_groups.coordinator import StreamsCoordinator
    from penstock.log.streams_groups.description import StreamsGroupDescription
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.topology import Topology

__all__ = ["GroupInstances"]

_log = own_logger(__name__)
_REFRESH_S = 1.0
_LOOPBACK = ("localhost", "::1", "127.")


@dataclass(slots=True)
class _Share:
    """The tasks behind an endpoint."""

    machine: str
    active: set[GroupTask] = field(default_factory=set)
    standby: set[GroupTask] = field(default_factory=set)


class GroupInstances(Instances):
    """The instances whose threads are members of the application's group, and query servers beside them.

    Args:
        checkpoint: The checkpoint location, where query servers of this machine are registered.
        topology: The application's topology.
        application: The ``application.id``, which is the group.
        open_log: Opens the application's log, which is closed by `close`.
    """

    def __init__(self, checkpoint: str, topology: Topology, application: str, open_log: Callable[[], TopicLog]) -> None:
        super().__init__(checkpoint)
        self._application, self._open_log = application, open_log
        self._opened: tuple[TopicLog, StreamsCoordinator] | None = None
        self._numbers = {store: str(sub.id) for sub in topology.subtopologies() for store in sub.stores}
        self._shares: Mapping[HostInfo, _Share] = {}
        self._asked_s = float("-inf")
        self._said: set[HostInfo] = set()  # that others do not reach
        self._lock = threading.Lock()

    def alive(self) -> list[Instance]:
        """List the live instances: those of the group first."""
        registered = {one.host_info: one for one in super().alive()}
        of_group = [
            registered.pop(address, Instance(address.host, address.port, "active", share.machine, 0))
            for address, share in sorted(self._known().items())
        ]
        return [*of_group, *registered.values()]

    def role_of(self, one: Instance, store: str, partition: int) -> Literal["active", "standby"] | None:
        """Return what an instance is for a partition of a store; None: it would have to restore it."""
        share = self._known().get(one.host_info)
        if share is None:
            return super().role_of(one, store, partition)
        if store not in self._numbers:  # a global store, which all have
            return "active"
        task = GroupTask(self._numbers[store], partition)
        return "active" if task in share.active else "standby" if task in share.standby else None

    def machine_of(self, one: Instance) -> str:
        """Return the machine of an instance."""
        share = self._known().get(one.host_info)
        return "" if share is None else share.machine

    def _known(self) -> Mapping[HostInfo, _Share]:
        if time.monotonic() - self._asked_s > _REFRESH_S:
            self._asked_s = time.monotonic()
            try:
                self.take(self._coordinator().describe(self._application))
            except PenstockError as error:  # what was known before is the best guess
                _log.debug("the group is not described: %s", error.message)
        return self._shares

    def take(self, described: StreamsGroupDescription | None) -> None:
        """Take the group as it is now; say once of each address that it is good on its own machine alone."""
        self._shares = _shares(described)
        machines = {share.machine for share in self._shares.values()}
        for address, share in self._shares.items():
            if len(machines) > 1 and address.host.startswith(_LOOPBACK) and address not in self._said:
                self._said.add(address)
                one = Instance(address.host, address.port, "active", share.machine, 0)
                _log.warning("%s", unreachable_text(one, "each machine means itself by that"))

    def _coordinator(self) -> StreamsCoordinator:
        with self._lock:
            if self._opened is None:
                log = self._open_log()
                self._opened = log, cast("ThreadClients", log).streams_coordinator()
            return self._opened[1]

    def close(self) -> None:
        """Close the log."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()
            opened[0].close()


def _shares(described: StreamsGroupDescription | None) -> dict[HostInfo, _Share]:
    shares: dict[HostInfo, _Share] = {}
    for member in () if described is None else described.members:
        if member.endpoint is not None:
            share = shares.setdefault(HostInfo(*member.endpoint), _Share(member.host.lstrip("/")))
            share.active |= member.assignment.active
            share.standby |= member.assignment.standby | member.assignment.warmup
    return shares
