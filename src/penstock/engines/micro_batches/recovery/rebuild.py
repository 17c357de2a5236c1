"""Rebuilding of an application's state from its changelog topics, after segments of its checkpoint were lost.

The changelogs hold the contents of the stores after the newest batch of a task, written in the transaction of its
outputs; the task's record among the numbers says which segment that was. So a snapshot made of them takes the place of
that segment, and the application goes on where its ledger and Spark's own checkpoint stand.

Rows of a task's stores from its changelog topics, also of stores that were taken out of the topology.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from penstock.engines.application.application_mode import CONTINUOUS, in_own_mode, mode_of
from penstock.engines.application.internal_topic_creation import complete_changelogs
from penstock.engines.application.locations import open_app_log
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.application.stored_plans import note_lost, read_stored_plan
from penstock.engines.micro_batches.planned_batch import LastBatch, committed_by_spark
from penstock.errors import CheckpointMismatchError, MissingSegmentError, StateError
from penstock.log.base import TopicPartition
from penstock.log.fenced_record import OFFSETS_KEY
from penstock.log.leases import held_lease
from penstock.state.changelog.changelog_restore import StoreRestorer, in_pieces, put_snapshot
from penstock.state.changelog.formats import APPLICATION, NOTE, TaskNumbers
from penstock.state.maps import NO_BATCH
from penstock.state.segments.chain import Chain, follow_chain
from penstock.state.segments.segment import Segment, SegmentHead, SegmentName, pack
from penstock.state.segments.storage import SegmentStorage, open_storage, read_segment
from penstock.topology.plan.evolution import require_compatible
from penstock.topology.plan.internal_topics import changelog_topic, changelogs_of, numbers_topic
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology
    from penstock.topology.plan.plan_json import StoredPlan
    from penstock.topology.topology import Topology

__all__ = [
    "Rebuilder",
    "TaskInspection",
    "TaskReport",
    "check_put_back",
    "inspector_for",
    "lost_rows",
    "no_numbers",
    "rebuilder_for",
    "rebuilt",
    "require_unmoved",
]

_DESCRIBES = {"kind", "timestamped", "window_size_ms", "retention_ms", "history_ms", "retain_duplicates", "ttl_ms",
              "persistent", "time_ordered"}  # fmt: skip
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Restored:
    """The stores of a task, restored from its changelogs.

    Attributes:
        stores: Store -> its rows in the order of their keys.
        records: The number of changelog records that were read.
    """

    stores: dict[str, pa.RecordBatch]
    records: int


class ChangelogRows:
    """The changelogs of an application, as far as they hold all of their stores.

    Args:
        app: The application.
        complete: The changelog topics that hold all of their stores.
        dropped: Stores that were taken out and whose rows are still in the segments, as `StoredPlan` describes them.
    """

    def __init__(self, app: PlannedApp, complete: set[str], dropped: Mapping[str, Mapping[str, Any]]) -> None:
        topology, log = app.topology, app.log
        self._topology = topology
        self._log = log
        self._complete = complete
        self._topics = {each.store: each.topic for each in changelogs_of(topology, app.plan, app.config)}
        there = {each.name for each in log.topics()} if dropped else set()
        own = {name: changelog_topic(app.application, name) for name in dropped if name not in topology.stores}
        self._of_dropped = {name: topic for name, topic in own.items() if topic in complete and topic in there}
        self._dropped = {name: dropped[name] for name in own}

    @property
    def is_empty(self) -> bool:
        """True if the application has no changelogs."""
        return not self._topics

    def read(self, topic: str, partition: int, end: int | None, progress: Progress) -> Iterator[pa.RecordBatch]:
        """Fetch the records of a partition up to an offset; None: to its end."""
        end = self._log.end_offset(topic, partition) if end is None else end
        first = self._log.beginning_offset(topic, partition)
        for records in self._log.iterate(topic, partition, first, end):
            if records.num_rows:
                yield records
                progress(f"{topic}-{partition}", records.column("offset")[-1].as_py() + 1 - first, end - first)

    def unlogged(self, sub: PlannedSubTopology) -> tuple[str, ...]:
        """List the stores of a sub-topology that have no topic to be restored from."""
        return tuple(name for name in sub.stores if self._source_of(name) is None)

    def lost(self, sub: PlannedSubTopology, partition: int) -> tuple[str, ...]:
        """List the stores that were taken out of a task and whose rows only its segments hold."""
        return tuple(
            name for name in self._dropped_of(sub, partition)
            if name not in self._of_dropped or spec_of_dropped(name, self._dropped[name]) is None
        )  # fmt: skip

    def check_complete(self, sub: PlannedSubTopology, task: str) -> None:
        """Raise StateError if a changelog of a task does not hold all of its store."""
        logged = [self._topics[name] for name in (*sub.stores, "") if name in self._topics]
        partial = [topic for topic in logged if topic not in self._complete]
        if partial:
            raise StateError(
                f"task {task} cannot be rebuilt: {', '.join(partial)} do not hold all that was in the stores",
                hint="They were created after the application had already run. Bring the segments back from a backup, "
                "or "
                "reset the application.",
                task=task,
            )

    def restore(
        self,
        sub: PlannedSubTopology,
        partition: int,
        numbers: TaskNumbers,
        ends: Mapping[TopicPartition, int],
        progress: Progress,
    ) -> Restored:
        """Restore the stores of a task, and those that were taken out of it.

        Args:
            sub: The task's sub-topology.
            partition: Its partition number.
            numbers: The task's numbers that belong to the records.
            ends: The ends to which source topics that serve as changelogs are read.
            progress: Called with a topic partition, the number of offsets read and their total.

        Raises:
            StateError: A changelog has records that do not fit its store.
        """
        stores, count = {}, 0
        for spec, topic, end in self._sources(sub, partition, ends):
            restorer = StoreRestorer(spec)
            for records in self.read(topic, partition, end, progress):
                restorer.add(records)
            stores[spec.name] = restorer.rows(numbers.meta)
            count += restorer.records
        return Restored(stores, count)

    def _sources(
        self, sub: PlannedSubTopology, partition: int, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[StoreSpec, str, int | None]]:
        """Iterate over the stores that can be restored, each with its topic and the offset to read to."""
        for store in sub.stores:
            topic = self._source_of(store)
            if topic is not None:
                end = None if store in self._topics else ends.get(TopicPartition(topic, partition), 0)
                yield self._topology.stores[store], topic, end
        for store in self._dropped_of(sub, partition):
            spec = spec_of_dropped(store, self._dropped[store])
            if spec is not None and store in self._of_dropped:
                yield spec, self._of_dropped[store], None

    def _source_of(self, store: str) -> str | None:
        """Return the topic that a store can be restored from."""
        return self._topics.get(store) or self._topology.stores[store].changelog_topic

    def _dropped_of(self, sub: PlannedSubTopology, partition: int) -> list[str]:
        """List the stores whose rows are in a task's segments although the task no longer uses them."""
        return [
            name for name, facts in self._dropped.items()
            if int(facts["subtopology"]) == sub.id and partition < facts["tasks"]
        ]  # fmt: skip


def spec_of_dropped(name: str, facts: Mapping[str, Any]) -> StoreSpec | None:
    """Make a store's specification, as far as its changelog's format needs it; None if an early plan lacks facts.

    Example:
        >>> spec_of_dropped("counts", {"kind": "timestamped"}) is None
        True
    """
    if not facts.keys() >= _DESCRIBES:
        return None
    fact_names = {each.name for each in fields(StoreSpec)} & _DESCRIBES
    described = {fact: facts[fact] for fact in fact_names}
    keeps_headers = facts.get("keeps_headers", False)
    return StoreSpec(name, key_serde=None, value_serde=None, keeps_headers=keeps_headers, **described)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of rebuilding a task.

    Attributes:
        task: The task.
        outcome: "sound" (nothing was missing), "rebuilt", "empty" (it has never written anything), or in a dry run
            "would be rebuilt".
        gap: The missing part.
        batch: The newest batch in the task's state.
        records: The number of changelog records that were read.
        rows: The number of restored rows by store.
        without_changelog: Stores that cannot be restored: they begin empty, or were taken out and cannot be put back.
        size_bytes: The size of the snapshot.
        seconds: The time that it took.
    """

    task: str
    outcome: str
    gap: str | None
    batch: int
    records: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    without_changelog: tuple[str, ...] = ()
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskInspection:
    """The existing segments and numbers of a task.

    Attributes:
        task: The task.
        stores: Its stores.
        chain: Its segments.
        gap: The missing part of them.
        numbers: The task's numbers beside its changelogs; None if there are none.
    """

    task: str
    stores: tuple[str, ...]
    chain: Chain
    gap: str | None
    numbers: TaskNumbers | None


def rebuilt(report: TaskReport, restored: Restored, size_bytes: int, started: float) -> TaskReport:
    """Complete the report of a task that was to be rebuilt.

    Args:
        report: The report of the dry run.
        restored: The restored stores.
        size_bytes: The size of the snapshot.
        started: The begin, by ``time.perf_counter``.
    """
    rows = {store: table.num_rows for store, table in restored.stores.items()}
    seconds = time.perf_counter() - started
    return replace(
        report, outcome="rebuilt", records=restored.records, rows=rows, size_bytes=size_bytes, seconds=seconds
    )


def lost_rows(task: str, batch: int, topics: Collection[str]) -> StateError:
    """Make the error for a task whose rows for other tasks were only in a lost segment."""
    return StateError(
        f"task {task} has written batch {batch}, which was not finished when the application ended; its records for "
        f"{', '.join(topics)} were in a segment that is lost",
        hint="Bring the segment back from a backup, or continue without those records: --accept-loss.",
        task=task,
        batch=batch,
    )


def no_numbers(task: str, gap: str, application: str) -> CheckpointMismatchError:
    """Make the error for a task without numbers, so the batch of its changelogs is unknown."""
    return CheckpointMismatchError(
        f"task {task} cannot be rebuilt: {gap}, and {numbers_topic(application)} has no record of it",
        hint="Changelogs were off (penstock.changelog.enabled). Bring the segments back from a backup.",
        task=task,
    )


def require_unmoved(stored: StoredPlan, plan: PhysicalPlan, checkpoint: str) -> None:
    """Raise CheckpointMismatchError if the plan has stores in another sub-topology than they were written in."""
    moving = stored.moving({sub.id: sub.stores for sub in plan.subtopologies})
    if moving:
        names = ", ".join(sorted(name for stores in moving.values() for name in stores))
        raise CheckpointMismatchError(
            f"{names} have come into another sub-topology with this version of the topology, which has not run yet",
            hint="Rebuild the state with the version that ran last; a start of this one then copies the stores.",
            checkpoint=checkpoint,
        )


class Rebuilder:
    """Inspection of the tasks of an application that does not run, and rebuilding of their missing state.

    Args:
        app: The application.
        last: Its last committed batch; `renew` needs all of it.
        complete: The changelog topics that hold all of their stores; None: those that the checkpoint names.
        dropped: Stores that were taken out and whose rows are in the segments, as `StoredPlan` describes them.

    Attributes:
        lost: Store that was taken out -> the tasks whose rows of it could not be rebuilt.
    """

    def __init__(
        self,
        app: PlannedApp,
        last: LastBatch,
        complete: set[str] | None = None,
        dropped: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._app = app
        self._plan = plan = app.plan
        self._last = last
        complete = complete_changelogs(app.checkpoint) if complete is None else complete
        self._changelogs = ChangelogRows(app, complete, dropped or {})
        self.lost: dict[str, list[str]] = {}
        self._numbers: dict[int, dict[str, TaskNumbers]] = {}
        self._firsts = {f"{sub.id}_{n}": self._first(sub) for sub in plan.subtopologies for n in range(sub.tasks)}
        self._earlier: dict[int, dict[str, TaskNumbers]] = {}  # those of committed batches

    def tasks(self) -> Iterator[tuple[PlannedSubTopology, int]]:
        """Iterate over the tasks that have segments; none if no task keeps state."""
        for sub in () if self._changelogs.is_empty else self._plan.subtopologies:
            if self._plan.publishes(sub):
                yield from ((sub, partition) for partition in range(sub.tasks))

    def storage(self, sub: PlannedSubTopology, partition: int) -> SegmentStorage:
        """Open the segments of a task."""
        return open_storage(self._app.checkpoint, f"{sub.id}_{partition}")

    def rebuild(
        self,
        sub: PlannedSubTopology,
        partition: int,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> TaskReport:
        """Rebuild a task if segments of it are missing.

        Args:
            sub: The task's sub-topology.
            partition: Its partition number.
            dry_run: Whether to report only.
            accept_loss: Whether to go on if rows that a half-finished batch had handed to other tasks are lost.
            progress: Called with a topic partition, the number of offsets read and their total.

        Raises:
            StateError: The task cannot be rebuilt; nothing has been changed.
        """
        started = time.perf_counter()
        task = f"{sub.id}_{partition}"
        facts = self.look(sub, partition)
        chain, numbers = facts.chain, facts.numbers
        if facts.gap is None:
            return TaskReport(task, "empty" if chain.head == NO_BATCH else "sound", None, chain.head)
        if numbers is None:
            raise no_numbers(task, str(chain.gap), self._app.application)
        lost = (*self._changelogs.unlogged(sub), *self._changelogs.lost(sub, partition))
        self._changelogs.check_complete(sub, task)
        unfinished = self._unfinished(sub, partition, numbers, accept_loss=accept_loss)
        report = TaskReport(task, "would be rebuilt", facts.gap, numbers.batch, without_changelog=lost)
        if dry_run:
            return report
        restored = self._changelogs.restore(sub, partition, numbers, self._last.ends, progress)
        self._note_lost(sub, partition)
        note_lost(self._app.checkpoint, self.lost)
        size = self._publish(sub, partition, numbers, restored.stores, unfinished)
        return rebuilt(report, restored, size, started)

    def renew(
        self,
        sub: PlannedSubTopology,
        partition: int,
        *,
        dry_run: bool,
        accept_loss: bool = False,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> TaskReport:
        """Recreate the state of a task of which no segment is left.

        A task that has written the batch under way must not write it again. But its rows for other tasks are gone, so
        it runs again if that needs no state that the batch has changed; the ledger then keeps its outputs back.

        Args:
            sub: The task's sub-topology.
            partition: Its partition number.
            dry_run: Whether to report only.
            accept_loss: As in `rebuild`.
            progress: As in `rebuild`.

        Raises:
            StateError: The changelogs do not hold all of the state.
        """
        started = time.perf_counter()
        task, gap = f"{sub.id}_{partition}", "the checkpoint is gone"
        noted = self._numbers_of(partition).get(task)
        head = max(self._last.written.get(task, -1), -1 if noted is None else noted.batch)
        first = self._first(sub)
        is_ahead = head >= first
        if is_ahead and self._hands_on(sub):
            before = self._numbers_before(sub, partition, task)
            if before is not None:
                head, noted, is_ahead = first - 1, before, False
            elif not accept_loss:
                raise lost_rows(task, self._last.batch + 1, self._hands_on(sub))
        if head < 0:
            return TaskReport(task, "empty", gap, head)
        if noted is None and sub.keeps_state:
            raise no_numbers(task, gap, self._app.application)
        if sub.keeps_state:
            self._changelogs.check_complete(sub, task)
        lost = self._changelogs.lost(sub, partition)
        report = TaskReport(task, "would be rebuilt", gap, head, without_changelog=lost)
        if dry_run:
            return report
        numbers = noted or TaskNumbers(head, "", {})
        under_way = self._last.under_way
        ends = under_way.end.ends if is_ahead and under_way is not None else self._last.ends
        restored = self._changelogs.restore(sub, partition, numbers, ends, progress)
        self._note_lost(sub, partition)
        storage = self.storage(sub, partition)
        for name in storage.names():  # of an attempt that was cut off
            storage.delete(name)
        if is_ahead:
            size = self._publish(sub, partition, replace(numbers, batch=head), restored.stores, None)
        else:
            at = replace(self._head("snapshot", task, first - 1, numbers), previous=head)
            size = put_snapshot(storage, replace(at, previous_checksum=numbers.checksum), restored.stores)
        return rebuilt(report, restored, size, started)

    def take_up(self, sub: PlannedSubTopology, partition: int) -> TaskReport:
        """Replace all state of a task by the contents of the changelogs, also if another program has written them.

        Raises:
            StateError: The changelogs do not hold all of the state, or have records that do not fit their stores.
        """
        task, at, started = f"{sub.id}_{partition}", self._first(sub) - 1, time.perf_counter()
        numbers = self._numbers_of(partition).get(task) or TaskNumbers(at, "", {})
        if sub.keeps_state:
            self._changelogs.check_complete(sub, task)
        restored = self._changelogs.restore(sub, partition, numbers, self._last.ends, lambda *_: None)
        self._note_lost(sub, partition)
        storage = self.storage(sub, partition)
        for name in storage.names():
            storage.delete(name)
        size = put_snapshot(storage, replace(self._head("snapshot", task, at, numbers), previous=at), restored.stores)
        lost = self._changelogs.lost(sub, partition)
        return rebuilt(TaskReport(task, "", None, at, without_changelog=lost), restored, size, started)

    def look(self, sub: PlannedSubTopology, partition: int) -> TaskInspection:
        """Inspect a task: its segments, and whether they reach as far as its changelogs."""
        task = f"{sub.id}_{partition}"
        storage = self.storage(sub, partition)
        chain = follow_chain(storage)
        numbers = self._numbers_of(partition).get(task)
        gap = chain.gap
        if gap is None and numbers is not None and chain.head < numbers.batch:
            gap = f"segment {storage.where(SegmentName(numbers.batch, 'delta'))} and all after it are gone"
        return TaskInspection(task, sub.stores, chain, gap, numbers)

    def _numbers_of(self, partition: int) -> dict[str, TaskNumbers]:
        """Read the newest numbers of the tasks of a partition number, by task."""
        if partition not in self._numbers:
            numbers: dict[str, TaskNumbers] = {}
            topic = numbers_topic(self._app.application)
            if topic not in {each.name for each in self._app.log.topics()}:
                return numbers
            for records in self._changelogs.read(topic, partition, None, lambda *_: None):
                columns = records.select(["key", "value"]).to_pydict()
                for key, value in zip(columns["key"], columns["value"], strict=True):
                    if value is not None and key not in (APPLICATION, OFFSETS_KEY) and NOTE not in key:
                        number = TaskNumbers.parse(value)
                        numbers[key.decode()] = number
                        if key.decode() in self._firsts and number.batch < self._firsts[key.decode()]:
                            self._earlier.setdefault(partition, {})[key.decode()] = number
            self._numbers[partition] = numbers
        return self._numbers[partition]

    def _note_lost(self, sub: PlannedSubTopology, partition: int) -> None:
        for store in self._changelogs.lost(sub, partition):
            self.lost.setdefault(store, []).append(f"{sub.id}_{partition}")

    def _unfinished(
        self, sub: PlannedSubTopology, partition: int, numbers: TaskNumbers, *, accept_loss: bool
    ) -> list[Segment] | None:
        """Read the deltas of a batch that the task has written and Spark has not committed; None if they are lost.

        Such a batch runs again, and must find that nothing is left to do.
        """
        storage, first, at = self.storage(sub, partition), self._first(sub), numbers.batch
        deltas: list[Segment] = []
        while at >= first:
            segment = read_segment(storage, SegmentName(at, "delta"))
            if segment is None:
                break
            deltas.insert(0, segment)
            at = segment.head.previous
        else:
            return deltas
        if self._hands_on(sub) and not accept_loss:
            raise lost_rows(f"{sub.id}_{partition}", self._last.batch + 1, self._hands_on(sub))
        return None

    def _hands_on(self, sub: PlannedSubTopology) -> list[str]:
        """List the internal topics that a sub-topology writes to."""
        return [topic for topic in sub.sink_topics if topic in self._plan.internal_topics]

    def _numbers_before(self, sub: PlannedSubTopology, partition: int, task: str) -> TaskNumbers | None:
        """Return the numbers before the batch under way; None if the task's earlier state is no longer known.

        Changelogs hold only the present contents of stores. The state of a task without stores is its numbers only.
        """
        if not sub.keeps_state:
            return TaskNumbers(self._first(sub) - 1, "", {})
        return None if sub.stores else self._earlier.get(partition, {}).get(task)

    def _first(self, sub: PlannedSubTopology) -> int:
        """Return the number of the next batch's first run."""
        return (self._last.batch + 1) * len(sub.levels)

    def _head(self, kind: Any, task: str, batch: int, numbers: TaskNumbers) -> SegmentHead:
        app = self._app
        return SegmentHead(kind, app.application, app.fingerprint, task, batch, NO_BATCH, "", dict(numbers.meta))

    def _publish(
        self,
        sub: PlannedSubTopology,
        partition: int,
        numbers: TaskNumbers,
        stores: dict[str, pa.RecordBatch],
        unfinished: list[Segment] | None,
    ) -> int:
        """Write the snapshot, and after it the deltas of an unfinished batch, or empty ones in their place."""
        task, storage, first = f"{sub.id}_{partition}", self.storage(sub, partition), self._first(sub)
        head = self._head("snapshot", task, min(numbers.batch, first - 1), numbers)
        if unfinished:  # they change nothing of what is in the snapshot already
            before = unfinished[0].head
            head = replace(head, previous=before.previous, previous_checksum=before.previous_checksum)
        elif unfinished is not None:
            head = replace(head, previous=numbers.batch, previous_checksum=numbers.checksum)
        kept = {SegmentName(head.batch, "snapshot"), *(SegmentName(each.batch, "delta") for each in unfinished or ())}
        in_delta = head.batch < 0  # the very first batch: no snapshot comes before it
        size = 0 if in_delta else put_snapshot(storage, head, stores)
        for name in storage.names():
            if name not in kept and name.batch <= numbers.batch:
                storage.delete(name)
        if unfinished is None:
            at = (NO_BATCH, "")
            for number in range(first, numbers.batch + 1):
                delta = self._head("delta", task, number, numbers)
                changes = in_pieces(stores) if in_delta and number == first else {}
                parts, checksum = pack(replace(delta, previous=at[0], previous_checksum=at[1]), changes, {})
                storage.create(SegmentName(number, "delta"), parts)
                at = (number, checksum)
                size += sum(len(part) for part in parts)
        return size


@contextmanager
def rebuilder_for(topology: Topology, config: StreamsConfig, lease_ttl_ms: int = 30_000) -> Iterator[Rebuilder]:
    """Hold the lease of an application, and yield the rebuilder of its state.

    Raises:
        FencedError: The application runs.
        CheckpointMismatchError: The whole checkpoint is missing, or it is of another topology.
    """
    application = str(config["application.id"])
    with (
        inspector_for(topology, config) as (rebuilder, log),
        held_lease(log, application, "state rebuild", lease_ttl_ms),
    ):
        yield rebuilder()


@contextmanager
def inspector_for(topology: Topology, config: StreamsConfig) -> Iterator[tuple[Callable[[], Rebuilder], TopicLog]]:
    """Yield what makes a rebuilder of an application's state as it is then, and the log; the application may run.

    The segments of an application that runs are merged meanwhile: only `Rebuilder.look` and `Rebuilder.storage` are for
    it, and a rebuilder is of one moment.

    Raises:
        CheckpointMismatchError: The whole checkpoint is missing, or it is of another topology.
        StateError: The application runs in stream threads, which have no segments.
    """
    with open_app_log(config) as log:
        config = in_own_mode(config, log)
        if mode_of(log, config) == CONTINUOUS:
            application = str(config["application.id"])
            raise StateError(
                f"{application!r} runs in stream threads, which keep no segments: their state is in its changelogs, "
                "and each start restores what is missing from there",
                hint="There is nothing to verify or to rebuild. Segments are of processing.mode=micro_batch.",
                application=application,
            )
        plan = plan_for(topology, config, log)
        app = PlannedApp(topology, config, plan, log)
        checkpoint = app.checkpoint
        stored = read_stored_plan(checkpoint)
        if stored is None:
            raise CheckpointMismatchError(
                f"there is no checkpoint of {plan.application_id!r} at {checkpoint}",
                hint="Set state.dir or penstock.checkpoint.location to where it ran. Only its segments can be rebuilt, "
                "not what Spark and Penstock have noted beside them.",
                checkpoint=checkpoint,
            )
        require_compatible(stored, app.document, checkpoint, config["penstock.state.drop"])
        require_unmoved(stored, plan, checkpoint)
        yield lambda: Rebuilder(app, committed_by_spark(checkpoint), dropped=stored.dropped), log


def check_put_back(app: PlannedApp, before: StoredPlan) -> None:
    """Check that the segments of stores that are put back are still there; nothing may have read them since.

    Args:
        app: The application about to start.
        before: The plan that the checkpoint was written with.

    Raises:
        MissingSegmentError: Segments of a task are lost.
    """
    back = app.topology.stores.keys() & before.dropped.keys()
    if not back:
        return
    rebuilder = Rebuilder(app, LastBatch(-1, {}))
    for sub in app.plan.subtopologies:
        stores = sorted(back.intersection(sub.stores))
        for partition in range(sub.tasks) if stores else ():
            gap = rebuilder.look(sub, partition).gap
            if gap is not None:
                raise MissingSegmentError(
                    f"{', '.join(stores)} cannot be put back with the contents that it had when it was removed: {gap}",
                    hint="Bring the files back from a backup, or run `penstock state rebuild` with this topology: it "
                    "restores the store from its changelog. A store of another name begins empty.",
                    task=f"{sub.id}_{partition}",
                )
