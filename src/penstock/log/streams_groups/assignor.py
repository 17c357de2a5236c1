"""The assignment of tasks to members: balanced by capacity, sticky, with standby and warm-up copies.

A member is a thread, so an instance's capacity is the number of its members. A stateful task moves to an instance
whose copy of its state has caught up; until then it stays, and the new owner prepares a warm-up copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.log.streams_groups.description import Assignment, GroupTask

__all__ = ["AssignedMember", "AssignmentRules", "assign"]


@dataclass(frozen=True, slots=True)
class AssignmentRules:
    """The settings of an assignment, under Kafka's names.

    Attributes:
        num_standby_replicas: The number of standby copies of each stateful task.
        acceptable_recovery_lag: The lag at which a copy counts as caught up.
        max_warmup_replicas: The largest number of warm-up copies at once.
        rack_aware_tags: The ``client.tag.*`` by which copies of a task are spread.
    """

    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    rack_aware_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """A member, as the assignment sees it.

    Attributes:
        process: Its instance.
        tags: The tags of its instance.
        before: What it was assigned last.
        lags: The lags of the copies of state that it has reported.
        place: The identity of its folder of replicas; members of one place find there what others have left.
    """

    process: str
    tags: Mapping[str, str] = field(default_factory=dict)
    before: Assignment = field(default_factory=Assignment)
    lags: Mapping[GroupTask, int] = field(default_factory=dict)
    place: str = ""


def assign(
    tasks: Iterable[GroupTask],
    stateful: frozenset[str],
    members: Mapping[str, AssignedMember],
    rules: AssignmentRules,
) -> dict[str, Assignment]:
    """Return the tasks of each member.

    Args:
        tasks: All tasks.
        stateful: The sub-topologies with state.
        members: The members.
        rules: The settings.

    >>> three = [GroupTask("0", number) for number in range(3)]
    >>> alone = assign(three, frozenset(), {"a": AssignedMember("p")}, AssignmentRules())
    >>> both = {"a": AssignedMember("p", before=alone["a"]), "b": AssignedMember("q")}
    >>> shared = assign(three, frozenset(), both, AssignmentRules())
    >>> {name: sorted(map(str, each.active)) for name, each in shared.items()}
    {'a': ['0_0', '0_1'], 'b': ['0_2']}
    """
    if not members:
        return {}
    by_partition = sorted(tasks, key=lambda task: (task.partition, task.subtopology))  # each member gets some of each
    return _Planner(by_partition, stateful, members, rules).plan()


class _Planner:
    """One assignment under way."""

    def __init__(
        self,
        tasks: list[GroupTask],
        stateful: frozenset[str],
        members: Mapping[str, AssignedMember],
        rules: AssignmentRules,
    ) -> None:
        self._tasks, self._stateful, self._members, self._rules = tasks, stateful, members, rules
        self._names = sorted(members)
        self._active: dict[GroupTask, str] = {}
        self._standby: dict[str, set[GroupTask]] = {name: set() for name in self._names}
        self._warmup: dict[str, set[GroupTask]] = {name: set() for name in self._names}
        self._load: Counter[str] = Counter(dict.fromkeys(self._names, 0))
        self._kinds: Counter[tuple[str, str]] = Counter()  # tasks, by member and sub-topology
        self._owned: Counter[str] = Counter()  # active tasks, by member
        self._copied: Counter[tuple[str, str]] = Counter()  # standby copies, by active member and member

    def plan(self) -> dict[str, Assignment]:
        self._share_out()
        self._warm_up()
        self._copy()
        actives: dict[str, set[GroupTask]] = {name: set() for name in self._names}
        for task, name in self._active.items():
            actives[name].add(task)
        return {
            name: Assignment(frozenset(actives[name]), frozenset(self._standby[name]), frozenset(self._warmup[name]))
            for name in self._names
        }

    def _share_out(self) -> None:
        """Give each task to the member that has it, or warms it up, unless others have less than their share."""
        homes: dict[GroupTask, str] = {}
        copies: dict[GroupTask, list[str]] = {}
        for name in self._names:
            before = self._members[name].before
            homes |= dict.fromkeys(before.active - homes.keys(), name)
            for task in before.standby:
                copies.setdefault(task, []).append(name)
        for name in self._names:  # the member that a task was on its way to
            homes |= dict.fromkeys(self._members[name].before.warmup, name)
        share, more = divmod(len(self._tasks), len(self._names))
        waiting = []
        for task in self._tasks:
            home = homes.get(task)
            if home is not None and self._load[home] < share:
                self._put(task, home)
            else:
                waiting.append(task)
        # Members with one task more than others: first those that keep one so.
        later = []
        for task in waiting:
            home = homes.get(task)
            if home is not None and more and self._load[home] == share:
                self._put(task, home)
                more -= 1
            else:
                later.append(task)
        for task in later:
            self._put(task, self._least_loaded(task, self._with_state(task, copies.get(task, ())), share, more))
            more -= self._load[self._active[task]] > share

    def _put(self, task: GroupTask, name: str) -> None:
        self._active[task] = name
        self._load[name] += 1
        self._kinds[name, task.subtopology] += 1

    def _with_state(self, task: GroupTask, copies: Iterable[str]) -> frozenset[str]:
        """Return the places with a copy of the task's state."""
        held = {_place(self._members[name]) for name in copies}
        near = {_place(each) for each in self._members.values() if self._lag(task, each) is not None}
        return frozenset(held | near)

    def _least_loaded(self, task: GroupTask, preferred: frozenset[str], share: int, more: int) -> str:
        """Return the member with the least tasks; of those with room, one of a place with the state."""
        most = share if not more else share + 1
        room = [name for name in self._names if self._load[name] < most]
        warm = [name for name in room if _place(self._members[name]) in preferred]
        loads: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for name in self._names:
            loads[self._members[name].process] += self._load[name]
            sizes[self._members[name].process] += 1

        def order(name: str) -> tuple[int, int, float, str]:
            process = self._members[name].process
            alike = self._kinds[name, task.subtopology]
            return self._load[name], alike, loads[process] / sizes[process], name

        return min(warm or room or self._names, key=order)

    def _lag(self, task: GroupTask, member: AssignedMember) -> int | None:
        return member.lags.get(task)

    def _holders(self, task: GroupTask) -> list[str]:
        """Return the members at whose places a task finds its state: it runs there now, or a copy has caught up."""
        places = set()
        for each in self._members.values():
            lag = self._lag(task, each)
            if task in each.before.active or (lag is not None and lag <= self._rules.acceptable_recovery_lag):
                places.add(_place(each))
        return [name for name in self._names if _place(self._members[name]) in places]

    def _warm_up(self) -> None:
        """Leave stateful tasks where their state is until their new owners have caught up, if members say where."""
        left = self._rules.max_warmup_replicas
        if not left or not any(each.lags or each.place for each in self._members.values()):
            return
        owners = {task: name for name in self._names for task in self._members[name].before.active}
        for task, name in list(self._active.items()):
            if task.subtopology not in self._stateful or owners.get(task) == name:
                continue
            holders = self._holders(task)
            if not holders or name in holders:
                continue
            owner = owners.get(task)
            if owner is None:  # it has ended
                owner = min(holders, key=lambda each: (self._load[each], each))
            self._active[task] = owner
            self._load[owner] += 1
            self._load[name] -= 1
            if left > 0:
                self._warmup[name].add(task)
                left -= 1

    def _copy(self) -> None:
        """Place the standby copies of stateful tasks: each on another instance, spread by tags, sticky."""
        copied = [task for task in self._tasks if task.subtopology in self._stateful]
        self._owned = Counter(self._active.values())
        share = -(-len(copied) * self._rules.num_standby_replicas // len(self._names))
        for task in copied:
            used = {self._members[self._active[task]].process}
            used |= {self._members[name].process for name in self._names if task in self._warmup[name]}
            for _ in range(self._rules.num_standby_replicas):
                open_names = [name for name in self._names if self._members[name].process not in used]
                if not open_names:
                    break
                chosen = min(open_names, key=lambda name: self._standby_order(task, name, used, share))
                self._standby[chosen].add(task)
                self._copied[self._active[task], chosen] += 1
                used.add(self._members[chosen].process)

    def _standby_order(
        self, task: GroupTask, name: str, used: set[str], share: int
    ) -> tuple[int, bool, bool, int, str]:
        member = self._members[name]
        others = [each for each in self._members.values() if each.process in used]
        alike = sum(
            1 for tag in self._rules.rack_aware_tags for each in others if member.tags.get(tag) == each.tags.get(tag)
        )
        before = member.before
        is_new = task not in before.standby and task not in before.active and task not in before.warmup
        copies = len(self._standby[name])
        # All members shall be able to take over some tasks of a member that goes.
        owner = self._active[task]
        is_full = copies >= share or self._copied[owner, name] * (len(self._names) - 1) >= self._owned[owner]
        return alike, is_full, is_new, copies + self._load[name], name


def _place(member: AssignedMember) -> str:
    return member.place or member.process
