"""The record of a task in the topic of tasks' numbers: the position of its stores' changelogs.

Key: the task, ``<sub-topology>_<partition>``. Value: JSON with batch and checksum of the segment, and the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import StateError
from penstock.serde.column import bytes_column
from penstock.state.changelog.base import now_of, records_of

__all__ = ["APPLICATION", "NOTE", "TaskNumbers"]

APPLICATION = b"application"  # the key of a record that is of no task: the plan, for when the checkpoint is lost
NOTE = b"@"  # in the keys of notes for replays, behind the task


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """The newest segment whose changes are in the changelogs, and the task's numbers in it."""

    batch: int
    checksum: str
    meta: Mapping[str, int]

    def record(self, task_id: str) -> pa.RecordBatch:
        """Return the numbers as a record.

        >>> record = TaskNumbers(3, "ab", {"stream_time": 7}).record("0_1")
        >>> TaskNumbers.parse(record.column("value")[0].as_py()).batch
        3
        """
        value = json.dumps({"batch": self.batch, "checksum": self.checksum, "meta": dict(self.meta)}).encode()
        return records_of(now_of(self.meta), bytes_column([task_id.encode()]), bytes_column([value]))

    @classmethod
    def parse(cls, value: bytes) -> TaskNumbers:
        """Parse a record's value; raise StateError if it is malformed."""
        try:
            facts = json.loads(value)
            meta = {str(name): int(number) for name, number in facts["meta"].items()}
            return cls(int(facts["batch"]), str(facts["checksum"]), meta)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StateError(
                f"the topic of the tasks' numbers has a record that Penstock did not write: {error!r}",
                hint="Another program has written to it. In micro-batches, bring the checkpoint back from a backup; in "
                "continuous mode nothing but this topic has them. To start from nothing: penstock app reset.",
            ) from error
