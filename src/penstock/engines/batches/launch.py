"""Preparation of a start: comparing the checkpoint with the application, noting the plan, making the job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.engines.application.app_log import log_settings
from penstock.engines.application.application_note import note_application
from penstock.engines.application.identities import check_log_identity
from penstock.engines.application.internal_topics import prepare_changelogs
from penstock.engines.application.stored_plans import read_stored_plan, resumable_plan, write_stored_plan
from penstock.engines.batches.recovery.moved_stores import move_stores
from penstock.engines.batches.recovery.rebuild import check_put_back
from penstock.engines.batches.recovery.taken_over import is_takeover_unfinished, start_over, take_up
from penstock.engines.batches.takeovers import (
    ResetElsewhereError,
    TakenOverError,
    check_changelog_ends,
    check_group,
    note_changelog_ends,
)
from penstock.engines.offsets.group_resets import take_up_group_resets
from penstock.engines.offsets.reading_settings import read_settings_of
from penstock.engines.spark.job import SparkJob
from penstock.engines.spark.topology_bytes import pickle_app
from penstock.topology.plan.stored import StoredPlan

if TYPE_CHECKING:
    from penstock.engines.application.planned_app import PlannedApp
    from penstock.log.embedded.coordination import Lease

__all__ = ["prepare_job"]


def prepare_job(app: PlannedApp, lease: Lease, *, parallelism: int, until_latest: bool) -> SparkJob:
    """Compare the checkpoint with the application, note the new plan in it, and make the job for the workers.

    Args:
        app: The application.
        lease: Its lease.
        parallelism: The number of Spark tasks that can run at once.
        until_latest: Whether the run ends at the present ends of the topics.

    Raises:
        CheckpointMismatchError: The checkpoint is of another application or an incompatible topology.
        MissingSegmentError: A store is put back, or moves to another sub-topology, and segments of it are lost.
        TopologyError: A function cannot be pickled.
    """
    topology, config, plan, log = app.topology, app.config, app.plan, app.log
    pickled_app = pickle_app(topology, config)
    checkpoint = app.checkpoint
    before = resumable_plan(checkpoint, app.document, plan, log, config["penstock.state.drop"])
    check_log_identity(checkpoint, log, app.application, loss_fails=app.loss_fails)
    lost: frozenset[str] = frozenset()
    if before is not None:
        before, lost = _as_others_left_it(app, lease, before)
    if before is not None:
        check_group(checkpoint, log, app.application)
    if before is not None:
        check_put_back(app, before)
    prepare_changelogs(app, before, lost)
    if before is not None:
        move_stores(app, before, lease)
    note_changelog_ends(checkpoint, log, [each.topic for each in app.changelogs])
    stored = StoredPlan.first(app.document, app.fingerprint)
    if before is not None:
        stored = before.followed_by(app.document, app.fingerprint, log.ledger(app.application))
    write_stored_plan(checkpoint, stored, topology, config)
    note_application(app, stored, lease)
    return SparkJob(
        plan=plan,
        pickled_app=pickled_app,
        log_url=log.url,
        log_settings=log_settings(config),
        epoch=lease.epoch,
        checkpoint=checkpoint,
        replica_root=app.places.replicas,
        fingerprint=app.fingerprint,
        accepts=stored.fingerprints,
        unsegmented=dict(stored.unsegmented),
        exactly_once=config["processing.guarantee"] == "exactly_once_v2",
        parallelism=parallelism,
        reading=read_settings_of(topology, plan, config),
        tick_ms=int(config["penstock.tick.interval.ms"]) if plan.ticks else 0,
        until_latest=until_latest,
        driver_pid=os.getpid(),
        changelogs={each.store: each.topic for each in app.changelogs if each.store},
        numbers_topic=next((each.topic for each in app.changelogs if not each.store), None),
        journal=app.places.journal,
        group_resets=take_up_group_resets(checkpoint, log, lease, plan.external_topics),
    )


def _as_others_left_it(app: PlannedApp, lease: Lease, before: StoredPlan) -> tuple[StoredPlan | None, frozenset[str]]:
    """Take up the work of other programs on the application since its checkpoint was written.

    Returns:
        The plan that the checkpoint now holds, and the changelogs that do not hold the whole contents of their stores.
    """
    try:
        if is_takeover_unfinished(app.checkpoint):
            take_up(app.topology, app.config, app.log, lease, None)
        return before, check_changelog_ends(app, before.homes())
    except TakenOverError as error:
        take_up(app.topology, app.config, app.log, lease, error)
        return read_stored_plan(app.checkpoint), frozenset()
    except ResetElsewhereError as error:
        start_over(app.config, app.log, error)
        check_log_identity(app.checkpoint, app.log, app.application, loss_fails=app.loss_fails)
        return None, frozenset()
