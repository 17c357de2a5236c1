"""The changelog records of a task's commit: byte for byte those that micro-batches write.

Beside the records of its stores a task writes its numbers (stream time and the like). There micro-batches name the
segment that the records belong to, so that lost segments can be rebuilt. Here there are no segments: the batch is
`NO_BATCH` and the checksum empty. So code that looks for segments misses none because of such numbers, and
micro-batches that find changelogs written by stream threads treat that as a takeover: they throw their segments away,
restore the stores from the changelogs with these numbers, and read on from the group's offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.state.changelog.numbers import TaskNumbers
from penstock.state.changelog.writing import records_of_changes, records_of_puts
from penstock.state.segments.segment import NO_BATCH

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.threads.app import ThreadApp
    from penstock.log.thread_clients import Part
    from penstock.state.overlay import BatchState
    from penstock.topology.plan.plan import TaskId

__all__ = ["changelog_parts"]


def changelog_parts(
    app: ThreadApp, task: TaskId, state: BatchState, changes: Mapping[str, pa.RecordBatch]
) -> list[Part]:
    """Return the records of a task's changes since the last commit, and of its numbers if anything reads them.

    Args:
        app: The application.
        task: The task.
        state: Its state, before it is moved on.
        changes: The changes of its stores (`BatchState.sorted_changes`).
    """
    stores = app.subtopology(task).stores
    puts = records_of_puts(app.changelogs, ((store, state.puts(store)) for store in stores))
    found = records_of_changes(app.topology.stores, app.changelogs, changes.items(), state.meta)
    written = [(topic, task.partition, records) for topic, records in (*puts, *found)]
    if (topic := app.numbers_topic_of(task)) is not None:
        written.append((topic, task.partition, TaskNumbers(NO_BATCH, "", dict(state.meta)).record(str(task))))
    return written
