"""Conversion of an application from one mode into the other: by a command, or by a start in the other mode.

Half-finished work is first finished in the mode that has begun it, without reading anything new. Then, under the lease,
everything is checked and written, and one record in the log is the switch. A conversion that ends anywhere is repeated
by the same command or by the next start; until the switch, a start in the earlier mode goes on there.

From continuous mode to micro-batches: a checkpoint is made from the log, whose state and positions are the truth.

The threads of before are fenced, and repartition topics must have been read to their ends, as micro-batches do not read
them. Then each task gets a snapshot from its changelogs, and Spark's notes say that the last batch has ended at the
group's offsets. The note in the log is the switch: before it the application is in continuous mode, and what was
written into the checkpoint is made again by the next attempt.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.base.log_lines import own_logger
from penstock.config.refused import OF_STATE, refuse_in_mode
from penstock.engines.application.application_mode import (
    CONTINUOUS,
    MICRO_BATCH,
    checkpoint_mode,
    mode_of,
    set_mode,
    with_mode,
)
from penstock.engines.application.application_note import write_application
from penstock.engines.application.identities import recreated_error, recreated_topics
from penstock.engines.application.internal_topic_creation import complete_changelogs
from penstock.engines.application.locations import Locations
from penstock.engines.application.stored_plans import read_stored_plan
from penstock.engines.conversion.into_continuous import (
    IntoContinuous,
    forget_batch_checkpoint,
    settle_repartition_topics,
)
from penstock.engines.conversion.report import ConversionReport, refusal, require_unchanged
from penstock.engines.micro_batches.planned_batch import LastBatch
from penstock.engines.micro_batches.recovery.lost_checkpoint import LostCheckpoint
from penstock.engines.micro_batches.recovery.rebuild import Rebuilder
from penstock.engines.micro_batches.takeovers import marked_batches
from penstock.engines.spark import fault_injection
from penstock.engines.spark.spark_log import QUERY, forget_batches, planned_batches
from penstock.engines.threads.hosting.epoch_positions import has_reached
from penstock.engines.threads.hosting.epoch_start import check_own_changelogs
from penstock.engines.threads.hosting.log_notes import read_notes
from penstock.engines.threads.replicas.replica_folders import continuous_replicas
from penstock.log.groups.offset_regressions import MARK
from penstock.log.leases import held_lease
from penstock.state.lmdb_replicas.folders import own_replicas, remove_replica
from penstock.topology.plan.internal_topics import changelog_topic, numbers_topic
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.errors import CheckpointMismatchError
    from penstock.log.base import Lease, TopicLog, TopicPartition
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.topology import Topology

__all__ = ["convert", "convert_at_start"]


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
    """Convert an application that is about to start in another mode than it has run in; see `convert`."""
    mode = str(config["processing.mode"])
    before = mode_of(log, config)
    noted = checkpoint_mode(Locations.of(config, log).checkpoint)
    if before is None or (before == mode and noted in (None, mode)):
        return
    report = convert(topology, config, log, mode, finish)
    if report.is_done:
        _log.warning("%s has run with processing.mode=%s and is converted to %s", report.application, before, mode)


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
