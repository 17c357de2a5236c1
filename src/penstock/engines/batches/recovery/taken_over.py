"""Going on where another program has left an application, or anew where a tool of Kafka's has reset it.

A program of Kafka Streams commits the group's offsets and the changelogs in its transactions, so the two belong
together: state of before is thrown away, the stores are restored from the changelogs, reading goes on from the group's
offsets. Nothing is mixed. A takeover is refused if a changelog does not hold the whole contents of its store, or if
rows wait in that program's repartition topics, for here such rows never pass through topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.application.locations import Locations
from penstock.engines.batches.planned_batch import LastBatch
from penstock.engines.batches.recovery.lost_checkpoint import LostCheckpoint
from penstock.engines.batches.recovery.rebuild import Rebuilder
from penstock.engines.batches.takeovers import TakenOverError, marked_batches
from penstock.engines.spark.spark_log import QUERY, forget_batches, planned_batches
from penstock.errors import CheckpointMismatchError
from penstock.log.groups.gone_back import MARK
from penstock.state.checkpoint import mark_removed, read_plan, remove_checkpoint
from penstock.state.documents import delete_document, read_document, write_document
from penstock.state.replicas.folders import own_replicas, remove_replica

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.topology import Topology

__all__ = ["start_over", "is_takeover_unfinished", "take_up"]

_MARK = "taken_up.json"  # in the checkpoint, while its state is being replaced
_log = own_logger(__name__)


def is_takeover_unfinished(checkpoint: str) -> bool:
    """Return whether `take_up` was interrupted and must be repeated."""
    return read_document(checkpoint, _MARK) is not None


def take_up(
    topology: Topology, config: StreamsConfig, log: TopicLog, lease: Lease, found: TakenOverError | None
) -> None:
    """Replace the state of a checkpoint by the contents of the changelogs, and its positions by the group's offsets.

    Args:
        topology: The topology that is about to run.
        config: The application's settings.
        log: The application's log.
        lease: Its lease.
        found: The takeover; None: finish an interrupted one.

    Raises:
        CheckpointMismatchError: The other program's work cannot be taken up; nothing was changed.
        StateError: A changelog has records that do not fit its store.
    """
    _TakeUp(topology, config, log).make_from_group(lease, found)


class _TakeUp(LostCheckpoint):
    def make_from_group(self, lease: Lease, found: TakenOverError | None) -> None:
        app, checkpoint = self._app, self._app.checkpoint
        if found is None:
            self._check_topology()
        else:
            self._check(found)
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

    def _check(self, found: TakenOverError) -> None:
        """Raise the takeover error, with the reason, if the other program's work cannot be taken up."""
        try:
            self._check_topology()
            app = self._app
            marked = marked_batches(app.log, app.application, app.plan.external_topics)
            self._refuse_if(None not in marked.values(), "the group's offsets are those that this application has set")
            partial = {each.topic for each in app.changelogs} - self._complete
            self._refuse_if(bool(partial), f"{', '.join(sorted(partial))} do not hold all of their stores")
        except CheckpointMismatchError as error:
            message = f"{found.message}. Its work cannot be continued from the changelogs: {error.message}"
            raise CheckpointMismatchError(message, hint=found.hint, **found.facts) from None
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


def start_over(config: StreamsConfig, log: TopicLog, found: CheckpointMismatchError) -> None:
    """Remove the state of an application that another tool has reset; its group's offsets stay.

    Args:
        config: The application's settings.
        log: The application's log; the lease is held.
        found: The error that describes the reset.
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
        found.message,
    )
