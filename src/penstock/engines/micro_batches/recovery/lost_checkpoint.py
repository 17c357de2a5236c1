"""A checkpoint made anew from the log: after it was lost, after another program has gone on, after a reset.

The state comes from the changelogs, where reading goes on from the group's offsets, the numbers of the batches from the
ledger. The three agree when no batch was under way as the application ended. A batch under way is run again as it was
planned, which the log has noted: tasks that had written it find that it is done, the others do it. Refused is what
would lose or double anything: rows that a task with stores had for others, offsets that were moved, changelogs that do
not hold all of their stores.

A program of Kafka Streams commits the group's offsets and the changelogs in its transactions, so the two belong
together: state of before is thrown away, the stores are restored from the changelogs, reading goes on from the group's
offsets. Nothing is mixed. A takeover is refused if a changelog does not hold the whole contents of its store, or if
rows wait in that program's repartition topics, for here such rows never pass through topics.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.engines.application.application_mode import in_own_mode
from penstock.engines.application.application_note import read_application
from penstock.engines.application.identities import check_log_identity
from penstock.engines.application.internal_topic_creation import write_complete
from penstock.engines.application.locations import Locations, open_app_log
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.application.stored_plans import write_stored_plan
from penstock.engines.micro_batches.planned_batch import LastBatch, PlannedBatch
from penstock.engines.micro_batches.recovery.rebuild import Rebuilder, TaskReport, require_unmoved
from penstock.engines.micro_batches.takeovers import TakenOverError, marked_batches, note_changelog_ends
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.spark_log import QUERY, forget_batches, planned_batches
from penstock.errors import CheckpointMismatchError
from penstock.log.groups.offset_regressions import MARK
from penstock.log.leases import held_lease
from penstock.state.checkpoint import (
    delete_document,
    mark_removed,
    read_document,
    read_plan,
    remove_checkpoint,
    write_document,
)
from penstock.state.lmdb_replicas.folders import own_replicas, remove_replica
from penstock.topology.plan.evolution import require_compatible
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.topology import Topology

__all__ = ["LostCheckpoint", "is_takeover_unfinished", "lost_checkpoint_of", "start_over", "take_up"]

_TASK = re.compile(r"(\d+)_(\d+)(/\d+)?")


class LostCheckpoint:
    """The lost checkpoint of an application that does not run, to be recreated by `make`.

    Args:
        topology: The topology, the same as before.
        config: The application's settings.
        log: The application's log; the lease is held.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, log: TopicLog) -> None:
        self._known = read_application(log, config["application.id"])
        plan = plan_for(topology, config, log, None if self._known is None else StoredPlan.of(self._known))
        self._app = PlannedApp(topology, config, plan, log)
        self._complete: set[str] = set()

    def make(
        self,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> list[TaskReport]:
        """Check that nothing would be lost or doubled, then recreate the checkpoint; repeat it if it was interrupted.

        Args:
            dry_run: Whether to check only.
            accept_loss: Whether to go on if rows that a half-finished batch had handed to other tasks are lost.
            progress: Called with a topic partition, the number of offsets read and their total.

        Raises:
            CheckpointMismatchError: The checkpoint exists, or the log does not hold enough.
            StateError: The state of a task cannot be recreated; nothing was written.
        """
        application, checkpoint = self._app.application, self._app.checkpoint
        if read_plan(checkpoint) is not None:
            raise CheckpointMismatchError(
                f"the checkpoint of {application!r} is there: {checkpoint}",
                hint="Leave out --without-checkpoint: then only the segments that are missing are rebuilt.",
                checkpoint=checkpoint,
            )
        self._check_topology()
        last = self._last_batch()
        rebuilder = Rebuilder(self._app, last, self._complete, self._dropped())
        plan = self._app.plan

        def renewed(*, dry_run: bool) -> list[TaskReport]:
            return [
                rebuilder.renew(sub, number, dry_run=dry_run, accept_loss=accept_loss, progress=progress)
                for sub in plan.subtopologies
                if plan.publishes(sub)
                for number in range(sub.tasks)
            ]

        reports = renewed(dry_run=True)
        if not dry_run:
            self._app.places.prepare()
            reports = renewed(dry_run=False)
            self._note(last, rebuilder.lost)
        return reports

    def _dropped(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the stores that were taken out, as the log has noted them."""
        return {} if self._known is None else StoredPlan.of(self._known).dropped

    def _check_topology(self) -> None:
        """Refuse a topology that cannot go on from the log alone; read which changelogs are complete."""
        app = self._app
        self._check_dataframes()
        is_micro_batch = app.config["processing.mode"] == "micro_batch"
        self._refuse_if(not is_micro_batch, "it runs in continuous mode, which needs no checkpoint: start it")
        keeps_state = any(sub.keeps_state for sub in app.plan.subtopologies)
        self._refuse_if(keeps_state and not app.changelogs, "its state is in no changelog")
        self._check_logged()
        if app.changelogs:
            if self._known is None:
                raise self._refusal("its changelogs do not say which topology has written them")
            require_compatible(StoredPlan.of(self._known), app.document, app.checkpoint)
            require_unmoved(StoredPlan.of(self._known), app.plan, app.checkpoint)
            self._complete = self._complete_topics(self._known)

    def _check_dataframes(self) -> None:
        self._refuse_if(bool(self._app.topology.dataframes), "it reads DataFrames, whose positions were only there")

    def _check_logged(self) -> None:
        """Refuse stores whose rows are in no topic."""
        for sub in self._app.plan.subtopologies:
            specs = (self._app.topology.stores[name] for name in sub.stores)
            unlogged = [spec.name for spec in specs if not spec.is_restorable]
            self._refuse_if(bool(unlogged), f"stores have no changelog: {', '.join(unlogged)}")

    def _complete_topics(self, noted: Mapping[str, Any]) -> set[str]:
        """Return the changelogs that hold all of their stores."""
        return set(noted["complete"])

    def _last_batch(self) -> LastBatch:
        """Find the last batch by the group's offsets, the ledger and the note of the batch under way."""
        app = self._app
        marked = marked_batches(app.log, app.application, app.plan.external_topics)
        self._refuse_if(None in marked.values(), "another program has set offsets of its group")
        batches = {batch for batch in marked.values() if batch is not None}
        written, last, levels = self._written()
        if len(batches) == 1 and last <= max(batches):
            offsets = app.log.committed_offsets(app.application)
            return LastBatch(max(batches), {tp: offsets[tp] for tp in marked}, written)
        planned = self._planned(max(batches, default=-1), last, levels)
        return LastBatch(planned.batch - 1, planned.before.ends, written, planned)

    def _written(self) -> tuple[dict[str, int], int, dict[str, int]]:
        """Read the ledger: the newest segment by task, the newest batch of all, and the newest batch by ledger name."""
        written: dict[str, int] = {}
        batches: dict[str, int] = {}
        levels = {sub.id: len(sub.levels) for sub in self._app.plan.subtopologies}
        for name, number in self._app.log.ledger(self._app.application).items():
            match = _TASK.fullmatch(name)
            if match is None or int(match[1]) not in levels:
                continue
            batches[name] = number // levels[int(match[1])]
            task = f"{match[1]}_{match[2]}"
            written[task] = max(number, written.get(task, -1))
        return written, max(batches.values(), default=-1), batches

    def _planned(self, committed: int, last: int, written: Mapping[str, int]) -> PlannedBatch:
        """Read the batch that was under way, as the log has noted it.

        Args:
            committed: The newest batch by the group's offsets.
            last: The newest batch by the ledger.
            written: Task -> its newest batch.
        """
        noted = self._app.log.planned(self._app.application)
        if noted is None:
            raise self._refusal(
                f"batch {last} was under way when the application ended (its group is at batch {committed}), and only "
                "the checkpoint knew what it has read"
                if last > committed
                else "its group has no offsets"
            )
        planned = PlannedBatch.unpack(noted).without_group_resets()
        self._refuse_if(
            max(committed, last) > planned.batch,
            f"batch {max(committed, last)} was begun, but batch {planned.batch} is the last whose ranges are noted",
        )
        noted_inputs = planned.inputs(self._app.plan.global_topics)
        for task, inputs in self._app.log.ledger_inputs(self._app.application).items():
            self._refuse_if(
                written.get(task) == planned.batch and inputs != noted_inputs,
                f"task {task} has written batch {planned.batch} with other records than those that are noted for it",
            )
        return planned

    def _note(self, last: LastBatch, lost: Mapping[str, Collection[str]]) -> None:
        """Write the notes of Spark and the driver; the plan, which makes it a checkpoint, comes last."""
        app, checkpoint = self._app, self._app.checkpoint
        planned = last.under_way
        ids = app.log.topic_ids(app.plan.all_topics)
        end = SourceOffset(last.ends, ids=ids) if planned is None else planned.before
        write_document(checkpoint, "spark/metadata", json.dumps({"id": str(uuid.uuid4())}))
        first = last.batch - 1 if planned is None else last.batch  # Spark wants the one before the last too
        for batch in range(max(0, first), last.batch + 1):
            write_document(checkpoint, f"spark/offsets/{batch}", _spark_note(end))
            write_document(checkpoint, f"spark/commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
        if planned is not None:
            write_document(checkpoint, f"spark/offsets/{planned.batch}", _spark_note(planned.end))
        write_document(checkpoint, "moves.json", "[]")
        check_log_identity(checkpoint, app.log, app.application, loss_fails=True)
        write_complete(checkpoint, self._complete)
        note_changelog_ends(checkpoint, app.log, [each.topic for each in app.changelogs], last.batch)
        stored = StoredPlan.first(app.document, app.fingerprint)
        if self._known is not None:
            ledger = app.log.ledger(app.application)
            stored = StoredPlan.of(self._known).followed_by(app.document, app.fingerprint, ledger).losing(lost)
        write_stored_plan(checkpoint, stored, app.topology, app.config)

    def _refuse_if(self, condition: bool, why: str) -> None:  # noqa: FBT001 - it reads as a sentence
        if condition:
            raise self._refusal(why)

    def _refusal(self, why: str) -> CheckpointMismatchError:
        application = self._app.application
        return CheckpointMismatchError(
            f"the checkpoint of {application!r} cannot be recreated from its log: {why}",
            hint="Bring the checkpoint back from a backup, or start from nothing: penstock app reset "
            f"{application} --without-checkpoint.",
            checkpoint=self._app.checkpoint,
        )


def _spark_note(end: SourceOffset) -> str:
    """Make Spark's note of a batch with this end."""
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": unix_ms(), "conf": {}}
    return "\n".join(["v1", json.dumps(facts), json.dumps(end.to_json())])


@contextmanager
def lost_checkpoint_of(
    topology: Topology, config: StreamsConfig, lease_ttl_ms: int = 30_000
) -> Iterator[LostCheckpoint]:
    """Hold the lease of an application while its checkpoint is recreated; yield what recreates it.

    Raises:
        FencedError: The application runs.
    """
    with open_app_log(config) as log, held_lease(log, config["application.id"], "state rebuild", lease_ttl_ms):
        yield LostCheckpoint(topology, in_own_mode(config, log), log)


_MARK = "taken_up.json"  # in the checkpoint, while its state is being replaced
_log = own_logger(__name__)


def is_takeover_unfinished(checkpoint: str) -> bool:
    """Return whether `take_up` was interrupted and must be repeated."""
    return read_document(checkpoint, _MARK) is not None


def take_up(
    topology: Topology, config: StreamsConfig, log: TopicLog, lease: Lease, takeover: TakenOverError | None
) -> None:
    """Replace the state of a checkpoint by the contents of the changelogs, and its positions by the group's offsets.

    Args:
        topology: The topology that is about to run.
        config: The application's settings.
        log: The application's log.
        lease: Its lease.
        takeover: The takeover; None: finish an interrupted one.

    Raises:
        CheckpointMismatchError: The other program's work cannot be taken up; nothing was changed.
        StateError: A changelog has records that do not fit its store.
    """
    _TakeUp(topology, config, log).make_from_group(lease, takeover)


class _TakeUp(LostCheckpoint):
    def make_from_group(self, lease: Lease, takeover: TakenOverError | None) -> None:
        app, checkpoint = self._app, self._app.checkpoint
        if takeover is None:
            self._check_topology()
        else:
            self._check(takeover)
        last = self._last_batch_of_group()
        write_document(checkpoint, _MARK, "{}")
        rebuilder = Rebuilder(app, last, self._complete, self._dropped())
        rows = 0
        for sub in app.plan.subtopologies:
            for number in range(sub.tasks) if app.plan.publishes(sub) else ():
                rows += sum(rebuilder.take_up(sub, number).rows.values())
        forget_batches(f"{checkpoint}/{QUERY}")
        self._note(last, rebuilder.lost)
        delete_document(checkpoint, _MARK)
        app.log.commit_offsets(app.application, last.ends, f"{MARK} batch {last.batch}", lease)
        _log.warning(
            "another program has continued %s: the old state is discarded, %d rows are restored from "
            "changelogs, and reading continues from the group's offsets",
            app.application,
            rows,
        )

    def _check(self, takeover: TakenOverError) -> None:
        """Raise the takeover error, with the reason, if the other program's work cannot be taken up."""
        try:
            self._check_topology()
            app = self._app
            marked = marked_batches(app.log, app.application, app.plan.external_topics)
            self._refuse_if(None not in marked.values(), "the group's offsets are those that this application has set")
            partial = {each.topic for each in app.changelogs} - self._complete
            self._refuse_if(bool(partial), f"{', '.join(sorted(partial))} do not hold all of their stores")
        except CheckpointMismatchError as error:
            message = f"{takeover.message}. Its work cannot be continued from the changelogs: {error.message}"
            raise CheckpointMismatchError(message, hint=takeover.hint, **takeover.facts) from None
        self._check_read()

    def _check_read(self) -> None:
        """Refuse the takeover if rows wait in repartition topics."""
        application, log = self._app.application, self._app.log
        there = {topic.name for topic in log.topics()}
        own = there & self._app.plan.repartition_topics.keys()
        ends = log.end_offsets(sorted(own))
        offsets = {tp: each.offset for tp, each in log.group_offsets(application, ends).items()}
        for tp, begin in sorted(log.beginning_offsets(sorted(own)).items()):
            start = max(begin, offsets.get(tp, begin))
            waiting = sum(rows.num_rows for rows in log.iterate(tp.topic, tp.partition, start, ends[tp]))
            if waiting:
                raise CheckpointMismatchError(
                    f"another program has continued application {application!r}, and {waiting} records of "
                    f"{tp.topic}-{tp.partition} wait for it to read them",
                    hint="Start that program again, let it read all there is, and stop it: then its work is continued "
                    f"here. To start from nothing: penstock app reset {application}.",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=start,
                )

    def _last_batch_of_group(self) -> LastBatch:
        """Return a batch number behind all earlier ones, with the group's offsets."""
        written, last, _ = self._written()
        app = self._app
        planned = planned_batches(f"{app.checkpoint}/{QUERY}")
        read = set(app.plan.external_topics)
        offsets = app.log.group_offsets(app.application, app.log.end_offsets(sorted(read)))
        marked = marked_batches(app.log, app.application, read).values()
        newest = max([last, *planned, *(batch for batch in marked if batch is not None)])
        return LastBatch(newest + 1, {tp: each.offset for tp, each in offsets.items()}, written)


def start_over(config: StreamsConfig, log: TopicLog, mismatch: CheckpointMismatchError) -> None:
    """Remove the state of an application that another tool has reset; its group's offsets stay.

    Args:
        config: The application's settings.
        log: The application's log; the lease is held.
        mismatch: The error that describes the reset.
    """
    application, places = str(config["application.id"]), Locations.of(config, log)
    plan = read_plan(places.checkpoint)
    assert plan is not None  # noqa: S101 - the ends of the changelogs were in it
    mark_removed(places.checkpoint, plan)
    for root in (Path(places.replicas), places.queries):
        for folder in list(own_replicas(root, application, places.checkpoint, plan["fingerprints"])):
            remove_replica(folder)
    log.clear_ledger(application)
    remove_checkpoint(places.checkpoint)
    places.prepare()
    _log.warning(
        "%s was reset by another tool: its changelogs are gone, and the group's offsets are not its own. It starts at "
        "those, with empty stores (%s)",
        application,
        mismatch.message,
    )
