"""The group with which instances share tasks (``group.protocol=streams``), and notes of its members on this machine.

Brokers wait for the end of a session (45 s by default) before they give the tasks of a killed member to others. The
next start on its machine sees that its process has ended, and leaves in its name.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.threads.hosting.group_members import GroupMembers, Identities
from penstock.errors import ConfigError, PenstockError
from penstock.log.processes import is_of_here, may_run, own_process
from penstock.log.streams_groups.assignor import configured
from penstock.log.streams_groups.description import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, StatusCode, StreamsHeartbeat
from penstock.log.streams_groups.group_refusals import fit_group, refuse_other_topology
from penstock.log.streams_groups.member import MemberFacts
from penstock.log.url import kafka_servers
from penstock.state.checkpoint import replace_document
from penstock.topology.configured import with_settings
from penstock.topology.plan.group_topology import group_topology
from penstock.topology.plan.internal_topics import numbers_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.log.base import TopicLog
    from penstock.log.streams_groups.description import (
        Endpoint,
        GroupTopology,
        StreamsCoordinator,
        StreamsGroupDescription,
    )
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["InstanceGroup", "MemberNote", "leave_for_dead", "require_sharable", "sharing_identity", "why_not_shared"]

_log = own_logger(__name__)
_OLD_S = 86_400.0  # of a note whose process cannot be seen, as from before the machine's last start


class MemberNote:
    """The note of an instance.

    Args:
        folder: The folder of the application's state on this machine.
        instance: The id of the instance.
    """

    def __init__(self, folder: Path, instance: uuid.UUID) -> None:
        self._path = folder / f"members-{instance}.json"

    def write(self, members: Mapping[str, str | None]) -> None:
        """Note the members, each with its ``group.instance.id``, in place of those before."""
        facts = {"process": own_process(), "members": dict(sorted(members.items()))}
        try:
            replace_document(str(self._path.parent), self._path.name, json.dumps(facts))
        except (OSError, PenstockError) as error:  # after a kill, brokers then wait for the end of the session
            _log.debug("the members are not noted: %s", error)

    def remove(self) -> None:
        """Remove it: all members have left."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def leave_for_dead(folder: Path, app: PlannedApp) -> None:
    """Leave the application's group in the name of members whose processes on this machine have ended.

    Args:
        folder: The folder of the application's state on this machine.
        app: The application.
    """
    for path in sorted(folder.glob("members-*.json")):
        try:
            noted = json.loads(path.read_text())
            host, pid, start = noted["process"]
            members = {str(each): static and str(static) for each, static in noted["members"].items()}
            runs = may_run(str(host), int(pid), str(start))
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.debug("%s cannot be read: %s", path, error)
            continue
        with suppress(PenstockError, OSError):
            if not runs:
                _leave(app, members)
                path.unlink()
            elif not is_of_here(str(start)) and time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()


def _leave(app: PlannedApp, members: Mapping[str, str | None]) -> None:
    clients: ThreadClients = app.log  # type: ignore[assignment] # both logs are
    with closing(clients.streams_coordinator()) as coordinator:
        for member, static in members.items():
            epoch = LEAVE_EPOCH if static is None else LEAVE_STATIC_EPOCH  # its next start has its tasks
            coordinator.heartbeat(StreamsHeartbeat(app.application, member, epoch, instance=static))


_LOOK_MS = 100  # between two looks whether the group has changed
_STATIC = "group.instance.id"
_STATIC_SPACE = uuid.UUID("0f1b7c52-6a35-4c86-9d5e-2a1c44a5e2b7")  # of the ids that follow from one
_PLACING = ("acceptable.recovery.lag", "max.warmup.replicas", "probing.rebalance.interval.ms")
_REBALANCE_MS = 300_000  # Kafka's default of max.poll.interval.ms


def require_sharable(topology: Topology, *, until_latest: bool) -> None:
    """Raise ConfigError for a run that instances cannot share.

    Args:
        topology: The topology.
        until_latest: Whether the run ends at the present ends of its topics.
    """
    hint = "Leave group.protocol out, or set it to classic."
    if until_latest:
        raise ConfigError(
            'group.protocol is streams, and the run is until "latest": no instance knows when all is done',
            hint=hint,
            setting="group.protocol",
        )
    if topology.dataframes:
        names = ", ".join(sorted(topology.dataframes))
        raise ConfigError(
            f"group.protocol is streams, and the topology reads DataFrames ({names}): each instance would write all of "
            "their rows",
            hint=f"{hint} Or write them into a topic by an application of their own, and read that.",
            setting="group.protocol",
        )


def sharing_identity(app: PlannedApp) -> str:
    """Return what all instances have in common: the topology that the group compares, and the processing guarantee."""
    text = f"{_topology(app)!r} {app.config['processing.guarantee']}"
    return hashlib.sha256(text.encode()).hexdigest()


def why_not_shared(app: PlannedApp) -> str:
    """Return why instances cannot share the tasks of an application, in words; empty: they can."""
    config, topology = app.config, app.topology
    if static := _static_names(config):
        return f"{static[0]} is set, which needs group.protocol=streams"
    if topology.dataframes:
        return f"it reads DataFrames ({', '.join(sorted(topology.dataframes))})"
    is_embedded = kafka_servers(str(config["bootstrap.servers"])) is None
    if not is_embedded and any(source.pattern is not None for source in topology.sources):
        return "it reads a pattern of topics, which brokers do not know in streams groups yet"
    clients: ThreadClients = app.log  # type: ignore[assignment] # both logs are
    with closing(clients.streams_coordinator()) as coordinator:
        if not coordinator.is_supported():
            return "that needs brokers of Kafka 4.2 or later with the feature streams.version"
    counts = {each.name: each.partitions for each in app.log.topics()}
    wrong = [
        each.detail
        for each in configured(_topology(app), counts).status
        if each.code == StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    ]
    return wrong[0] if wrong else ""


def _static_names(config: StreamsConfig) -> list[str]:
    return [name for name in config.given if name.endswith(_STATIC)]


class InstanceGroup:
    """An instance's side of the group, for a whole run.

    Args:
        app: The application.

    Attributes:
        instance: The id of this instance.
        coordinator: The coordinator of the group.
    """

    def __init__(self, app: PlannedApp) -> None:
        config = app.config
        self.instance = uuid.uuid4()
        self._endpoint: Endpoint | None = None
        self._is_open = self._is_prepared = False
        self._note = MemberNote(Path(app.places.replicas).parent, self.instance)
        self._members: GroupMembers | None = None
        self._application, self._config = app.application, config
        static = [str(config.given[name]) for name in _static_names(config)]
        self._static = static[0] if static else ""
        self._is_embedded = kafka_servers(str(config["bootstrap.servers"])) is None
        self._most_ms = int(config["penstock.heartbeat.interval.ms"] or _LOOK_MS)
        clients: ThreadClients = app.log  # type: ignore[assignment] # both logs are
        self.coordinator: StreamsCoordinator = clients.streams_coordinator()
        self._facts = MemberFacts(
            app.application, "", "", _topology(app), rack=str(config.get("client.rack") or "") or None,
            tags=tuple((name, str(value)) for name, value in config.with_prefix("client.tag.").items()),
            rebalance_timeout_ms=int(config.get("max.poll.interval.ms") or _REBALANCE_MS),
        )  # fmt: skip

    def described(self) -> StreamsGroupDescription | None:
        """Return the group as it is now; None if there is none."""
        return self.coordinator.describe(self._application)

    def check(self) -> None:
        """Raise TopologyError if other instances run with another topology."""
        refuse_other_topology(self._facts, self.described())

    def prepare(self, log: TopicLog) -> None:
        """Make the group ready for members, once in a run: its settings, and the topology of a group that has none.

        Args:
            log: The log, with the application's topics.
        """
        if self._is_prepared:
            return
        if not self._is_embedded and (idle := [name for name in _PLACING if name in self._config.given]):
            _log.warning(
                "settings without effect on where tasks go while instances share them, as brokers decide that, and "
                "know no warm-ups yet: %s", ", ".join(idle),
            )  # fmt: skip
        settings = _settings(self._config, is_embedded=self._is_embedded)
        if refused := self.coordinator.set_group_settings(self._application, settings):
            _log.warning(
                "these settings of group %s are as the brokers have them: %s",
                self._application, "; ".join(f"{name} ({reason})" for name, reason in sorted(refused.items())),
            )  # fmt: skip
        facts = replace(self._facts, process=str(self.instance))
        fit_group(log, self.coordinator, facts, numbers_topic(self._application))
        self._is_prepared = True

    def replicas(self, plan: PhysicalPlan, topology: Topology) -> dict[str, dict[str, int | None]]:
        """Return by task the machine of the thread that runs it (0), and those of its copies (None)."""
        described = self.described()
        identities = Identities(self._facts, self.instance, _numbers(plan, topology))
        hosts: dict[str, dict[str, int | None]] = {}
        for member in () if described is None else described.members:
            host = member.host.lstrip("/")
            for tasks, lag in ((member.assignment.active, 0), (member.assignment.tasks, None)):
                for task in sorted(filter(None, map(identities.task, tasks))):
                    hosts.setdefault(str(task), {}).setdefault(host, lag)
        return dict(sorted(hosts.items()))

    def open_at(self, endpoint: Endpoint | None) -> None:
        """Let members join, who say where queries reach this instance; None: nowhere."""
        self._endpoint, self._is_open = endpoint, True
        if self._members is not None:
            self._members.open_at(endpoint)

    def close(self) -> None:
        """Close the connections to the coordinator."""
        self.coordinator.close()
        if self._members is None or self._members.has_left:
            self._note.remove()

    def members(self, plan: PhysicalPlan, topology: Topology) -> GroupMembers:
        """Return the members that the threads of an epoch are.

        Args:
            plan: The plan of the epoch.
            topology: Its topology, whose sub-topologies the group knows by their numbers.
        """
        instance = uuid.uuid5(_STATIC_SPACE, f"{self._application} {self._static}") if self._static else self.instance
        numbers = _numbers(plan, topology)
        identities = Identities(self._facts, instance, numbers, self._is_embedded, self._static)
        leaving = () if self._members is None else self._members.take_leaving()
        members = self._members = GroupMembers(
            self.coordinator, identities, self._most_ms, note=self._note.write, leaving=leaving
        )
        if self._is_open:
            members.open_at(self._endpoint)
        return members


def _settings(config: StreamsConfig, *, is_embedded: bool) -> dict[str, str]:
    """Return the settings of the group: a member waits for nobody when it joins, and standbys are as the user says."""
    settings = {
        "streams.num.standby.replicas": str(config["num.standby.replicas"]),
        "streams.initial.rebalance.delay.ms": "0",
        "streams.assignment.interval.ms": "0",
    }
    if is_embedded:
        settings["streams.acceptable.recovery.lag"] = str(config["acceptable.recovery.lag"])
        settings["streams.num.warmup.replicas"] = str(config["max.warmup.replicas"])
        if session_ms := config.get("session.timeout.ms"):  # brokers have limits of their own
            settings["streams.session.timeout.ms"] = str(int(session_ms))
    return settings


def _topology(app: PlannedApp) -> GroupTopology:
    return group_topology(with_settings(app.topology, app.config), app.application, app.config)


def _numbers(plan: PhysicalPlan, topology: Topology) -> Mapping[int, int]:
    """Return sub-topology of the plan, which keeps the ids of earlier plans -> its number in the topology."""
    by_node = {name: sub.id for sub in topology.subtopologies() for name in sub.nodes}
    return {sub.id: by_node[sub.nodes[0]] for sub in plan.subtopologies}
