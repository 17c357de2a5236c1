"""Kafka's assignors, which share the partitions among a group's members, as pure functions.

On the embedded log every assignor works incrementally: a member keeps the partitions that stay with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import ConfigError, LogError
from penstock.log.base import TopicPartition

__all__ = ["ASSIGNORS", "Subscriber", "agreed_assignor", "assign", "check_assignors"]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it.

    Attributes:
        rank: The sort key of members: the ``group.instance.id`` of a static one, else the member's id.
        topics: The topics that it has subscribed to.
        holds: The partitions that it had before.
    """

    rank: str
    topics: frozenset[str]
    holds: frozenset[TopicPartition] = field(default_factory=frozenset)


Members = Mapping[str, Subscriber]
Assignment = dict[str, set[TopicPartition]]


def assign(assignor: str, members: Members, partitions: Mapping[str, int]) -> Assignment:
    """Assign every subscribed partition to one of its topic's subscribers.

    Args:
        assignor: A name out of ASSIGNORS.
        members: By their ids.
        partitions: The number of partitions of each topic.

    Example:
        >>> members = {name: Subscriber(name, frozenset(["orders"])) for name in ("a", "b")}
        >>> {name: len(places) for name, places in assign("range", members, {"orders": 3}).items()}
        {'a': 2, 'b': 1}
    """
    assignment: Assignment = {name: set() for name in members}
    ASSIGNORS[assignor](members, partitions, assignment)
    return assignment


def _range(members: Members, partitions: Mapping[str, int], assignment: Assignment) -> None:
    for topic, count in partitions.items():
        readers = _readers(members, topic)
        for position, name in enumerate(readers):
            width, rest = divmod(count, len(readers))
            first = position * width + min(position, rest)
            assignment[name].update(TopicPartition(topic, n) for n in range(first, first + width + (position < rest)))


def _round_robin(members: Members, partitions: Mapping[str, int], assignment: Assignment) -> None:
    order = sorted(members, key=lambda name: members[name].rank)
    turn = 0
    for topic in sorted(partitions):
        if not _readers(members, topic):
            continue
        for number in range(partitions[topic]):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            assignment[order[turn % len(order)]].add(TopicPartition(topic, number))
            turn += 1


def _sticky(members: Members, partitions: Mapping[str, int], assignment: Assignment) -> None:
    """Keep assignments as far as balance allows: the loads of two subscribers of a topic differ by at most one."""
    readers = {topic: subscribers for topic in sorted(partitions) if (subscribers := _readers(members, topic))}
    held: dict[str, dict[str, list[TopicPartition]]] = {
        topic: {n: [] for n in subscribers} for topic, subscribers in readers.items()
    }
    free = {TopicPartition(topic, number) for topic in readers for number in range(partitions[topic])}

    def give(tp: TopicPartition, name: str) -> None:
        held[tp.topic][name].append(tp)
        assignment[name].add(tp)

    for name in sorted(members, key=lambda name: members[name].rank):
        for tp in sorted(members[name].holds & free):
            if tp.topic in members[name].topics:
                free.remove(tp)
                give(tp, name)
    for tp in sorted(free):
        give(tp, min(readers[tp.topic], key=lambda name: len(assignment[name])))
    while True:  # each move makes the sum of squares smaller, so this ends
        best, giver, taker, topic = 1, "", "", ""
        for each, subscribers in readers.items():
            least = min(subscribers, key=lambda name: len(assignment[name]))
            most = max((name for name in subscribers if held[each][name]), key=lambda name: len(assignment[name]))
            if len(assignment[most]) - len(assignment[least]) > best:
                best, giver, taker, topic = len(assignment[most]) - len(assignment[least]), most, least, each
        if best == 1:
            return
        tp = held[topic][giver].pop()
        assignment[giver].remove(tp)
        give(tp, taker)


def _readers(members: Members, topic: str) -> list[str]:
    return sorted((name for name, each in members.items() if topic in each.topics), key=lambda n: members[n].rank)


ASSIGNORS: dict[str, Callable[[Members, Mapping[str, int], Assignment], None]] = {
    "range": _range,
    "roundrobin": _round_robin,
    "sticky": _sticky,
    "cooperative-sticky": _sticky,
}


def check_assignors(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of assignors, in order of preference, from ``"range,roundrobin"`` or a sequence.

    Raises:
        ConfigError: There is no such assignor.
    """
    assignors = tuple(name.strip() for name in (names.split(",") if isinstance(names, str) else names))
    for name in assignors:
        if name not in ASSIGNORS:
            raise ConfigError(
                f"there is no assignor {name!r}", hint=f"partition.assignment.strategy: {', '.join(ASSIGNORS)}"
            )
    return assignors


def agreed_assignor(group: str, wishes: Sequence[Sequence[str]]) -> str:
    """Choose the assignor that all members know and most of them prefer, as Kafka's coordinator does.

    Raises:
        LogError: No assignor is known to all.
    """
    common = [name for name in wishes[0] if all(name in each for each in wishes)]
    if not common:
        raise LogError(
            f"the members of group {group!r} have no assignor in common: {sorted({','.join(each) for each in wishes})}",
            hint="give all members the same partition.assignment.strategy",
            group=group,
        )
    votes = [next(name for name in each if name in common) for each in wishes]
    return max(common, key=votes.count)
