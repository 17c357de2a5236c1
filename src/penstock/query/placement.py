"""The places of tasks and standbys in continuous mode, as the driver notes them in the checkpoint for queries.

A *place* is the identity of a folder of replicas. A query reads the replica in the folder of its own machine, and this
note says whether that is the replica of the thread that runs the task or a standby.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.base.clock import unix_ms
from penstock.base.java_names import with_java_names
from penstock.base.log_lines import own_logger
from penstock.errors import PenstockError
from penstock.state.checkpoint import delete_document, read_document, write_document

__all__ = ["LagInfo", "PlacementNote", "Placements", "Standby", "TaskPlaces"]

_log = own_logger(__name__)
_DOCUMENT = "placement.json"
_AGAIN_MS = 5_000  # the note is written again, so that an old one can be recognised
_CHANGED_MS = 1_000
_VALID_MS = 20_000
_REFRESH_S = 1.0


@with_java_names
@dataclass(frozen=True, slots=True)
class LagInfo:
    """Kafka's ``LagInfo``: how far a copy of a store partition is behind its changelog.

    Attributes:
        current_offset_position: The offset after the last record in the copy. In micro-batches: the number of batches.
        end_offset_position: The end of the committed records. In micro-batches: the number of committed batches.

    >>> LagInfo(7, 10).offset_lag
    3
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """The number of offsets that the copy is behind."""
        return max(0, self.end_offset_position - self.current_offset_position)


@dataclass(frozen=True, slots=True)
class Standby:
    """A place with a standby of a task.

    Attributes:
        host: Its machine.
        place: Its folder of replicas.
        lag: The number of records that it lacked at its last look; None before the first one.
    """

    host: str
    place: str
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class TaskPlaces:
    """The places with the state of a task.

    Attributes:
        host: The machine of the thread that runs it; empty if none does.
        place: The folder of replicas of that thread.
        standbys: Its standbys.
    """

    host: str = ""
    place: str = ""
    standbys: tuple[Standby, ...] = ()

    @property
    def all(self) -> frozenset[str]:
        """All places with its state."""
        return frozenset(filter(None, (self.place, *(each.place for each in self.standbys))))

    def is_standby_at(self, place: str) -> bool:
        """Return whether a place has a standby, and not the task itself.

        >>> TaskPlaces("h1", "a", (Standby("h2", "b"),)).is_standby_at("b")
        True
        """
        return place != self.place and any(each.place == place for each in self.standbys)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        standbys = [[each.host, each.place, each.lag] for each in self.standbys]
        return {"host": self.host, "place": self.place, "standbys": standbys}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TaskPlaces:
        """Read what `to_json` has returned."""
        return cls(
            str(document["host"]), str(document["place"]), tuple(Standby(*each) for each in document["standbys"])
        )


@dataclass(slots=True)
class PlacementNote:
    """The note of a running application, written by its driver.

    Attributes:
        checkpoint: The checkpoint location.
    """

    checkpoint: str
    _written: Mapping[str, TaskPlaces] = field(default_factory=dict)
    _at_ms: int = 0

    def write(self, places: Mapping[str, TaskPlaces]) -> None:
        """Note the places of all tasks: at most once a second, and every five seconds if nothing changes."""
        now = unix_ms()
        if now - self._at_ms < (_AGAIN_MS if places == self._written else _CHANGED_MS):
            return
        self._written, self._at_ms = dict(places), now
        tasks = {task: each.to_json() for task, each in places.items()}
        try:
            write_document(self.checkpoint, _DOCUMENT, json.dumps({"written_ms": now, "tasks": tasks}))
        except (PenstockError, OSError) as error:  # queries then do not know who is a standby
            _log.debug("the places of the tasks are not noted: %s", error)

    def remove(self) -> None:
        """Remove the note at the end of the application."""
        if self._at_ms:
            with suppress(PenstockError, OSError):
                delete_document(self.checkpoint, _DOCUMENT)


class Placements:
    """The places of an application's tasks, read from the note of its driver, with an age of a second at most.

    Args:
        checkpoint: The checkpoint location.
    """

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._looked = float("-inf")
        self._tasks: Mapping[str, TaskPlaces] = {}

    def of(self, task: str) -> TaskPlaces | None:
        """Return the places of a task; None if they are not known: the application does not run, or elsewhere."""
        if time.monotonic() - self._looked > _REFRESH_S:
            self._tasks = self._read()
            self._looked = time.monotonic()
        return self._tasks.get(task)

    def _read(self) -> Mapping[str, TaskPlaces]:
        try:
            document = json.loads(read_document(self._checkpoint, _DOCUMENT) or "{}")
            if unix_ms() - int(document.get("written_ms", 0)) > _VALID_MS:
                return {}
            return {task: TaskPlaces.of(each) for task, each in document["tasks"].items()}
        except (PenstockError, OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError):
            return {}  # one of another version, or a checkpoint that cannot be reached: queries go on without it
