"""Conversion of an application from one mode into the other: by a command, or by a start in the other mode.

Half-finished work is first finished in the mode that has begun it, without reading anything new. Then, under the lease,
everything is checked and written, and one record in the log is the switch. A conversion that ends anywhere is repeated
by the same command or by the next start; until the switch, a start in the earlier mode goes on there.

From micro-batches to continuous mode: what only the checkpoint's segments hold is brought into the log. State is in the
changelogs already, as far as they are complete; the others are written from the segments. The positions become offsets
of the group, the ids of topics and the plan part of the note in the log. That note is the switch: before it the
application is in micro-batches, whatever was written, and every step may be repeated; after it nothing in the
checkpoint counts, and it is removed.

From continuous mode to micro-batches: a checkpoint is made from the log, whose state and positions are the truth. The
threads of before are fenced, and repartition topics must have been read to their ends, as micro-batches do not read
them. Then each task gets a snapshot from its changelogs, and Spark's notes say that the last batch has ended at the
group's offsets. The note in the log is the switch: before it the application is in continuous mode, and what was
written into the checkpoint is made again by the next attempt.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.base.log_lines import own_logger
from penstock.config.definitions import OF_STATE, refuse_in_mode
from penstock.engines.application.application_mode import (
    CONTINUOUS,
    MICRO_BATCH,
    checkpoint_mode,
    mode_of,
    set_mode,
    with_mode,
)
from penstock.engines.application.application_note import write_application
from penstock.engines.application.identities import check_log_identity, recreated_error, recreated_topics
from penstock.engines.application.internal_topic_creation import (
    changelog_writer,
    complete_changelogs,
    create_internal_topics,
    write_complete,
)
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.application.stored_plans import read_stored_plan
from penstock.engines.micro_batches.planned_batch import LastBatch, committed_by_spark
from penstock.engines.micro_batches.recovery.lost_checkpoint import LostCheckpoint, is_takeover_unfinished
from penstock.engines.micro_batches.recovery.rebuild import Rebuilder
from penstock.engines.micro_batches.takeovers import (
    ResetElsewhereError,
    TakenOverError,
    check_changelog_ends,
    check_group,
    marked_batches,
    note_changelog_ends,
)
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.offsets.start_positions import noted_resets, resets_since, take_up_group_resets
from penstock.engines.spark import fault_injection
from penstock.engines.spark.spark_log import QUERY, forget_batches, planned_batches
from penstock.engines.threads.hosting.epoch_positions import has_reached
from penstock.engines.threads.hosting.epoch_start import check_own_changelogs, require_continuous
from penstock.engines.threads.hosting.plan_notes import LogNotes, read_notes, write_notes
from penstock.engines.threads.replicas.replica_folders import continuous_replicas
from penstock.errors import CheckpointMismatchError
from penstock.log.groups.offset_regressions import MARK, is_of_batches, set_by_others
from penstock.log.leases import held_lease
from penstock.log.topic_settings import setting
from penstock.state.changelog import changelog_format
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.checkpoint import read_document, read_plan, remove_checkpoint
from penstock.state.lmdb_replicas.folders import own_replicas, remove_replica
from penstock.state.maps import NO_BATCH
from penstock.state.segments.segment import changes_batch
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.plan.evolution import compare
from penstock.topology.plan.internal_topics import changelog_topic, numbers_topic
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog, TopicPartition
    from penstock.log.thread_clients import ThreadClients
    from penstock.state.maps import TaskOverlay
    from penstock.topology.plan.internal_topics import Changelog
    from penstock.topology.plan.plan import PlannedSubTopology
    from penstock.topology.topology import Topology

__all__ = [
    "ConversionReport",
    "IntoContinuous",
    "SegmentState",
    "convert",
    "convert_at_start",
    "forget_batch_checkpoint",
    "refusal",
    "require_unchanged",
    "settle_repartition_topics",
]

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


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The result of a conversion, or of looking at one.

    Attributes:
        application: The ``application.id``.
        before: The mode that the application was in; None if it has not run.
        after: The mode that it is to be in.
        found: The facts that were found.
        steps: The steps that were taken, or that would be.
        is_done: Whether they were taken.
    """

    application: str
    before: str | None
    after: str
    found: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    is_done: bool = False


def refusal(application: str, after: str, why: str, hint: str) -> CheckpointMismatchError:
    """Make the error for an application that cannot be converted."""
    return CheckpointMismatchError(
        f"application {application!r} cannot be converted to processing.mode={after}: {why}. Nothing was changed",
        hint=hint,
        application=application,
    )


def require_unchanged(app: PlannedApp, stored: StoredPlan, before: str, after: str) -> None:
    """Raise CheckpointMismatchError if the topology has changed since the application ran in the earlier mode.

    Topics that have grown are not a change: their new partitions have neither state nor positions.
    """
    change = compare(stored, app.document)
    moving = stored.moving({sub.id: sub.stores for sub in app.plan.subtopologies})
    stores = set(stored.plan["stores"]) ^ set(app.document["stores"])
    reasons = [*change.reasons, *change.migrations]
    if stores and not reasons:
        reasons.append(f"other stores: {', '.join(sorted(stores))}")
    if moving and not reasons:
        reasons.append("stores have come into another sub-topology")
    if reasons:
        raise refusal(
            app.application,
            after,
            f"the topology has changed since it ran ({'; '.join(reasons)})",
            f"Run this version once with processing.mode={before}, then convert; or convert with the version that ran "
            "last.",
        )


class IntoBatches(LostCheckpoint):
    """The conversion of an application in continuous mode that does not run.

    Args:
        topology: The topology, the same as before.
        config: Its settings, for micro-batches.
        log: Its log; the lease is held.

    Raises:
        CheckpointMismatchError: The topology is another one.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, log: TopicLog) -> None:
        super().__init__(topology, config, log)
        notes = read_notes(log, config["application.id"])
        assert notes is not None  # noqa: S101 - the note in the log says that this is its mode
        self._notes = notes
        require_unchanged(self._app, notes.stored, CONTINUOUS, MICRO_BATCH)

    def unfinished(self) -> str | None:
        """Return what stream threads have to finish before; None: nothing."""
        if has_reached(self._app.log, self._app.plan, {}):
            return None
        return "records wait in repartition topics"

    def found(self) -> list[str]:
        """Check everything, and describe it.

        Raises:
            CheckpointMismatchError: Something would be lost.
        """
        self._check_topology()
        check_own_changelogs(self._app, self._notes)
        findings = [f"{len(self._notes.threads)} stream threads, and no checkpoint"]
        findings += [
            f"{tp.topic}-{tp.partition} is read up to offset {at}" for tp, at in sorted(self._positions().items())
        ]
        return findings + [f"{each.topic} holds the state" for each in self._app.changelogs]

    def steps(self) -> list[str]:
        """Describe the steps of `run`."""
        return [
            f"fence {', '.join(self._notes.threads) or 'no threads'}",
            f"make the checkpoint {self._app.checkpoint} from the changelogs and the group's offsets",
            "note the mode in the log",
            "remove the replicas of the threads, and what is left in repartition topics",
        ]

    def run(self, lease: Lease, reach: Callable[[str], None]) -> None:
        """Convert; after an interruption at any point the same call finishes it.

        Args:
            lease: The lease.
            reach: Called at each step with its name, where a fault test may end the process.
        """
        app, log, checkpoint = self._app, self._app.log, self._app.checkpoint
        reach("begun")
        cast("ThreadClients", log).fence_threads(app.application, self._notes.threads, lease.epoch)
        reach("fenced")
        self._check_topology()
        positions = self._positions()
        app.places.prepare()
        self._remove_batch_replicas()
        reach("prepared")
        last = LastBatch(self._next_batch(), positions, self._written()[0])
        rebuilder = Rebuilder(app, last, self._complete, self._dropped())
        for sub in app.plan.subtopologies:
            for number in range(sub.tasks) if app.plan.publishes(sub) else ():
                rebuilder.take_up(sub, number)
                reach("task")
        forget_batches(f"{checkpoint}/{QUERY}")
        reach("snapshots")
        self._note(last, rebuilder.lost)
        reach("noted")
        if positions:
            log.commit_offsets(app.application, positions, f"{MARK} batch {last.batch}", lease)
        reach("positions")
        log.renew_lease(lease)
        if numbers_topic(app.application) in {topic.name for topic in log.topics()}:
            stored = read_stored_plan(checkpoint) or self._notes.stored
            facts = {"complete": sorted(complete_changelogs(checkpoint)), **stored.facts()}
            write_application(log, lease, facts)
        reach("switched")
        settle_repartition_topics(app, lease)
        reach("emptied")
        forget_thread_replicas(app.config, log)
        reach("cleaned")

    def _positions(self) -> dict[TopicPartition, int]:
        """Return the group's offsets in topics from outside.

        Raises:
            OffsetOutOfRangeError: A topic was made again, and ``penstock.data.loss`` is "fail".
        """
        app = self._app
        topics = app.plan.external_topics
        recreated = recreated_topics(self._notes.topic_ids, app.log.topic_ids(topics))
        recreated &= frozenset(topics)
        if recreated and app.loss_fails:
            raise recreated_error(recreated, app.application)
        offsets = app.log.committed_offsets(app.application)
        return {tp: at for tp, at in offsets.items() if tp.topic in topics and tp.topic not in recreated}

    def _next_batch(self) -> int:
        """Return a batch number behind all that micro-batches of this application may have used."""
        app = self._app
        planned = planned_batches(f"{app.checkpoint}/{QUERY}")
        marked = [batch for batch in marked_batches(app.log, app.application).values() if batch is not None]
        return max([self._written()[1], self._notes.batch, *planned, *marked]) + 1

    def _remove_batch_replicas(self) -> None:
        app = self._app
        stored_plan = StoredPlan.of(self._known) if self._known is not None else self._notes.stored
        for root in (Path(app.places.replicas), app.places.queries):
            for folder in list(own_replicas(root, app.application, app.checkpoint, stored_plan.fingerprints)):
                remove_replica(folder)

    def _check_dataframes(self) -> None:
        """Do nothing: the progress of their queries is in the checkpoint location in both modes."""

    def _check_logged(self) -> None:
        if self._app.loss_fails:
            super()._check_logged()

    def _complete_topics(self, noted: Mapping[str, Any]) -> set[str]:
        """Return all changelogs: continuous mode keeps its state nowhere else."""
        dropped = {changelog_topic(self._app.application, name) for name in StoredPlan.of(noted).dropped}
        return {each.topic for each in self._app.changelogs} | dropped

    def _refusal(self, why: str) -> CheckpointMismatchError:
        return refusal(
            self._app.application,
            MICRO_BATCH,
            why,
            "Continue with processing.mode=continuous. Leave penstock.changelog.enabled out for the conversion; stores "
            "without logging are given up with penstock.data.loss=continue.",
        )


def forget_thread_replicas(config: StreamsConfig, log: TopicLog) -> None:
    """Remove this machine's replicas of stream threads, once the log says that the mode is another one."""
    places = Locations.of(config, log)
    for folder in list(continuous_replicas(Path(places.replicas), str(config["application.id"]), log.identity())):
        remove_replica(folder)
    if checkpoint_mode(places.checkpoint) == CONTINUOUS:
        set_mode(places.checkpoint, MICRO_BATCH)


Finish = Callable[[str], None]  # runs the application in a mode until nothing is half done
_log = own_logger(__name__)


def convert(
    topology: Topology, config: StreamsConfig, log: TopicLog, mode: str, finish: Finish, *, dry_run: bool = False
) -> ConversionReport:
    """Bring an application into a mode, with its state and positions; nothing is lost, nothing counted twice.

    Args:
        topology: The topology, the same as before.
        config: The application's settings.
        log: Its log.
        mode: ``continuous`` or ``micro_batch``.
        finish: Called with the earlier mode if that has to finish something: runs the application until it has.
        dry_run: Whether to look only.

    Raises:
        FencedError: The application runs.
        ConfigError: A setting gives the state a form that the mode has not; nothing was changed.
        CheckpointMismatchError: It cannot be converted; nothing was changed.
    """
    refuse_in_mode({"processing.mode": mode, **{name: config[name] for name in OF_STATE}})
    config = with_mode(config, mode)
    application, before = str(config["application.id"]), mode_of(log, config)
    if before in (None, mode):
        if before is not None and not dry_run:
            with _leased(log, application):
                _clean(config, log, mode)
        return ConversionReport(application, before, mode)
    with _leased(log, application):
        work = _work(topology, config, log, mode)
        waiting = work.unfinished()
        if dry_run:
            first = [] if waiting is None else [f"finish in processing.mode={before}: {waiting}"]
            findings = [waiting] if waiting is not None else work.found()
            return ConversionReport(application, before, mode, tuple(findings), (*first, *work.steps()))
    if waiting is not None:
        _log.info("%s: %s; it is finished with processing.mode=%s", application, waiting, before)
        finish(str(before))
    with _leased(log, application) as lease:
        if mode_of(log, config) != before:  # another process was faster
            return ConversionReport(application, before, mode, is_done=True)
        work = _work(topology, config, log, mode)
        again = work.unfinished()
        if again is not None:
            raise refusal(
                application, mode, again, f"Start it with processing.mode={before}, stop it, and convert it again."
            )
        findings, steps = work.found(), work.steps()
        work.run(lease, _reach)
    return ConversionReport(application, before, mode, tuple(findings), tuple(steps), is_done=True)


def convert_at_start(topology: Topology, config: StreamsConfig, log: TopicLog, finish: Finish) -> None:
    """Convert an application that is about to start in another mode, as `is_in_another_mode` says; see `convert`."""
    mode = str(config["processing.mode"])
    report = convert(topology, config, log, mode, finish)
    if report.is_done:
        _log.warning(
            "%s has run with processing.mode=%s and is converted to %s", report.application, report.before, mode
        )


def _work(topology: Topology, config: StreamsConfig, log: TopicLog, mode: str) -> IntoContinuous | IntoBatches:
    return (IntoContinuous if mode == CONTINUOUS else IntoBatches)(topology, config, log)


def _clean(config: StreamsConfig, log: TopicLog, mode: str) -> None:
    """Remove what a conversion has left that was cut off behind its switch."""
    if mode == CONTINUOUS:
        forget_batch_checkpoint(config, log, _reach)
    elif checkpoint_mode(Locations.of(config, log).checkpoint) == CONTINUOUS:
        forget_thread_replicas(config, log)


@contextmanager
def _leased(log: TopicLog, application: str) -> Iterator[Lease]:
    """Hold the lease, and renew it: the state may be large."""
    with held_lease(log, application, f"penstock app convert ({socket.gethostname()}:{os.getpid()})") as keeper:
        yield keeper.lease


def _reach(step: str) -> None:
    fault_injection.reach(f"convert-{step}", 0, MICRO_BATCH, os.getpid())
