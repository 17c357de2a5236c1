"""Notes of the members that an instance on this machine is, for the time after it was killed.

Brokers wait for the end of a session (45 s by default) before they give the tasks of a killed member to others. The
next start on its machine sees that its process has ended, and leaves in its name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import PenstockError
from penstock.log.processes import is_of_here, may_run, own_process
from penstock.log.streams_groups.description import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, StreamsHeartbeat
from penstock.state.documents import replace_document

if TYPE_CHECKING:
    import uuid

    from penstock.engines.application.planned_app import PlannedApp
    from penstock.log.thread_clients import ThreadClients

__all__ = ["MemberNote", "leave_for_dead"]

_log = own_logger(__name__)
_OLD_S = 86_400.0  # of a note whose process cannot be seen, as from before the machine's last start


class MemberNote:
    """The note of an instance.

    Args:
        folder: The folder of the application's state on this machine.
        instance: The id of the instance.
    """

    def __init__(self, folder: Path, instance: uuid.UUID) -> None:
        self._path = folder / f"members-{instance}.json"

    def write(self, members: Mapping[str, str | None]) -> None:
        """Note the members, each with its ``group.instance.id``, in place of those before."""
        facts = {"process": own_process(), "members": dict(sorted(members.items()))}
        try:
            replace_document(str(self._path.parent), self._path.name, json.dumps(facts))
        except (OSError, PenstockError) as error:  # after a kill, brokers then wait for the end of the session
            _log.debug("the members are not noted: %s", error)

    def remove(self) -> None:
        """Remove it: all members have left."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def leave_for_dead(folder: Path, app: PlannedApp) -> None:
    """Leave the application's group in the name of members whose processes on this machine have ended.

    Args:
        folder: The folder of the application's state on this machine.
        app: The application.
    """
    for path in sorted(folder.glob("members-*.json")):
        try:
            noted = json.loads(path.read_text())
            host, pid, start = noted["process"]
            members = {str(each): static and str(static) for each, static in noted["members"].items()}
            runs = may_run(str(host), int(pid), str(start))
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.debug("%s cannot be read: %s", path, error)
            continue
        with suppress(PenstockError, OSError):
            if not runs:
                _leave(app, members)
                path.unlink()
            elif not is_of_here(str(start)) and time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()


def _leave(app: PlannedApp, members: Mapping[str, str | None]) -> None:
    clients: ThreadClients = app.log  # type: ignore[assignment] # both logs are
    with closing(clients.streams_coordinator()) as coordinator:
        for member, static in members.items():
            epoch = LEAVE_EPOCH if static is None else LEAVE_STATIC_EPOCH  # its next start has its tasks
            coordinator.heartbeat(StreamsHeartbeat(app.application, member, epoch, instance=static))
