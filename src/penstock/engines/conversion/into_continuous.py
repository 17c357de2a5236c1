"""From micro-batches to continuous mode: what only the checkpoint's segments hold is brought into the log.

State is in the changelogs already, as far as they are complete; the others are written from the segments. The positions
become offsets of the group, the ids of topics and the plan part of the note in the log. That note is the switch: before
it the application is in micro-batches, whatever was written, and every step may be repeated; after it nothing in the
checkpoint counts, and it is removed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock.engines.application.application_mode import CONTINUOUS, MICRO_BATCH, checkpoint_mode, set_mode
from penstock.engines.application.identities import check_log_identity
from penstock.engines.application.internal_topic_creation import (
    changelog_writer,
    complete_changelogs,
    create_internal_topics,
    write_complete,
)
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.application.stored_plans import read_stored_plan
from penstock.engines.conversion.report import refusal, require_unchanged
from penstock.engines.micro_batches.planned_batch import committed_by_spark
from penstock.engines.micro_batches.recovery.lost_checkpoint import is_takeover_unfinished
from penstock.engines.micro_batches.takeovers import (
    ResetElsewhereError,
    TakenOverError,
    check_changelog_ends,
    check_group,
    note_changelog_ends,
)
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.offsets.start_positions import noted_resets, resets_since, take_up_group_resets
from penstock.engines.spark.spark_log import QUERY, planned_batches
from penstock.engines.threads.hosting.epoch_start import require_continuous
from penstock.engines.threads.hosting.log_notes import LogNotes, write_notes
from penstock.errors import CheckpointMismatchError
from penstock.log.groups.offset_regressions import MARK, is_of_batches, set_by_others
from penstock.log.topic_settings import setting
from penstock.state.changelog import changelog_format
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.checkpoint import read_document, read_plan, remove_checkpoint
from penstock.state.lmdb_replicas.folders import own_replicas, remove_replica
from penstock.state.maps import NO_BATCH
from penstock.state.segments.segment import changes_batch
from penstock.state.task_place import StateOwner, StatePlace
from penstock.state.task_store import TaskStore
from penstock.topology.plan.internal_topics import numbers_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog, TopicPartition
    from penstock.log.thread_clients import ThreadClients
    from penstock.state.maps import TaskOverlay
    from penstock.topology.plan.internal_topics import Changelog
    from penstock.topology.plan.plan import PlannedSubTopology
    from penstock.topology.topology import Topology

__all__ = ["IntoContinuous", "SegmentState", "forget_batch_checkpoint", "settle_repartition_topics"]

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


class IntoContinuous:
    """The conversion of an application in micro-batches that does not run.

    Args:
        topology: The topology, the same as before.
        config: Its settings, for continuous mode.
        log: Its log; the lease is held.

    Raises:
        CheckpointMismatchError: The checkpoint is not there, or of another topology.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, log: TopicLog) -> None:
        application, checkpoint = config["application.id"], Locations.of(config, log).checkpoint
        stored = read_stored_plan(checkpoint)
        if stored is None:
            raise refusal(
                application,
                CONTINUOUS,
                f"it has run in micro-batches, and its checkpoint {checkpoint} does not exist",
                "Set state.dir or penstock.checkpoint.location to where it ran. If it is lost: penstock state rebuild "
                "--without-checkpoint first.",
            )
        require_continuous(topology, config)
        self._stored = stored
        self._log = log
        self._app = PlannedApp(topology, config, plan_for(topology, config, log, stored), log)
        require_unchanged(self._app, stored, MICRO_BATCH, CONTINUOUS)
        last = committed_by_spark(checkpoint)
        self._batch = last.batch
        self._state = SegmentState(self._app, last.batch)

    def unfinished(self) -> str | None:
        """Return what micro-batches have to finish before; None: nothing."""
        checkpoint = self._app.checkpoint
        if is_takeover_unfinished(checkpoint):
            return "the work of another program is half taken up"
        planned = max(planned_batches(f"{checkpoint}/{QUERY}"), default=-1)
        done = read_document(checkpoint, f"spark/commits/{self._batch}") or ""
        if planned > self._batch or (self._batch >= 0 and not done.strip("\0")):
            return f"batch {planned} is under way"
        try:
            check_changelog_ends(self._app, self._stored.homes())
        except (TakenOverError, ResetElsewhereError) as error:
            return error.message
        return None

    def found(self) -> list[str]:
        """Check everything, and describe it.

        Raises:
            CheckpointMismatchError: Something would be lost.
        """
        app = self._app
        check_log_identity(app.checkpoint, self._log, app.application, loss_fails=True)
        check_group(app.checkpoint, self._log, app.application)
        end = self._positions(self._set_by_others())
        findings = [f"checkpoint {app.checkpoint}, {self._batch + 1} micro-batches"]
        findings += [f"{tp.topic}-{tp.partition} is read up to offset {at}" for tp, at in sorted(end.ends.items())]
        self._check_waiting()
        partial = self._partial()
        unwritable = self._state.unwritable(partial)
        if unwritable:
            raise refusal(
                app.application,
                CONTINUOUS,
                f"the changelogs of the versioned stores {', '.join(unwritable)} do not hold all of their puts, and "
                "rows do not show them",
                "Continue in micro-batches, or give the application another application.id.",
            )
        findings += [f"{each.topic} does not hold all of its store" for each in partial]
        unlogged = self._state.unlogged()
        if unlogged and app.loss_fails:
            raise refusal(
                app.application,
                CONTINUOUS,
                f"no topic holds all of {', '.join(unlogged)}: logging is off, or records of the source topic are gone",
                "Turn logging on for it and run once more in micro-batches: the conversion then writes its changelog. "
                "To continue with what the log holds: penstock.data.loss=continue.",
            )
        findings += [f"{name} is in no topic, and starts with what the log holds" for name in unlogged]
        return findings

    def steps(self) -> list[str]:
        """Describe the steps of `run`."""
        partial = [each.topic for each in self._partial()]
        return [
            *([f"write {', '.join(partial)} from the segments"] if partial else []),
            "create missing changelogs and repartition topics",
            "commit the positions to the group",
            "note the mode in the log",
            f"remove the checkpoint {self._app.checkpoint} and its replicas",
        ]

    def run(self, lease: Lease, reach: Callable[[str], None]) -> None:
        """Convert; after an interruption at any point the same call finishes it.

        Args:
            lease: The lease.
            reach: Called at each step with its name, where a fault test may end the process.
        """
        app, log = self._app, self._log
        clients = cast("ThreadClients", log)
        reach("begun")
        clients.fence_threads(app.application, self._writers(), lease.epoch)
        reach("fenced")
        partial = self._partial()
        if partial:
            self._state.write(partial, lease)
        reach("changelogs")
        create_internal_topics(app, has_run=True)
        settle_repartition_topics(app, lease)
        reach("topics")
        resets = take_up_group_resets(app.checkpoint, log, lease, app.plan.external_topics)
        moved = resets_since(resets, self._end().resets)[1]  # the group has them, with their mark
        end = self._positions(moved)
        offsets = {tp: at for tp, at in end.ends.items() if tp not in moved}
        if offsets:
            log.commit_offsets(app.application, offsets, f"{MARK} batch {self._batch}", lease)
        reach("positions")
        changelogs = log.topic_ids([each.topic for each in app.changelogs])
        log.renew_lease(lease)
        write_notes(log, lease, LogNotes(self._stored, {**end.ids, **changelogs}, (), self._batch))
        reach("switched")
        forget_batch_checkpoint(app.config, log, reach)

    def _check_waiting(self) -> None:
        """Refuse if another program has left records in repartition topics that nothing has read."""
        app, log = self._app, self._log
        own = app.plan.repartition_topics
        for tp, at in log.committed_offsets(app.application).items():
            if tp.topic not in own:
                continue
            end, first = log.end_offset(tp.topic, tp.partition), log.beginning_offset(tp.topic, tp.partition)
            if any(rows.num_rows for rows in log.iterate(tp.topic, tp.partition, max(at, first), end)):
                raise refusal(
                    app.application,
                    CONTINUOUS,
                    f"records of {tp.topic}-{tp.partition} from offset {max(at, first)} on wait to be read",
                    "Another program has left them: start that program again, let it read them, and stop it.",
                )

    def _partial(self) -> list[Changelog]:
        return self._state.incomplete(check_changelog_ends(self._app, self._stored.homes()))

    def _positions(self, moved: Mapping[TopicPartition, int]) -> SourceOffset:
        """Return the positions after the last batch, and after ``moved``, those that others have set since."""
        app = self._app
        end, topics = self._end(), app.plan.external_topics
        return SourceOffset(
            {tp: at for tp, at in {**end.ends, **moved}.items() if tp.topic in topics},
            ids={topic: each for topic, each in end.ids.items() if topic in topics},
        )

    def _end(self) -> SourceOffset:
        """Return the end of the last batch as Spark has noted it."""
        text = read_document(self._app.checkpoint, f"spark/offsets/{self._batch}") or ""
        lines = [line for line in text.splitlines() if line.startswith('{"topics"')]
        return SourceOffset.of(json.loads(lines[0])) if lines else SourceOffset()

    def _set_by_others(self) -> dict[TopicPartition, int]:
        """Return the group's offsets that others have set, and that no batch has begun at yet, without a change."""
        app, topics = self._app, self._app.plan.external_topics
        moved = resets_since(noted_resets(app.checkpoint), self._end().resets)[1]
        group = self._log.group_offsets(app.application)
        return moved | set_by_others([tp for tp in group if tp.topic in topics], group, is_of_batches)

    def _writers(self) -> Iterator[str]:
        """Iterate over the names of the tasks' transactions, which runs of micro-batches may have open."""
        for sub in self._app.plan.subtopologies:
            for partition in range(sub.tasks):
                for phase in range(len(sub.levels)):
                    task = f"{sub.id}_{partition}"
                    yield task if phase == 0 else f"{task}/{phase}"


def settle_repartition_topics(app: PlannedApp, lease: Lease) -> None:
    """Set the group behind all records of the repartition topics, which are processed, and delete them."""
    there = {topic.name for topic in app.log.topics()}
    ends = app.log.end_offsets([topic for topic in app.plan.repartition_topics if topic in there])
    for tp, end in ends.items():
        if end > app.log.beginning_offset(tp.topic, tp.partition):
            app.log.delete_records(tp.topic, tp.partition, end)
    if ends:
        app.log.commit_offsets(app.application, ends, "", lease)


def forget_batch_checkpoint(
    config: StreamsConfig, log: TopicLog, reach: Callable[[str], None] = lambda _: None
) -> None:
    """Remove the checkpoint and the replicas of micro-batches, once the log says that the mode is another one."""
    places, application = Locations.of(config, log), str(config["application.id"])
    if checkpoint_mode(places.checkpoint) == CONTINUOUS:
        return
    plan = read_plan(places.checkpoint)
    if plan is not None:
        if plan["plan"]["application"] != application:
            raise CheckpointMismatchError(
                f"the checkpoint {places.checkpoint} is of application {plan['plan']['application']!r}",
                hint="Set state.dir or penstock.checkpoint.location to a place of this application.",
                checkpoint=places.checkpoint,
            )
        for root in (Path(places.replicas), places.queries):
            for folder in list(own_replicas(root, application, places.checkpoint, plan["fingerprints"])):
                remove_replica(folder)
        reach("replicas")
        remove_checkpoint(places.checkpoint, keep=("dataframes",))  # whose queries go on beside the threads
        reach("checkpoint")
    if places.journal:
        shutil.rmtree(places.journal, ignore_errors=True)
    places.prepare()
    set_mode(places.checkpoint, CONTINUOUS)
    reach("cleaned")
