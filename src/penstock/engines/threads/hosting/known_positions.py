"""The newest offsets that an application in continuous mode has committed, as its driver knows them.

Threads report what they have committed, once a second. The driver notes it in the checkpoint (``positions.json``), so
that the next start sees whether the group's offsets have gone back, also for tasks without state. The note is always
behind what is really committed, or equal to it. It is of one life of the application: a reset makes the topic of the
tasks' numbers anew, and the id of that topic is in the note.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import PenstockError
from penstock.log.base import TopicPartition
from penstock.log.groups.gone_back import KnownOffset
from penstock.state.documents import read_document, write_document

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.thread_state import ThreadState

__all__ = ["KnownPositions"]

_log = own_logger(__name__)
_DOCUMENT = "positions.json"
_EVERY_S = 5.0


class KnownPositions:
    """The newest committed offsets by partition, kept across epochs and starts."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, KnownOffset] = {}
        self._place = ("", "")  # checkpoint, life
        self._written: dict[TopicPartition, KnownOffset] = {}
        self._written_s = float("-inf")

    def open(self, checkpoint: str, life: str) -> None:
        """Read the note of earlier starts, unless that has been done.

        Args:
            checkpoint: The checkpoint location.
            life: The id of the topic of the tasks' numbers; a note of another one does not count.
        """
        if self._place == (checkpoint, life):
            return
        self._place = checkpoint, life
        self.offsets = self._read()
        self._written = dict(self.offsets)

    def committed(self) -> dict[TopicPartition, int]:
        """Return the offsets; from any thread."""
        return {tp: at.offset for tp, at in list(self.offsets.items())}

    def _read(self) -> dict[TopicPartition, KnownOffset]:
        checkpoint, life = self._place
        try:
            noted = json.loads(read_document(checkpoint, _DOCUMENT) or "{}")
            if noted.get("life") != life or not life:
                return {}
            return {TopicPartition(topic, number): KnownOffset(*at) for topic, number, *at in noted["offsets"]}
        except (PenstockError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            _log.warning("the note of committed offsets in %s cannot be read: %s", checkpoint, error)
            return {}

    def note(self, epoch: int, threads: Mapping[str, ThreadState]) -> None:
        """Note what the threads of an epoch have committed."""
        for thread in threads.values():
            for name, offset in thread.report.get("committed", {}).items():
                topic, _, partition = name.rpartition("-")
                tp = TopicPartition(topic, int(partition))
                before = self.offsets.get(tp)
                if before is None or before.epoch < epoch or before.offset < offset:
                    self.offsets[tp] = KnownOffset(int(offset), epoch)
        if time.monotonic() - self._written_s >= _EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the note, if anything has changed."""
        checkpoint, life = self._place
        if not checkpoint or self.offsets == self._written:
            return
        self._written_s = time.monotonic()
        offsets = [[tp.topic, tp.partition, *at] for tp, at in sorted(self.offsets.items())]
        try:
            write_document(checkpoint, _DOCUMENT, json.dumps({"life": life, "offsets": offsets}))
            self._written = dict(self.offsets)
        except (PenstockError, OSError) as error:  # the next start knows less
            _log.warning("the committed offsets are not noted in %s: %s", checkpoint, error)
