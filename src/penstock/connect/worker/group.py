"""Membership in a group of workers: who is there, who leads, who has which connector or task; fencing of tasks.

A task fences the earlier runs of its own number when it starts. That is not enough when the configs change: a partition
of the source may go from one number to another, or a number may have no successor, while the earlier run is on a worker
that hangs and comes back later. So the leader fences all earlier numbers once nobody runs them any more, and only then
do the new ones start.

The members are those of a consumer group that reads the config topic: its partition is the leader's. The leader writes
the plan to a topic of the group; each worker writes there what it owns. A connector or task starts only when nobody
else owns it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.log_lines import own_logger
from penstock.connect.plugins import PluginKind
from penstock.connect.storage.config_store import ConfigState, ConnectorTaskId
from penstock.connect.storage.topic_table import TableChange, TopicTable
from penstock.connect.tasks.task_parts import plugins_of, transactional_id
from penstock.connect.worker_settings import WorkerConfig, config_providers
from penstock.errors import LogError
from penstock.log import Consumer, Producer, TopicPartition
from penstock.log.base import TopicLog

__all__ = [
    "Fencing",
    "Mark",
    "Marks",
    "Solo",
    "WorkerGroupMembership",
    "WorkerMembership",
    "WorkerView",
    "planned",
]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker's share of the work.

    Attributes:
        leader: The leader, ``host:port``; empty: there is none at present.
        leads: Whether this worker is the leader.
        generation: The generation of the group.
        connectors: The connectors that this worker has.
        tasks: The tasks that it has.
        joined: Whether it is in the group.
    """

    leader: str
    leads: bool
    generation: int
    connectors: frozenset[str]
    tasks: frozenset[ConnectorTaskId]
    joined: bool = True


class WorkerMembership(Protocol):
    """The worker's membership in its group."""

    def poll(self, state: ConfigState, owned: Collection[str | ConnectorTaskId]) -> WorkerView:
        """Take part in the group; called often.

        Args:
            state: The configs.
            owned: The connectors and tasks that this worker runs at present, or still stops.
        """
        ...

    def owner(self, work: str | ConnectorTaskId) -> str | None:
        """Return the worker that has a connector or task; None: nobody at present."""
        ...

    def step_down(self) -> None:
        """Lead no more, until the group makes this worker its leader anew: another one has begun to lead."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...

    def abandon(self) -> None:
        """Close without leaving, as the log cannot be written: the others see that its session ends."""
        ...


class Solo:
    """A worker without others: it leads, and has everything."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def poll(self, state: ConfigState, owned: Collection[str | ConnectorTaskId]) -> WorkerView:  # noqa: ARG002 - nobody else asks
        """Return all connectors and tasks: here all are its own."""
        tasks = (task for name in state.connectors for task in state.task_ids(name))
        return WorkerView(self._worker, True, 1, frozenset(state.connectors), frozenset(tasks))  # noqa: FBT003 - it leads

    def owner(self, work: str | ConnectorTaskId) -> str | None:  # noqa: ARG002 - all of it
        """Return this worker."""
        return self._worker

    def step_down(self) -> None:
        """Do nothing: there is no other worker."""

    def close(self) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing."""


Mark = tuple[str, int]
"""A digest of the configs of a connector's tasks, and their number."""

Marks = dict[str, Mark]


class Fencing:
    """The fencing of tasks of sources that deliver exactly once.

    Args:
        config: The worker's settings.
        log: The log.
    """

    def __init__(self, config: WorkerConfig, log: TopicLog) -> None:
        self._config = config
        self._log = log
        self._plugins = plugins_of(tuple(config["plugin.path"]))
        self._providers = config_providers(config.given)
        self._by_connector: dict[str, tuple[tuple[int, int], Mark | None]] = {}

    def mark(self, state: ConfigState, name: str) -> Mark | None:
        """Return what identifies the present configs of a connector's tasks; None: they need no fencing."""
        version = state.revisions.get(name, 0), state.versions.get(name, 0)
        versioned_mark = self._by_connector.get(name)
        if versioned_mark is None or versioned_mark[0] != version:
            versioned_mark = self._by_connector[name] = version, self._made(state, name)
        return versioned_mark[1]

    def fence(self, state: ConfigState, fenced: Mapping[str, Mark], busy: Collection[str]) -> Marks:
        """Fence the earlier runs of all connectors whose tasks have changed, and that nobody runs any more.

        Args:
            state: The configs.
            fenced: What was fenced for last, by connector.
            busy: The connectors of which tasks run or still stop.

        Returns:
            What is fenced for now.

        Raises:
            LogError: The log cannot be used.
        """
        marks = dict(fenced)
        for name in fenced.keys() | state.connectors.keys():
            mark = self.mark(state, name) if name in state.connectors else None
            before = fenced.get(name)
            if mark == before or name in busy:
                continue
            count = state.fencing.get(name, 0) if before is None else before[1]
            for number in range(count):
                Producer(self._log, transactional_id=transactional_id(self._config, (name, number))).close()
            if mark is None:
                marks.pop(name, None)
            else:
                marks[name] = mark
        return marks

    def _made(self, state: ConfigState, name: str) -> Mark | None:
        if self._config["delivery.guarantee"] != "exactly_once":
            return None
        chosen = self._providers.resolve(state.connectors.get(name, {})).get("connector.class") or ""
        try:
            kinds = self._plugins.connector(chosen).kinds
        except LookupError:
            return None
        if PluginKind.SOURCE not in kinds:
            return None
        configs = state.task_configs(name)
        return hashlib.sha256(json.dumps(configs, sort_keys=True).encode()).hexdigest()[:16], len(configs)


_log = own_logger(__name__)
_LOOK_S = 1.0
_PLAN, _OWNED = b"plan", "owned-"
Work = str | ConnectorTaskId
Plan = dict[str, list[Work]]


def planned(members: Collection[str], work: Iterable[Work], before: Mapping[Work, str]) -> dict[Work, str]:
    """Who is to have what: work stays, new work goes where there is least, and one more is no reason to move.

    Args:
        members: The workers.
        work: All connectors and tasks.
        before: Who has had what.

    Example:
        >>> plan = planned(["a", "b"], ["x", ("x", 0), ("x", 1)], {"x": "a", ("x", 0): "a"})
        >>> plan["x"], plan["x", 0], plan["x", 1]
        ('a', 'a', 'b')
    """
    ordered = sorted(work, key=str)
    loads: dict[str, list[Work]] = {member: [] for member in sorted(members)}
    if not loads:
        return {}
    for each in ordered:
        if before.get(each) in loads:
            loads[before[each]].append(each)
    for each in ordered:
        if before.get(each) not in loads:
            min(loads.values(), key=len).append(each)
    while True:
        most, least = max(loads.values(), key=len), min(loads.values(), key=len)
        if len(most) - len(least) <= 1:
            break
        least.append(most.pop())
    where = {each: member for member, owned in loads.items() for each in owned}
    return {each: where[each] for each in ordered}


class WorkerGroupMembership:
    """A worker's membership in its group: a `Membership`.

    Args:
        log: The log.
        group: The ``group.id``.
        worker: The worker, ``host:port``.
        config_topic: The config topic.
        fencing: Fences tasks of sources.
        timing: The group's session timeout and interval of heartbeats, in milliseconds.
    """

    def __init__(
        self, log: TopicLog, group: str, worker: str, *, config_topic: str, fencing: Fencing, timing: tuple[int, int]
    ) -> None:
        self._log = log
        self._group = group
        self._worker = worker
        self._fencing = fencing
        self._consumer = Consumer(
            log,
            group=group,
            client_id=worker,
            assignors=("cooperative-sticky",),  # the leader stays the leader when others come and go
            session_timeout_ms=timing[0],
            heartbeat_interval_ms=timing[1],
        )
        self._joins = False
        self._leading = TopicPartition(config_topic, 0)
        topic = f"_penstock.workers.{group}"
        self._table = TopicTable(log, topic, 1, transactional_id=f"{topic}.leader")
        self._table.warm_up()
        self._deposed = False
        self._fenced: Marks = {}
        self._plan: dict[Work, str] = {}
        self._generation = 0
        self._leader = ""
        self._owned: dict[str, frozenset[Work]] = {}
        self._written: frozenset[Work] | None = None
        self._members: tuple[str, ...] = ()
        self._in_plan: frozenset[str] = frozenset()
        self._looked = 0.0

    def poll(self, state: ConfigState, owned: Collection[Work]) -> WorkerView:
        """Take part in the group; called often.

        Raises:
            LogError: The log cannot be used.
        """
        if not self._joins:
            self._consumer.subscribe(self._leading.topic)  # not before: the topic is made beside this object
            self._joins = True
        self._consumer.poll(timeout_s=0)
        places = self._consumer.assignment()
        self._consumer.pause(places)  # its records are read elsewhere
        self._deposed = self._deposed and self._leading in places
        leads = self._leading in places and not self._deposed
        self._look(owned)
        if leads and self._worker in self._members:
            self._lead(state)
        has_joined = self._worker in self._members and self._worker in self._in_plan  # else its share is yet to come
        if not has_joined or (not leads and self._leader not in self._members):
            return WorkerView("", False, self._generation, frozenset(), frozenset(), joined=False)  # noqa: FBT003 - not yet
        mine = {each for each, worker in self._plan.items() if worker == self._worker and not self._held(each)}
        mine -= {each for each in mine if not isinstance(each, str) and not self._may_start(state, each[0])}
        connectors = frozenset(each for each in mine if isinstance(each, str))
        tasks = frozenset(each for each in mine if not isinstance(each, str))
        return WorkerView(self._worker if leads else self._leader, leads, self._generation, connectors, tasks)

    def owner(self, work: Work) -> str | None:
        """Return the worker that has a connector or task; None: nobody at present."""
        return self._plan.get(work)

    def step_down(self) -> None:
        """Lead no more, until the group makes this worker its leader anew: another one has begun to lead."""
        self._deposed = True

    def close(self) -> None:
        """Leave the group."""
        try:
            self._table.put([TableChange(f"{_OWNED}{self._worker}".encode(), None)])
        except LogError:
            _log.warning("the group %s does not learn what this worker has let go", self._group)
        self.abandon()

    def abandon(self) -> None:
        """Close without leaving: the others see that its session ends."""
        with suppress(LogError):
            self._consumer.close()
        self._table.close()

    def _held(self, work: Work) -> bool:
        """Return whether another worker that is there still owns it."""
        return any(
            work in owned and worker != self._worker and worker in self._members
            for worker, owned in self._owned.items()
        )

    def _may_start(self, state: ConfigState, name: str) -> bool:
        """Return whether the runs before a connector's present configs of tasks are fenced."""
        mark = self._fencing.mark(state, name)
        return mark is None or self._fenced.get(name) == mark

    def _look(self, owned: Collection[Work]) -> None:
        """Write what this worker owns, if it has changed, and read what the others have written."""
        if time.monotonic() - self._looked >= _LOOK_S or self._worker not in self._members:
            self._looked = time.monotonic()
            members = self._log.group_state(self._group).members
            was_member = self._worker in self._members
            self._members = tuple(sorted({member.client for member in members}))
            if not was_member and self._worker in self._members:
                self._written = None  # the leader learns of this member from what it writes
        now = frozenset(owned)
        if now != self._written:
            document = {"work": [_form(each) for each in sorted(now, key=str)]}
            self._table.put([TableChange(f"{_OWNED}{self._worker}".encode(), json.dumps(document).encode())])
            self._written = now
        for change in self._table.refresh():
            self._read(change)

    def _read(self, change: TableChange) -> None:
        document: Any = None if change.value is None else json.loads(change.value)
        if change.key == _PLAN:
            document = document or {}
            workers = document.get("workers", {})
            self._plan = {_work(each): worker for worker, work in workers.items() for each in work}
            self._in_plan = frozenset(workers)
            self._generation = int(document.get("generation", 0))
            self._leader = str(document.get("leader", ""))
            self._fenced = {name: (str(mark), int(count)) for name, (mark, count) in document.get("fenced", {}).items()}
            return
        worker = change.key.decode().removeprefix(_OWNED)
        if document is None:
            self._owned.pop(worker, None)
        else:
            self._owned[worker] = frozenset(_work(each) for each in document["work"])
            if worker not in self._members:
                self._looked = 0.0  # it may have joined just now

    def _lead(self, state: ConfigState) -> None:
        """Write a new plan, if the members, the work or the configs of sources' tasks have changed.

        Raises:
            FencedError: Another worker leads.
        """
        if self._leader != self._worker or not self._table.leading:
            self._table.lead()
            for change in self._table.catch_up():
                self._read(change)
        work: list[Work] = [*state.connectors]
        work += [task for name in state.connectors for task in state.task_ids(name)]
        plan = planned(self._members, work, self._plan)
        fenced = self._fencing.fence(state, self._fenced, self._busy())
        moved = plan != self._plan or self._in_plan != frozenset(self._members) or self._leader != self._worker
        if not moved and fenced == self._fenced:
            return
        workers: dict[str, list[Any]] = {member: [] for member in self._members}
        for each, worker in plan.items():
            workers[worker].append(_form(each))
        generation = self._generation + 1 if moved else self._generation
        document = {"generation": generation, "leader": self._worker, "workers": workers, "fenced": fenced}
        self._table.put_as_leader([TableChange(_PLAN, json.dumps(document).encode())])
        for change in self._table.catch_up():
            self._read(change)

    def _busy(self) -> frozenset[str]:
        """Return the connectors of which workers that are there run tasks."""
        owned = (each for worker in self._members for each in self._owned.get(worker, ()))
        return frozenset(each[0] for each in owned if not isinstance(each, str))


def _form(work: Work) -> Any:
    return work if isinstance(work, str) else list(work)


def _work(form: Any) -> Work:
    return form if isinstance(form, str) else (str(form[0]), int(form[1]))
