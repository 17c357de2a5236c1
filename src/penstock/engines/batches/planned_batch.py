"""The newest planned batch, noted in the log, so that its ranges outlive the checkpoint; and the last batch of a run.

Spark notes the ranges in the checkpoint only. If that is lost while a batch is under way, some tasks have written the
batch and others have not, and it can be finished only with its ranges. So the planner notes them in the log before the
first task begins.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.batches.facts import inputs_checksum
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.spark_log import committed_batches
from penstock.state.documents import read_document

if TYPE_CHECKING:
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicLog, TopicPartition

__all__ = ["LastBatch", "PlannedBatch", "committed_by_spark", "note_planned"]

_MOST_CHARACTERS = 900_000  # fits into one record by a broker's default settings
_log = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch as it was planned.

    Attributes:
        batch: Spark's number.
        before: The end of the batch before.
        end: The end of this batch.
    """

    batch: int
    before: SourceOffset
    end: SourceOffset

    def pack(self) -> str:
        """Serialize the batch as text; `unpack` reads it.

        Example:
            >>> planned = PlannedBatch(3, SourceOffset(), SourceOffset(tick=7))
            >>> PlannedBatch.unpack(planned.pack()) == planned
            True
        """
        return json.dumps({"batch": self.batch, "before": self.before.to_json(), "end": self.end.to_json()})

    @classmethod
    def unpack(cls, text: str) -> PlannedBatch:
        """Read the text of `pack`."""
        document = json.loads(text)
        return cls(int(document["batch"]), SourceOffset.of(document["before"]), SourceOffset.of(document["end"]))

    def inputs(self, tables: Collection[str]) -> str:
        """Compute the checksum of the input for segments and ledger entries; ``tables``: topics of global tables."""
        return inputs_checksum(self.before, self.end, tables)

    def without_group_resets(self) -> PlannedBatch:
        """Copy the batch without the number of group resets, which only the checkpoint notes."""
        return PlannedBatch(self.batch, replace(self.before, resets=0), replace(self.end, resets=0))


def note_planned(job: SparkJob, log: TopicLog, planned: PlannedBatch) -> None:
    """Note the batch whose ranges Spark has just noted in the checkpoint; call it before its tasks begin.

    Without exactly-once there is no ledger that says which tasks have written the batch, so there is no note either.
    """
    if not job.exactly_once:
        return
    text = planned.pack()
    if len(text) < _MOST_CHARACTERS:
        log.note_planned(job.plan.application_id, job.epoch, text)
    else:
        _log.debug("batch %d has too many partitions to be noted in the log", planned.batch)


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last committed batch of an application, and the batch behind it if one was under way.

    Attributes:
        batch: Spark's number; -1 before the first one.
        ends: The end of its input.
        written: Task -> its newest segment by the ledger, for a checkpoint that is recreated.
        under_way: The batch behind it, if some tasks may have written it.
    """

    batch: int
    ends: Mapping[TopicPartition, int]
    written: Mapping[str, int] = field(default_factory=dict)
    under_way: PlannedBatch | None = None


def committed_by_spark(checkpoint: str) -> LastBatch:
    """Read the newest batch that Spark has committed."""
    done = committed_batches(checkpoint)
    if not done:
        return LastBatch(-1, {})
    text = read_document(checkpoint, f"spark/offsets/{max(done)}") or ""
    lines = [line for line in text.splitlines() if line.startswith('{"topics"')]
    return LastBatch(max(done), dict(SourceOffset.of(json.loads(lines[0])).ends) if lines else {})
