"""The newest batch that Spark has committed, read from the commit log in the checkpoint.

Spark writes ``spark/offsets/<batch>`` when it plans a batch and ``spark/commits/<batch>`` when all of it is done.
Every process with access to the checkpoint can read both, so a query needs no driver.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.query.position import Position
from penstock.state.documents import document_time_ms, list_documents, local_directory, read_document

__all__ = ["Commit", "CommitLog"]

_COMMITS = "spark/commits"
_OFFSETS = "spark/offsets"
_REMOTE_REFRESH_S = 0.2


@dataclass(frozen=True)
class Commit:
    """A committed batch.

    Attributes:
        checkpoint: The checkpoint location.
        batch: Spark's number of the batch.
        committed_ms: The time of the commit.
    """

    checkpoint: str
    batch: int
    committed_ms: int

    @cached_property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offset after the last record that the batch has read, by topic and partition."""
        text = read_document(self.checkpoint, f"{_OFFSETS}/{self.batch}")
        return {} if text is None else _ends(text)

    @cached_property
    def position(self) -> Position:
        """The last record of each topic partition in the state."""
        found = {t: {p: end - 1 for p, end in parts.items() if end > 0} for t, parts in self.ends.items()}
        return Position({topic: parts for topic, parts in found.items() if parts})


class CommitLog:
    """The commits of one checkpoint.

    Args:
        checkpoint: The application's checkpoint location.
        refresh_s: The longest age of a cached answer; by default 0 for a directory, 0.2 for an object store.
    """

    def __init__(self, checkpoint: str, refresh_s: float | None = None) -> None:
        self.checkpoint = checkpoint
        is_local = local_directory(checkpoint) is not None
        self._refresh_s = refresh_s if refresh_s is not None else (0.0 if is_local else _REMOTE_REFRESH_S)
        self._lock = threading.Lock()
        self._newest: Commit | None = None
        self._looked = float("-inf")
        self.generation = 0  # grows when the checkpoint was deleted and created again

    def newest(self, *, now: bool = False) -> Commit | None:
        """Return the newest committed batch; None before the first.

        Args:
            now: Read the log even if the cached answer is recent.
        """
        with self._lock:
            if now or time.monotonic() - self._looked >= self._refresh_s:
                self._newest = self._look(self._newest)
                self._looked = time.monotonic()
            return self._newest

    def _look(self, known: Commit | None) -> Commit | None:
        if known is None or self._time(known.batch) != known.committed_ms:  # the first look, or a reset
            self.generation += known is not None
            return self._listed()
        while (committed := self._time(known.batch + 1)) is not None:
            known = Commit(self.checkpoint, known.batch + 1, committed)
        return known

    def _listed(self) -> Commit | None:
        batches = [int(name) for name in list_documents(self.checkpoint, _COMMITS) if name.isdecimal()]
        for batch in sorted(batches, reverse=True):
            committed = self._time(batch)
            if committed is not None:
                return Commit(self.checkpoint, batch, committed)
        return None

    def _time(self, batch: int) -> int | None:
        return document_time_ms(self.checkpoint, f"{_COMMITS}/{batch}")


def _ends(text: str) -> dict[str, dict[int, int]]:
    """Parse a file of Spark's offset log: a version, a line about the batch, one line per source."""
    found: dict[str, dict[int, int]] = {}
    for line in text.splitlines()[2:]:
        document: Any = json.loads(line) if line.startswith("{") else {}
        topics = document.get("topics", document)
        for topic, parts in topics.items():
            if isinstance(parts, dict):
                found.setdefault(topic, {}).update({int(p): int(offset) for p, offset in parts.items()})
    return found
