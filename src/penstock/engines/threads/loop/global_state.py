"""The global stores of a thread: read to the end before the first record, then followed.

Kafka Streams has a thread of its own for them, and a copy for each instance. Here the threads of a machine are
processes, and share one copy in LMDB (`penstock.engines.threads.replicas.global_copy`): one of them writes it, all
read it. Without a folder for replicas a thread keeps a copy in memory (`MemoryGlobals`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.base.log_lines import own_logger
from penstock.engines.threads.replicas.global_copy import GlobalCopy, GlobalFiller, global_specs, is_open_here
from penstock.runtime.global_stores import GlobalViews
from penstock.state.memory import MemoryTaskState

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.loop.thread_hooks import ThreadHooks
    from penstock.log.base import Fetched, TopicLog, TopicPartition
    from penstock.runtime.sensor import Sensor

__all__ = ["GlobalState", "MemoryGlobals", "open_globals"]

_log = own_logger(__name__)


class GlobalState(Protocol):
    """The global stores as a thread uses them.

    Attributes:
        views: The stores, for its tasks.
    """

    views: GlobalViews

    def look(self) -> Mapping[TopicPartition, int] | None:
        """Show what others have written; return the positions to follow from now on, if this thread has to."""
        ...

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        """Apply records that have been fetched."""
        ...

    def close(self) -> None: ...


def open_globals(app: ThreadApp, hooks: ThreadHooks, log: TopicLog) -> tuple[GlobalState, Mapping[TopicPartition, int]]:
    """Restore the global stores of an application: in the machine's copy, or in memory.

    Args:
        app: The application.
        hooks: The parts of the process that a thread uses.
        log: The log.

    Returns:
        The stores, and the positions to follow their topics from; none if another thread does.
    """
    if app.replica_root is not None and not is_open_here(app):
        copy = GlobalCopy(app, hooks.sensor, hooks.clock)
        try:
            return copy, copy.restore(log, hooks.on_restore)
        except TimeoutError:
            copy.close()
            _log.warning("The thread that writes this machine's global stores stands still; this one keeps its own")
        except BaseException:
            copy.close()
            raise
    own = MemoryGlobals(app, hooks.sensor, hooks.clock)
    return own, own.restore(log)


class MemoryGlobals:
    """A copy of all global stores in memory, see `GlobalState`.

    Args:
        app: The application.
        sensor: The sensor of the task that fills them.
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, app: ThreadApp, sensor: Sensor, clock: Callable[[], int]) -> None:
        specs = global_specs(app)
        state = MemoryTaskState(specs.values())
        self._topics = tuple(app.plan.global_topics)
        self._filler = GlobalFiller(app, state, sensor, clock)
        self.views = GlobalViews(specs, {name: state.map(name) for name in specs}, state.meta)

    def restore(self, log: TopicLog) -> Mapping[TopicPartition, int]:
        """Read the topics from the beginning to their present ends; return the positions to follow them from."""
        ends = log.end_offsets(self._topics)
        beginnings = log.beginning_offsets(self._topics)
        for tp, end in ends.items():
            for records in log.iterate(tp.topic, tp.partition, beginnings[tp], end):
                self._filler.apply(tp, records)
        return dict(ends)

    def look(self) -> None:
        """Do nothing: nobody else writes here."""

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        if fetched.records.num_rows:
            self._filler.apply(tp, fetched.records)

    def close(self) -> None:
        self._filler.close()
