"""A group's topology over the topics that exist, and the assignment of its tasks to members.

Tasks are balanced by capacity, sticky, with standby and warm-up copies. A member is a thread, so an instance's capacity
is the number of its members. A stateful task moves to an instance whose copy of its state has caught up; until then it
stays, and the new owner prepares a warm-up copy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.log.streams_groups.description import (
    Assignment,
    GroupStatus,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    InternalTopicSpec,
    StatusCode,
)

__all__ = ["AssignedMember", "AssignmentRules", "ConfiguredTopology", "assign", "configured", "reader_of"]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with the numbers of partitions.

    Attributes:
        topology: The topology with patterns resolved and numbers of partitions set.
        tasks: All tasks; none while anything is wrong.
        missing: The internal topics to create.
        status: What is wrong.
    """

    topology: GroupTopology
    tasks: frozenset[GroupTask] = frozenset()
    missing: tuple[InternalTopicSpec, ...] = ()
    status: tuple[GroupStatus, ...] = field(default=())

    def read_by(self, tasks: Iterable[GroupTask], counts: Mapping[str, int]) -> frozenset[tuple[str, int]]:
        """Return the partitions that tasks read."""
        by_id = {each.id: each for each in self.topology.subtopologies}
        return frozenset(
            (topic, task.partition)
            for task in tasks
            if task.subtopology in by_id
            for topic in _read(by_id[task.subtopology])
            if task.partition < counts.get(topic, 0)
        )


def configured(topology: GroupTopology, counts: Mapping[str, int]) -> ConfiguredTopology:
    """Fit a topology to the topics that exist.

    Args:
        topology: The topology, as members send it.
        counts: The numbers of partitions of all topics.

    >>> counting = GroupTopology((
    ...     GroupSubtopology("0", ("lines",), repartition_sinks=("words",)),
    ...     GroupSubtopology("1", repartition_sources=(InternalTopicSpec("words"),)),
    ... ))
    >>> configured(counting, {}).status[0].detail
    'Source topics lines are missing.'
    >>> [each.partitions for each in configured(counting, {"lines": 3}).missing]
    [3]
    >>> sorted(map(str, configured(counting, {"lines": 1, "words": 1}).tasks))
    ['0_0', '1_0']
    """
    resolved, missing = _resolved(topology, counts)
    if missing:
        return ConfiguredTopology(resolved, status=(GroupStatus(StatusCode.MISSING_SOURCE_TOPICS, missing),))
    repartition_counts = _repartition_counts(resolved, counts)
    if isinstance(repartition_counts, GroupStatus):
        return ConfiguredTopology(resolved, status=(repartition_counts,))
    all_counts = {**counts, **repartition_counts}
    sized = GroupTopology(tuple(_sized(each, all_counts) for each in resolved.subtopologies), resolved.epoch)
    internal = {
        spec.name: spec for each in sized.subtopologies for spec in (*each.repartition_sources, *each.changelogs)
    }
    wrong = [each for each in internal.values() if each.name in counts and counts[each.name] != each.partitions]
    if wrong:
        texts = [
            f"Existing internal topic {each.name} has invalid partitions: expected {each.partitions}, "
            f"actual {counts[each.name]}"
            for each in wrong
        ]
        status = GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "; ".join(texts))
        return ConfiguredTopology(sized, status=(status,))
    absent = tuple(each for name, each in sorted(internal.items()) if name not in counts)
    if absent:
        names = ", ".join(each.name for each in absent)
        text = f"Internal topics are missing: {names}"
        return ConfiguredTopology(
            sized, missing=absent, status=(GroupStatus(StatusCode.MISSING_INTERNAL_TOPICS, text),)
        )
    tasks = frozenset(
        GroupTask(each.id, number) for each in sized.subtopologies for number in range(_task_count(each, all_counts))
    )
    return ConfiguredTopology(sized, tasks)


def reader_of(topology: GroupTopology, topic: str) -> str | None:
    """Return the id of the sub-topology that reads a topic; None if none does.

    >>> topology = GroupTopology((GroupSubtopology("0", ("lines",), ("logs-.*",)), GroupSubtopology("1", ("words",))))
    >>> [reader_of(topology, each) for each in ("words", "logs-eu", "other")]
    ['1', '0', None]
    """
    for each in topology.subtopologies:
        if topic in _read(each) or any(re.fullmatch(pattern, topic) for pattern in each.source_patterns):
            return each.id
    return None


def _resolved(topology: GroupTopology, counts: Mapping[str, int]) -> tuple[GroupTopology, str]:
    """Return the topology with the topics that its patterns match, and a text if topics are missing."""
    subtopologies, missing = [], []
    for each in topology.subtopologies:
        matched = [
            sorted(topic for topic in counts if re.fullmatch(pattern, topic)) for pattern in each.source_patterns
        ]
        missing += [topic for topic in each.source_topics if topic not in counts]
        missing += [p for p, topics in zip(each.source_patterns, matched, strict=True) if not topics]
        groups = tuple(
            replace(
                group,
                source_topics=(
                    *group.source_topics,
                    *(len(each.source_topics) + _at(matched, number) + i for number in group.source_patterns
                      for i in range(len(matched[number]))),
                ),
                source_patterns=(),
            )
            for group in each.copartition_groups
        )  # fmt: skip
        topics = (*each.source_topics, *(topic for part in matched for topic in part))
        subtopologies.append(replace(each, source_topics=topics, source_patterns=(), copartition_groups=groups))
    text = f"Source topics {', '.join(sorted(set(missing)))} are missing." if missing else ""
    return GroupTopology(tuple(subtopologies), topology.epoch), text


def _at(matched: list[list[str]], number: int) -> int:
    return sum(map(len, matched[:number]))


def _repartition_counts(topology: GroupTopology, counts: Mapping[str, int]) -> dict[str, int] | GroupStatus:
    """Return the numbers of partitions of repartition topics, or why they have none.

    One that names no number has that of the topics that it is joined with, else the largest number among the topics
    that its writers read.
    """
    specs = {spec.name: spec for each in topology.subtopologies for spec in each.repartition_sources}
    resolved = {name: spec.partitions for name, spec in specs.items() if spec.partitions}
    open_names = specs.keys() - resolved.keys()
    while open_names:
        ready = {
            name: max(sizes)
            for name in open_names
            if (sizes := _writers_counts(topology, name, {**counts, **resolved}, specs.keys()))
        }
        if not ready:
            names = ", ".join(sorted(open_names))
            text = f"The numbers of partitions of {names} depend on each other"
            return GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, text)
        resolved |= ready
        open_names = open_names - ready.keys()
    free = {name for name, spec in specs.items() if not spec.partitions}
    for each in topology.subtopologies:
        for group in each.copartition_groups:
            topics = _members_of(each, *(group.source_topics, group.repartition_sources))
            counts_of_group = {topic: resolved.get(topic) or counts[topic] for topic in topics}
            fixed = {topic: size for topic, size in counts_of_group.items() if topic not in free}
            size = max((fixed or counts_of_group).values(), default=0)
            resolved |= dict.fromkeys(counts_of_group.keys() & free, size)
            if len(set(fixed.values())) > 1:
                text = f"Following topics do not have the same number of partitions: {sorted(fixed.items())}"
                return GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, text)
    return resolved


def _writers_counts(
    topology: GroupTopology, topic: str, all_counts: Mapping[str, int], internal: Iterable[str]
) -> list[int]:
    """Return the numbers of partitions of what a topic's writers read; nothing while some are not known."""
    read = {each for sub in topology.subtopologies if topic in sub.repartition_sinks for each in _read(sub)} - {topic}
    waiting = {each for each in read if each not in all_counts}
    in_circle = bool(waiting) and waiting <= set(internal) and len(waiting) < len(read)
    return [all_counts[each] for each in read if each in all_counts] if not waiting or in_circle else []


def _read(sub: GroupSubtopology) -> list[str]:
    return [*sub.source_topics, *(spec.name for spec in sub.repartition_sources)]


def _members_of(sub: GroupSubtopology, topics: Iterable[int], repartitions: Iterable[int]) -> list[str]:
    return [*(sub.source_topics[at] for at in topics), *(sub.repartition_sources[at].name for at in repartitions)]


def _task_count(sub: GroupSubtopology, counts: Mapping[str, int]) -> int:
    return max((counts[topic] for topic in _read(sub)), default=0)


def _sized(sub: GroupSubtopology, counts: Mapping[str, int]) -> GroupSubtopology:
    tasks = _task_count(sub, counts)
    return replace(
        sub,
        changelogs=tuple(
            replace(spec, partitions=_changelog_count(spec, sub, tasks, counts)) for spec in sub.changelogs
        ),
        repartition_sources=tuple(replace(spec, partitions=counts[spec.name]) for spec in sub.repartition_sources),
    )


def _changelog_count(spec: InternalTopicSpec, sub: GroupSubtopology, tasks: int, counts: Mapping[str, int]) -> int:
    """Return the number of partitions of a changelog; a source topic that serves as one has its own."""
    return counts[spec.name] if spec.name in sub.source_topics else tasks


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
