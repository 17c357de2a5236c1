"""The applications that a console shows: its own, and those that the log and the given checkpoints know."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.console.alerts import alerts_of
from penstock.console.app_view import DIED, ENDED, Picture
from penstock.console.recorder import HISTORY, NOW, TOPOLOGY, changed_ms, read_facts
from penstock.engines.application.locations import Locations
from penstock.errors import ConfigError, PenstockError
from penstock.log.leases import is_fresh
from penstock.state.checkpoint import read_document
from penstock.topology.plan.internal_topics import numbers_topic

if TYPE_CHECKING:
    from penstock.console.recorder import Recorder
    from penstock.log.base import TopicLog
    from penstock.query.http.service import QueryService

__all__ = ["Application", "Applications", "OwnApplication"]

_NAMES_S = 2.0


class Application:
    """An application that runs in another process, or has run: what its checkpoint and the log say.

    Args:
        name: The ``application.id``.
        checkpoint: Its checkpoint location.
        log: The console's log.
        open_log: Opens the log once more, for the stores of an application in continuous mode.
    """

    def __init__(
        self, name: str, checkpoint: str, log: TopicLog | None, open_log: Callable[[], TopicLog] | None = None
    ) -> None:
        self.name, self.checkpoint = name, checkpoint
        self._log, self._open_log = log, open_log
        self._read: dict[str, tuple[int | None, dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._runs = self._has_members = False

    def stamp(self) -> object:
        """Return a value that changes when the figures do."""
        return changed_ms(self.checkpoint, NOW), self._is_leased()

    def picture(self) -> Picture:
        """Return its figures; without any, only its name and state."""
        document = self._document(NOW)
        runs = self._is_leased()
        if document is None:
            return Picture({"application": self.name, "state": "RUNNING" if runs else "NOT_RUNNING"})
        picture = Picture(document)
        if self._log is not None and not runs and picture.state not in ENDED:  # its process is gone without an end
            document = {**document, "state": DIED, "was": picture.state}
        elif self._has_members and picture.state in ENDED:  # of another instance, which has not written yet
            document = {**document, "state": "RUNNING"}
        dated = {(alert["name"], alert["where"]): alert for alert in document.get("alerts", ())}
        now = [
            dated.get((alert.name, alert.where), alert.document()) | {"what": alert.what}
            for alert in alerts_of(Picture(document))
        ]
        return Picture({**document, "alerts": now})

    def topology(self) -> dict[str, Any] | None:
        """Return its drawing; None if it has never run."""
        return self._document(TOPOLOGY)

    def minutes(self) -> list[list[Any]]:
        """Return its history, a row for each minute with batches."""
        return list((self._document(HISTORY) or {}).get("minutes", ()))

    @cached_property
    def _queries(self) -> QueryService:
        from penstock.engines.committed_state.opening import state_of_checkpoint
        from penstock.query.http.service import QueryService

        return QueryService(state_of_checkpoint(self.checkpoint, open_log=self._open_log))

    def queries(self) -> QueryService:
        """Return the service that answers queries of its stores.

        Raises:
            StateError: It has no checkpoint; or it runs in continuous mode, and there is no log.
        """
        with self._lock:
            return self._queries

    def close(self) -> None:
        """Release what was opened for queries."""
        if "_queries" in self.__dict__:
            self._queries.close()

    def _document(self, name: str) -> dict[str, Any] | None:
        with self._lock:
            changed = changed_ms(self.checkpoint, name)
            cached = self._read.get(name)
            if cached is None or cached[0] != changed:
                cached = self._read[name] = (changed, None if changed is None else read_facts(self.checkpoint, name))
            return cached[1]

    def _is_leased(self) -> bool:
        if self._log is not None and time.monotonic() - self._looked > _NAMES_S:
            self._looked = time.monotonic()
            lease = self._log.lease(self.name)
            is_leased = lease is not None and is_fresh(lease)
            self._has_members = not is_leased and self._has_instances(self._log)
            self._runs = is_leased or self._has_members
        return self._runs

    def _has_instances(self, log: TopicLog) -> bool:
        """Return whether instances that share its tasks run: they have no lease, but are members of its group."""
        return any(member.tasks for member in log.group_state(self.name).members)


@dataclass(slots=True)
class OwnApplication:
    """The application of the console's own process.

    Attributes:
        name: The ``application.id``.
        recorder: Its recorder.
        queries: Returns the service that answers queries of its stores.
        stop: Stops it, without waiting for its end; None: it cannot be stopped from here.
    """

    name: str
    recorder: Recorder
    queries: Callable[[], QueryService]
    stop: Callable[[], None] | None = None

    def stamp(self) -> object:
        """Return a value that changes when the figures do."""
        return self.recorder.version

    def picture(self) -> Picture:
        """Return its figures."""
        return Picture(self.recorder.document() or {"application": self.name, "state": "REBALANCING"})

    def topology(self) -> dict[str, Any] | None:
        """Return its drawing; None until it is known."""
        drawing = self.recorder.topology
        return None if drawing is None else dict(drawing)

    def minutes(self) -> list[list[Any]]:
        """Return its history, a row for each minute with batches."""
        return self.recorder.minutes()

    def close(self) -> None:
        """Do nothing: the application owns its parts."""


class Applications:
    """The applications of a console by name.

    Args:
        log: The console's log; None: only the given checkpoints.
        settings: Settings that say where checkpoints are: ``bootstrap.servers``, ``state.dir``.
        checkpoints: Further checkpoint locations.
        own: The application of this process.

    Attributes:
        open_log: Opens the log once more, for the stores of applications in continuous mode.
    """

    open_log: Callable[[], TopicLog] | None = None

    def __init__(
        self,
        log: TopicLog | None,
        settings: dict[str, Any] | None = None,
        checkpoints: Sequence[str] = (),
        own: OwnApplication | None = None,
    ) -> None:
        self._log, self._settings = log, dict(settings or {})
        self._own = own
        self._locations = {_name_at(location): location for location in checkpoints}
        self._applications: dict[str, Application] = {}
        self._names: list[str] = []
        self._looked = float("-inf")
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """List the applications, that of this process first."""
        with self._lock:
            if time.monotonic() - self._looked > _NAMES_S:
                self._looked = time.monotonic()
                log = self._log
                topics = set() if log is None else {topic.name for topic in log.topics()}
                groups = [] if log is None else log.groups()
                of_log = [group for group in groups if numbers_topic(group) in topics or _had_lease(log, group)]
                own = [] if self._own is None else [self._own.name]
                self._names = list(dict.fromkeys([*own, *self._locations, *sorted(of_log)]))
            return list(self._names)

    def get(self, name: str) -> Application | OwnApplication:
        """Return an application.

        Raises:
            PenstockError: There is none of this name.
        """
        if self._own is not None and name == self._own.name:
            return self._own
        if name not in self.names():
            raise PenstockError(
                f"no application is named {name!r}", hint=f"There are: {', '.join(self.names()) or 'none'}."
            )
        with self._lock:
            if name not in self._applications:
                self._applications[name] = Application(name, self._checkpoint(name), self._log, self.open_log)
            return self._applications[name]

    def _checkpoint(self, name: str) -> str:
        if name in self._locations:
            return self._locations[name]
        config = StreamsConfig({**self._settings, "application.id": name})
        return Locations.of(config, self._log).checkpoint

    def close(self) -> None:
        """Release what was opened for queries."""
        for each in self._applications.values():
            each.close()


def _name_at(location: str) -> str:
    """Return the application whose checkpoint is at a location."""
    text = read_document(location, "plan.json")
    if text is None:
        raise ConfigError(
            f"there is no checkpoint of an application at {location}",
            hint="It is the directory with plan.json: penstock.checkpoint.location, or by default "
            "<log file>.penstock/<application.id>/checkpoint.",
        )
    return str(json.loads(text)["plan"]["application"])


def _had_lease(log: TopicLog | None, group: str) -> bool:
    return log is not None and log.lease(group) is not None
