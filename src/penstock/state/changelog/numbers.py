"""The record of a task in the topic of tasks' numbers: what its stores' changelogs stand for.

Key: the task, ``<sub-topology>_<partition>``. Value: JSON with batch and checksum of the segment, and the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.state.changelog.base import now_of, records_of
from penstock.state.views.frames import from_bytes_list

__all__ = ["TaskNumbers"]


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """The newest segment whose changes are in the changelogs, and the task's numbers in it."""

    batch: int
    checksum: str
    meta: Mapping[str, int]

    def record(self, task_id: str) -> pa.RecordBatch:
        """As a record.

        >>> record = TaskNumbers(3, "ab", {"stream_time": 7}).record("0_1")
        >>> TaskNumbers.parse(record.column("value")[0].as_py()).batch
        3
        """
        value = json.dumps({"batch": self.batch, "checksum": self.checksum, "meta": dict(self.meta)}).encode()
        return records_of(now_of(self.meta), from_bytes_list([task_id.encode()]), from_bytes_list([value]))

    @classmethod
    def parse(cls, value: bytes) -> TaskNumbers:
        """From a record's value."""
        facts = json.loads(value)
        return cls(facts["batch"], facts["checksum"], facts["meta"])
