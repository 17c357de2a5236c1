"""What a stream thread uses of its process: the log, also as one that is asked once for all tasks, clock and sensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import unix_ms
from penstock.log.base import TopicInfo, TopicLog, TopicPartition
from penstock.log.thread_clients import ThreadClients
from penstock.runtime.sensor import Sensor

if TYPE_CHECKING:
    from penstock.engines.threads.loop.pace import PaceChannel
    from penstock.state.restores.restore_progress import RestoreProgress

__all__ = ["AskedOnce", "ThreadHooks", "ThreadLog"]


class AskedOnce:
    """A log whose topics are asked for their ids, settings, first offsets and ends once; in all else it is that log.

    For restores of many tasks, one after the other, while nobody writes to their changelogs: an answer names all
    partitions of a topic, so asking for each task takes time with the square of the partitions.

    Args:
        log: The log.
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._ids: dict[str, str] = {}
        self._asked: set[str] = set()
        self._topics: dict[str, TopicInfo] = {}
        self._firsts: dict[str, Mapping[TopicPartition, int]] = {}
        self._ends: dict[tuple[str, ...], Mapping[TopicPartition, int]] = {}
        self._committed: dict[str, Mapping[TopicPartition, int]] = {}

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics; see `TopicLog.topic_ids`."""
        new = [topic for topic in topics if topic not in self._asked]
        if new:
            self._ids |= self._log.topic_ids(new)
            self._asked.update(new)
        return {topic: self._ids[topic] for topic in topics if topic in self._ids}

    def topic(self, name: str) -> TopicInfo:
        """Return a topic with its settings."""
        if name not in self._topics:
            self._topics[name] = self._log.topic(name)
        return self._topics[name]

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Return the ends of topics; see `TopicLog.end_offsets`."""
        key = tuple(topics)
        if key not in self._ends:
            self._ends[key] = self._log.end_offsets(topics)
        return self._ends[key]

    def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the first offset of a partition."""
        if topic not in self._firsts:
            self._firsts[topic] = self._log.beginning_offsets([topic])
        offset = self._firsts[topic].get(TopicPartition(topic, partition))
        return self._log.beginning_offset(topic, partition) if offset is None else offset

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of a group."""
        if group not in self._committed:
            self._committed[group] = self._log.committed_offsets(group)
        return self._committed[group]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class ThreadLog(TopicLog, ThreadClients, Protocol):
    """A topic log with the clients of stream threads."""


def _nothing(step: str) -> None:
    """Do nothing at a step."""


@dataclass(frozen=True)
class ThreadHooks:
    """The parts of its process that a thread uses, and calls.

    Attributes:
        clock: The wall clock, in milliseconds.
        sensor: Its methods are called for the events of tasks.
        on_restore: Called with the progress of restores (`RestoreProgress`).
        reach: Called at each step by its name, where a fault test may end the process: ``processed``, ``sent`` (the
            changelogs too), ``committed`` (by the log), ``kept <task>`` (by a replica).
        pace: The exchange with the application's other threads about their pace; None: there are none.
        until_latest: Whether the run ends at the records that exist at its start, see `TaskEnvironment`.
    """

    clock: Callable[[], int] = unix_ms
    sensor: Sensor = field(default_factory=Sensor)
    on_restore: Callable[[RestoreProgress], None] | None = None
    reach: Callable[[str], None] = _nothing
    pace: PaceChannel | None = None
    until_latest: bool = False
