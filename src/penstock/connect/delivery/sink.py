"""Delivery of a sink's task: read topics, convert, transform, put, flush, and commit the group's offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.connect.api import ErrantRecordReporter, SinkTask
from penstock.connect.data import RetriableError, SinkRecord
from penstock.connect.delivery.conversion import Converters
from penstock.connect.delivery.steps import OnStep, Step
from penstock.connect.plugins import TransformationChain
from penstock.log.base import TopicLog, TopicPartition

__all__ = ["SinkDelivery"]


class _Context:
    """What the task may ask for."""

    def __init__(self, settings: Mapping[str, str], log: TopicLog) -> None:
        self.settings = settings
        self.log_identity = log.identity()
        self.assignment: Collection[TopicPartition] = ()
        self.errant_record_reporter: ErrantRecordReporter | None = None
        self.wanted: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.timeout_ms = 0
        self.commit_requested = False

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.wanted.update(offsets)

    def timeout(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def pause(self, *places: TopicPartition) -> None:
        self.paused.update(places)

    def resume(self, *places: TopicPartition) -> None:
        self.paused.difference_update(places)

    def request_commit(self) -> None:
        self.commit_requested = True


class SinkDelivery:
    """One task of a sink and what carries records from topics to it, at least once; exactly once if it keeps offsets.

    Args:
        log: The log that is read.
        connector: The connector's name; its group is ``connect-`` and the name.
        task: The task, not started yet.
        settings: Its config.
        converters: The converters.
        chain: The transformations.
        on_step: Called after each step; tests raise in it what kills the task.
    """

    def __init__(
        self,
        log: TopicLog,
        connector: str,
        task: SinkTask,
        settings: Mapping[str, str],
        converters: Converters,
        chain: TransformationChain,
        *,
        on_step: OnStep = lambda _step: None,
    ) -> None:
        self.task, self.settings = task, settings
        self.group = f"connect-{connector}"
        self._log, self._converters, self._chain, self._on_step = log, converters, chain, on_step
        self._context = _Context(settings, log)
        self._positions: dict[TopicPartition, int] = {}
        self._dirty: set[TopicPartition] = set()
        self.read = 0

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the task reads."""
        return sorted(self._positions)

    def start(self) -> None:
        """Start the task, without partitions."""
        self.task.context = self._context
        self.task.start(self.settings)

    def stop(self) -> None:
        """Commit, close the partitions and stop the task."""
        self.assign(())
        self.task.stop()
        self._chain.close()

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Give the task other partitions: those that go are committed and closed, those that come are opened."""
        target = set(places)
        gone = sorted(set(self._positions) - target)
        if gone:
            self.commit()
            self.task.close(gone)
            for place in gone:
                del self._positions[place]
                self._dirty.discard(place)
        come = sorted(target - set(self._positions))
        committed = self._log.committed_offsets(self.group) if come else {}
        for place in come:
            known = committed.get(place)
            self._positions[place] = (
                self._log.beginning_offset(place.topic, place.partition) if known is None else known
            )
        self._context.assignment = frozenset(self._positions)
        if come:
            self.task.open(come)
            self._move()

    def deliver(self, most: int = 500) -> list[SinkRecord]:
        """Read the next records of all partitions and put them; returns what the task was given.

        Raises:
            ConnectError: A converter, a transformation or the task fails.
        """
        records: list[SinkRecord] = []
        following = dict(self._positions)
        for place in self.assignment:
            if place in self._context.paused or len(records) >= most:
                continue
            fetched = self._log.read(place.topic, place.partition, self._positions[place], most - len(records))
            records += [self._converters.decode(place, row) for row in fetched.records.to_pylist()]
            following[place] = fetched.next_offset
        made = [kept for record in records if (kept := self._chain.apply(record)) is not None]
        self._on_step(Step.READ)
        try:
            self.task.put(made)
        except RetriableError:
            return []  # the positions stay, so the same records come again
        self._on_step(Step.PUT)
        self._dirty |= {place for place, offset in following.items() if offset != self._positions[place]}
        self._positions = following
        self.read += len(records)
        self._move()
        return made

    def commit(self) -> Mapping[TopicPartition, int]:
        """Let the task flush, and commit the group's offsets of what it has written; returns them."""
        if not self._dirty:
            return {}
        ready = self.task.pre_commit({place: self._positions[place] for place in sorted(self._dirty)})
        self._on_step(Step.FLUSHED)
        if ready:
            self._log.commit_offsets(self.group, dict(ready))
        self._dirty -= {place for place, offset in ready.items() if offset == self._positions.get(place)}
        self._context.commit_requested = False
        self._on_step(Step.COMMITTED)
        return ready

    def behind(self) -> int:
        """The number of offsets that are not read yet."""
        ends = {place: self._log.end_offset(place.topic, place.partition) for place in self._positions}
        return sum(max(end - self._positions[place], 0) for place, end in ends.items())

    def _move(self) -> None:
        """Go to the offsets that the task has asked for."""
        wanted: Sequence[tuple[TopicPartition, int]] = list(self._context.wanted.items())
        self._context.wanted.clear()
        for place, offset in wanted:
            if place in self._positions:
                self._positions[place] = offset
                self._dirty.add(place)
