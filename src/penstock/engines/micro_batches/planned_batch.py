"""The facts of a batch, and the newest planned one, noted in the log, so that its ranges outlive the checkpoint.

Spark notes the ranges in the checkpoint only. If that is lost while a batch is under way, some tasks have written the
batch and others have not, and it can be finished only with its ranges. So the planner notes them in the log before the
first task begins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.spark_log import committed_batches
from penstock.log.base import TopicPartition
from penstock.state.checkpoint import read_document

if TYPE_CHECKING:
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicLog

__all__ = ["BatchFacts", "LastBatch", "PlannedBatch", "committed_by_spark", "inputs_checksum", "note_planned"]


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The facts of a batch that every worker of every stage receives.

    Attributes:
        inputs: A checksum of what the batch reads, which identifies it together with its number; empty: not compared.
        global_ends: The offsets up to which global stores have read their topics; empty: the present ends.
    """

    inputs: str = ""
    global_ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Serialize the facts; `unpack` reads them."""
        ends = [[tp.topic, tp.partition, end] for tp, end in self.global_ends.items()]
        return json.dumps({"inputs": self.inputs, "global_ends": ends}).encode()

    @classmethod
    def unpack(cls, data: bytes) -> BatchFacts:
        """Read the bytes of `pack`.

        Example:
            >>> facts = BatchFacts("f00d", {TopicPartition("users", 0): 17})
            >>> BatchFacts.unpack(facts.pack()) == facts
            True
        """
        document = json.loads(data)
        return cls(
            document["inputs"], {TopicPartition(topic, number): end for topic, number, end in document["global_ends"]}
        )


def inputs_checksum(before: SourceOffset, end: SourceOffset, tables: Collection[str] = ()) -> str:
    """Compute a checksum of all that a batch reads, in all stages.

    Spark numbers its batches, and its note of what a batch reads may be lost (a power cut, an older copy of the
    checkpoint). A batch with the same number but other records must not count as one that is done.

    Args:
        before: The end of the batch before.
        end: The end of the batch.
        tables: The topics of global tables, which a batch does not consume.
    """
    starts = {**before.ends, **end.starts}
    parts = [
        [tp.topic, end.ids.get(tp.topic, ""), tp.partition, starts.get(tp, 0), stop]
        for tp, stop in sorted(end.ends.items())
        if tp.topic not in tables and stop > starts.get(tp, 0)
    ]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


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
