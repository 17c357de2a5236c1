"""Conversion of an application from one mode into the other: by a command, or by a start in the other mode.

Half-finished work is first finished in the mode that has begun it, without reading anything new. Then, under the lease,
everything is checked and written, and one record in the log is the switch. A conversion that ends anywhere is repeated
by the same command or by the next start; until the switch, a start in the earlier mode goes on there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.config.refused import OF_STATE, refuse_in_mode
from penstock.engines.application.application_mode import CONTINUOUS, MICRO_BATCH, checkpoint_mode, mode_of, with_mode
from penstock.engines.application.locations import Locations
from penstock.engines.conversion.into_batches import IntoBatches, forget_thread_replicas
from penstock.engines.conversion.into_continuous import IntoContinuous, forget_batch_checkpoint
from penstock.engines.conversion.report import ConversionReport, refusal
from penstock.engines.spark import fault_injection as faults
from penstock.log.leases import held_lease

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.topology import Topology

__all__ = ["convert", "convert_at_start"]

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
    faults.reach(f"convert-{step}", 0, MICRO_BATCH, os.getpid())
