"""Facts of a batch that all of its tasks need, in every stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.engines.offsets.offsets import SourceOffset

__all__ = ["BatchFacts", "inputs_checksum"]


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
