"""The text that a stream thread commits with an offset.

With a lease it is a note of the lease's epoch, by which offsets that have gone back are recognised. A member of a
streams group commits what Kafka Streams does: a task that moves to another member, also to one in Java, goes on with
the times of its partitions, and with the time up to which closed windows were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.log.groups.gone_back import epoch_note
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
from penstock.runtime.aggregate.close import last_emit_meta
from penstock.runtime.context import STREAM_TIME, partition_time_meta

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.thread_clients import Writer
    from penstock.topology.plan.plan import TaskId

    _Numbers = dict[str, int]
    _GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata]

__all__ = ["OffsetNotes", "notes_of"]


class OffsetNotes(Protocol):
    """The texts of a thread's commits."""

    keeps_partition_times: bool
    """Whether tasks keep the time of each of their partitions."""

    are_fenced: bool
    """Whether the group fences a commit by its offsets, so that each task that has changed commits some."""

    def text(self, app: ThreadApp, task: TaskId, meta: Mapping[str, int], place: TopicPartition) -> str:
        """Return the text for the offset of a partition.

        Args:
            app: The application.
            task: The task that reads the partition.
            meta: Its numbers.
            place: The partition.
        """
        ...

    def numbers(self, app: ThreadApp, task: TaskId, group: _GroupOffsets) -> _Numbers:
        """Return the numbers with which a task goes on, as far as the group's offsets have them."""
        ...


def notes_of(writer: Writer) -> OffsetNotes:
    """Return the notes of a thread: without a lease it is a member of a streams group."""
    return MemberNotes() if writer.epoch is None else EpochNotes(writer.thread, writer.epoch)


class EpochNotes:
    """Notes of the epoch of a lease."""

    keeps_partition_times = are_fenced = False

    def __init__(self, thread: str, epoch: int) -> None:
        self._text = epoch_note(f"stream-thread {thread}", epoch)

    def text(self, app: ThreadApp, task: TaskId, meta: Mapping[str, int], place: TopicPartition) -> str:  # noqa: ARG002
        """Return the note."""
        return self._text

    def numbers(self, app: ThreadApp, task: TaskId, group: _GroupOffsets) -> _Numbers:  # noqa: ARG002
        """Return nothing: the topic of the tasks' numbers has them all."""
        return {}


class MemberNotes:
    """Kafka Streams' ``TopicPartitionMetadata``."""

    keeps_partition_times = are_fenced = True

    def text(self, app: ThreadApp, task: TaskId, meta: Mapping[str, int], place: TopicPartition) -> str:
        """Return the time of a partition, and the numbers of the task's processors."""
        sent = {store: meta[name] for store in app.subtopology(task).stores if (name := last_emit_meta(store)) in meta}
        time_ms = meta.get(partition_time_meta(app.logical(place.topic), place.partition), -1)
        return OffsetMetadata(time_ms, sent).encode()

    def numbers(self, app: ThreadApp, task: TaskId, group: _GroupOffsets) -> _Numbers:
        """Return the times of the task's partitions, their maximum as its stream time, and its processors' numbers."""
        numbers: dict[str, int] = {}
        for place in app.plan.sources(task):
            noted = OffsetMetadata.decode(group[place].metadata if place in group else "")
            times = {STREAM_TIME: noted.partition_time_ms}
            times[partition_time_meta(app.logical(place.topic), place.partition)] = noted.partition_time_ms
            times |= {last_emit_meta(store): time for store, time in noted.numbers.items()}
            for name, time_ms in times.items():
                if time_ms >= 0:
                    numbers[name] = max(time_ms, numbers.get(name, time_ms))
        return numbers
