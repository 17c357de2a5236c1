"""Stores that come to lie in another sub-topology's segments: copied there from the committed state, before a start.

Two sub-topologies may become one, or one may part. The sub-topology that gets stores of others has a new id
(`penstock.topology.plan.evolution`), so its tasks have no segments, and each begins with a snapshot. Partitions are the
same, so a task takes the stores of the tasks with its number. The old segments stay as they are: if the copying is cut
off, the next start does it again, under other ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.application.internal_topic_creation import changelog_writer
from penstock.engines.application.stored_plans import reserve_ids
from penstock.engines.micro_batches.planned_batch import LastBatch, committed_by_spark
from penstock.engines.micro_batches.recovery.rebuild import Rebuilder
from penstock.engines.spark.spark_log import QUERY, planned_batches
from penstock.errors import CheckpointMismatchError, MissingSegmentError
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.checkpoint import read_document
from penstock.state.maps import NO_BATCH
from penstock.state.segments.segment import SegmentHead
from penstock.state.segments.storage import open_storage
from penstock.state.snapshots import pieces_of, write_snapshot
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.plan.internal_topics import numbers_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.application.planning import PlannedApp
    from penstock.log.base import Lease
    from penstock.state.maps import Overlay
    from penstock.topology.plan.plan import PlannedSubTopology
    from penstock.topology.plan.plan_json import Home, StoredPlan

__all__ = ["move_stores"]

_log = own_logger(__name__)


def move_stores(app: PlannedApp, before: StoredPlan, lease: Lease) -> None:
    """Copy the stores whose sub-topology is another one now; call it before the new plan is noted.

    Args:
        app: The application about to start; the changelog topics exist.
        before: The plan that the checkpoint was written with; the new one is compatible with it.
        lease: The lease that the start holds.

    Raises:
        CheckpointMismatchError: A batch was under way.
        FencedError: A newer instance has the lease; nothing is written to the log after that.
        MissingSegmentError: Segments that held the stores are lost.
    """
    moving = before.moving({sub.id: sub.stores for sub in app.plan.subtopologies})
    if moving:
        with changelog_writer(app.log, lease) as write:
            _Move(app, before, write).run(moving)


class _Move:
    def __init__(self, app: PlannedApp, before: StoredPlan, write: Callable[[str, int, pa.RecordBatch], None]) -> None:
        self._app = app
        self._before = before
        self._write = write
        self._batch = committed_by_spark(app.checkpoint).batch
        self._rebuilder = Rebuilder(app, LastBatch(self._batch, {}))

    def run(self, moving: Mapping[int, Mapping[str, Home]]) -> None:
        self._check()
        started = time.perf_counter()
        reserve_ids(self._app.checkpoint, max(moving))
        rows = 0
        for sub in self._app.plan.subtopologies:
            for partition in range(sub.tasks) if sub.id in moving else ():
                rows += self._copy(sub, partition, moving[sub.id])
        seconds = time.perf_counter() - started
        names = ", ".join(sorted(name for stores in moving.values() for name in stores))
        _log.warning("%s: %d rows were copied to where they lie by now, in %.1f s", names, rows, seconds)

    def _check(self) -> None:
        """Raise CheckpointMismatchError if a batch is under way."""
        checkpoint, application = self._app.checkpoint, self._app.application
        planned = planned_batches(f"{checkpoint}/{QUERY}")
        done = read_document(checkpoint, f"spark/commits/{self._batch}") or ""
        # A power cut may have left the note empty: Spark runs that batch again.
        is_noted = self._batch < 0 or done.strip("\0")
        if max(planned, default=-1) > self._batch or not is_noted:
            raise CheckpointMismatchError(
                f"stores of {application!r} move to another sub-topology, but batch {max(planned)} was under way when "
                "it ended, and some tasks may have written it",
                hint="Start the version that ran last once more, which finishes the batch, and stop it: Ctrl-C, "
                "SIGTERM or close() end between two batches. Then start this one.",
                checkpoint=checkpoint,
                batch=max(planned),
            )

    def _copy(self, sub: PlannedSubTopology, partition: int, moved: Mapping[str, Home]) -> int:
        """Write the first snapshot of a task; return its number of rows."""
        task = f"{sub.id}_{partition}"
        storage = open_storage(self._app.checkpoint, task)
        homes = {home.subtopology: home for home in moved.values()}
        meta: dict[str, int] = {}
        with ExitStack() as stack:
            maps: dict[str, Overlay] = {}
            for home in homes.values():
                state = stack.enter_context(self._opened(home, partition)).read_committed(self._last(home.runs))
                for name, number in state.meta.items():  # two tasks share one name alone: their stream time
                    meta[name] = max(number, meta.get(name, number))
                maps |= {name: state.map(name) for name, at in moved.items() if at.subtopology == home.subtopology}
            count = sum(len(rows) for rows in maps.values())
            if count or meta:
                at = self._last(len(sub.levels))
                head = SegmentHead("snapshot", self._app.application, self._app.fingerprint, task, at, at, "", meta)
                write_snapshot(
                    storage, head, {name: pieces_of(rows.scan()) for name, rows in maps.items() if len(rows)}
                )
                self._note_numbers(sub, partition, TaskNumbers(at, "", meta))
        return count

    def _opened(self, home: Home, partition: int) -> TaskStore:
        """Open the earlier state of a task; raise MissingSegmentError if some of it is lost."""
        task = f"{home.subtopology}_{partition}"
        gap = self._gap(home, partition)
        if gap is not None:
            raise MissingSegmentError(
                f"the stores of task {task} cannot be copied to their new sub-topology: {gap}",
                hint="Bring the files back from a backup, or run `penstock state rebuild` with the version that ran "
                "last.",
                task=task,
            )
        specs = [
            self._app.topology.stores[name]
            for name, each in self._before.homes().items()
            if each.subtopology == home.subtopology and name in self._app.topology.stores
        ]
        state_place = StatePlace(self._app.checkpoint, self._app.places.replicas)
        return TaskStore(state_place, StateOwner(self._app.application), task, specs)

    def _gap(self, home: Home, partition: int) -> str | None:
        """Describe the gap in a task's segments, by their chain, its changelogs and the ledger; None without one."""
        number, task = home.subtopology, f"{home.subtopology}_{partition}"
        facts = self._rebuilder.look(replace(self._app.plan.subtopologies[0], id=number, stores=()), partition)
        was = self._before.plan["subtopologies"].get(str(number))
        ledger = self._app.log.ledger(self._app.application)
        if was is None or not was["stores"]:  # all were taken out, and it may have written batches without segments
            ledger = {}
        written = [ledger[name] for name in _phases(task, home.runs) if name in ledger]
        needed = max((each for each in written if each > self._before.unsegmented.get(number, NO_BATCH)), default=-1)
        if facts.gap is None and facts.chain.head < needed:
            return f"segment {needed} of task {task} is gone"
        return facts.gap

    def _last(self, runs: int) -> int:
        """Return the number of the last committed batch's segment, of a task with this number of runs in each batch."""
        return (self._batch + 1) * runs - 1

    def _note_numbers(self, sub: PlannedSubTopology, partition: int, numbers: TaskNumbers) -> None:
        """Note in the log, as each batch does, which segment the changelogs stand for."""
        topic = numbers_topic(self._app.application)
        if topic in {each.name for each in self._app.log.topics()}:
            self._write(topic, partition, numbers.record(f"{sub.id}_{partition}"))


def _phases(task: str, runs: int) -> Iterator[str]:
    yield task
    yield from (f"{task}/{phase}" for phase in range(1, runs))
