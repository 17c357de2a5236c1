"""State that only segments hold: found, and written into changelogs, before the log alone is the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from penstock.engines.application.internal_topics import changelog_writer, complete_changelogs, write_complete
from penstock.engines.batches.takeovers import note_changelog_ends
from penstock.log.topic_settings import setting
from penstock.state.changelog import changelog_format
from penstock.state.changelog.base import TaskNumbers
from penstock.state.segments.segment import NO_BATCH, changes_batch
from penstock.state.task_place import StateOwner, StatePlace
from penstock.state.task_store import TaskStore
from penstock.topology.plan.changelogs import numbers_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.application.planned_app import PlannedApp
    from penstock.log.lease import Lease
    from penstock.state.maps import TaskOverlay
    from penstock.topology.plan.changelogs import Changelog
    from penstock.topology.plan.plan import PlannedSubTopology

__all__ = ["SegmentState"]

_PIECE_ROWS = 50_000


class SegmentState:
    """The committed state of an application in micro-batches, as its segments hold it.

    Args:
        app: The application; the lease is held, and no batch is under way.
        batch: The last committed batch.
    """

    def __init__(self, app: PlannedApp, batch: int) -> None:
        self._app = app
        self._batch = batch

    def incomplete(self, lost: frozenset[str]) -> list[Changelog]:
        """List the changelogs that do not hold the whole contents of their stores.

        Args:
            lost: Those that were deleted or made again by others.
        """
        there = {topic.name for topic in self._app.log.topics()}
        complete = (complete_changelogs(self._app.checkpoint) & there) - lost
        return [each for each in self._app.changelogs if each.topic not in complete]

    def unwritable(self, changelogs: Sequence[Changelog]) -> list[str]:
        """List the stores among them whose changelog cannot be made from their rows."""
        specs = self._app.topology.stores
        return [each.store for each in changelogs if each.store and specs[each.store].kind == "versioned"]

    def unlogged(self) -> list[str]:
        """List the stores with rows that no topic of the log holds."""
        specs, names = self._app.topology.stores, []
        logged = {each.store for each in self._app.changelogs}
        for sub in self._app.plan.subtopologies:
            stores = [name for name in sub.stores if name not in logged]
            at_risk = [name for name in stores if not self._is_in_source(specs[name].changelog_topic)]
            for partition in range(sub.tasks) if at_risk else ():
                with self._state(sub, partition) as state:
                    names += [name for name in at_risk if name not in names and len(state.map(name))]
        return names

    def _is_in_source(self, topic: str | None) -> bool:
        """Return whether a source topic that serves as changelog still has all that it ever had."""
        log = self._app.log
        if topic is None or topic not in {each.name for each in log.topics()}:  # a repartition topic is not there yet
            return False
        if "compact" in setting(log.topic(topic).config, "cleanup.policy"):
            return True
        return not any(log.beginning_offsets([topic]).values())

    def write(self, changelogs: Sequence[Changelog], lease: Lease) -> int:
        """Make changelogs anew from the segments; return the number of records. Repeat it if it was interrupted.

        Raises:
            FencedError: Another instance has the lease; nothing is written after that.
        """
        log, checkpoint = self._app.log, self._app.checkpoint
        topics = {each.topic for each in changelogs}
        with changelog_writer(log, lease) as write:
            write_complete(checkpoint, complete_changelogs(checkpoint) - topics)
            note_changelog_ends(checkpoint, log, [e.topic for e in self._app.changelogs if e.topic not in topics])
            there = {topic.name for topic in log.topics()}
            for each in changelogs:
                if each.topic in there:
                    log.delete_topic(each.topic)
                log.create_topic(each.topic, each.partitions, each.config)
            by_store = {each.store: each.topic for each in changelogs}
            count = 0
            for sub in self._app.plan.subtopologies:
                names = [name for name in sub.stores if name in by_store]
                if names or ("" in by_store and sub.keeps_state):
                    count += sum(self._write_task(sub, partition, by_store, write) for partition in range(sub.tasks))
        write_complete(checkpoint, complete_changelogs(checkpoint) | topics)
        note_changelog_ends(checkpoint, log, [each.topic for each in self._app.changelogs])
        return count

    def _write_task(
        self,
        sub: PlannedSubTopology,
        partition: int,
        topics: dict[str, str],
        write: Callable[[str, int, pa.RecordBatch], None],
    ) -> int:
        count = 0
        with self._state(sub, partition) as state:
            for store in (name for name in sub.stores if name in topics):
                form = changelog_format(self._app.topology.stores[store])
                rows = state.map(store).scan()
                while piece := list(islice(rows, _PIECE_ROWS)):
                    keys, values = zip(*piece, strict=True)
                    records = form.records(changes_batch(keys, values), state.meta)
                    write(topics[store], partition, records)
                    count += records.num_rows
            if state.meta:
                numbers = TaskNumbers(NO_BATCH, "", dict(state.meta))
                write(numbers_topic(self._app.application), partition, numbers.record(f"{sub.id}_{partition}"))
        return count

    @contextmanager
    def _state(self, sub: PlannedSubTopology, partition: int) -> Iterator[TaskOverlay]:
        app = self._app
        specs = [app.topology.stores[name] for name in sub.stores]
        state_place = StatePlace(app.checkpoint, app.places.replicas)
        with TaskStore(state_place, StateOwner(app.application), f"{sub.id}_{partition}", specs) as store:
            yield store.read_committed((self._batch + 1) * len(sub.levels) - 1)
