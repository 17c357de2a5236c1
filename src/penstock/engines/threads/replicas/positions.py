"""The position of a stream thread's replica: where in the changelogs and in the input its rows stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.log.base import TopicPartition
from penstock.state.replicas.replica import ReplicaPosition, time_notes, time_since
from penstock.topology.stores import StoreSpec

__all__ = ["NUMBERS", "StorePosition", "TaskPosition", "layout_of"]

NUMBERS = ""  # in place of a store's name: the topic of the tasks' numbers
_LAYOUT = ("kind", "timestamped", "window_size_ms", "retention_ms", "retain_duplicates", "history_ms", "ttl_ms",
           "persistent", "time_ordered")  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The position of a store in its changelog.

    Attributes:
        topic: The topic.
        topic_id: The id of the topic; empty where the log has none.
        following: The offset after the last record that is in the rows.
        layout: The facts that the bytes of the rows depend on (`layout_of`).
    """

    topic: str
    topic_id: str
    following: int
    layout: str = ""


@dataclass(frozen=True, slots=True)
class TaskPosition:
    """The position of a task's replica.

    Attributes:
        stores: Store -> its position, and that in the numbers topic under `NUMBERS`. Stores that are missing have no
            sound rows.
        inputs: The committed positions in the task's input that the rows belong to; None: unknown.
        meta: The task's numbers.
        noted_ms: The wall-clock time of the note.
        boot: The id of the machine's start at the note, and the milliseconds since that start.
        epoch: The epoch in which ``inputs`` were committed.
    """

    stores: Mapping[str, StorePosition] = field(default_factory=dict)
    inputs: Mapping[TopicPartition, int] | None = None
    meta: Mapping[str, int] = field(default_factory=dict)
    noted_ms: int = 0
    boot: tuple[str, int] = ("", 0)
    epoch: int = 0

    def away_ms(self) -> int | None:
        """Return the time since the note; None if it is not known, as the machine's clock was set back."""
        return time_since(self.noted_ms, self.boot)

    def note(self) -> ReplicaPosition:
        """Return it as a replica holds it."""
        inputs = None if self.inputs is None else [[tp.topic, tp.partition, at] for tp, at in self.inputs.items()]
        stores = {name: [at.topic, at.topic_id, at.following, at.layout] for name, at in self.stores.items()}
        notes: dict[str, Any] = {"stores": stores, "inputs": inputs, **time_notes(), "epoch": self.epoch}
        return ReplicaPosition(meta=dict(self.meta), notes=notes)

    @classmethod
    def of(cls, noted: ReplicaPosition) -> TaskPosition:
        """Return the position that a replica holds; the beginning for an empty replica.

        >>> at = TaskPosition({"s": StorePosition("t", "id", 7)}, {TopicPartition("in", 0): 3}, {"stream_time": 5})
        >>> TaskPosition.of(at.note()).stores["s"].following
        7
        """
        notes = noted.notes
        if not notes:
            return cls()
        inputs = notes["inputs"]
        return cls(
            {name: StorePosition(*at) for name, at in notes["stores"].items()},
            None if inputs is None else {TopicPartition(topic, partition): at for topic, partition, at in inputs},
            noted.meta,
            notes["noted_ms"],
            tuple(notes.get("boot", ("", 0))),
            notes.get("epoch", 0),
        )


def layout_of(spec: StoreSpec) -> str:
    """Return the facts that the bytes of a store's rows depend on; rows of another layout are not used.

    >>> layout_of(StoreSpec("s", "lru", None, None)) == layout_of(StoreSpec("s", "timestamped", None, None))
    False
    """
    layout = " ".join(str(getattr(spec, name)) for name in _LAYOUT)
    return f"{layout} keeps_headers" if spec.keeps_headers else layout
