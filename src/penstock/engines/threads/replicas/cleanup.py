"""Replicas of tasks that have moved away: removed after ``state.cleanup.delay.ms``, as by Kafka Streams."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.threads.replicas.replica_folders import continuous_replicas, global_folder
from penstock.state.replicas.unused import remove_idle

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp

__all__ = ["ReplicaCleanup"]

_log = own_logger(__name__)
_LEAST_PAUSE_S = 1.0


class ReplicaCleanup:
    """Kafka's cleanup thread: looks once in each delay, beside the loop of a stream thread, until `close`.

    A replica stays for the delay after the last process that had it open: the threads of this machine have those open
    that they run or follow. Several threads may look at once.

    Args:
        app: The application.
    """

    def __init__(self, app: ThreadApp) -> None:
        self._app = app
        self._delay_s = int(app.config["state.cleanup.delay.ms"]) / 1000
        self._ended = threading.Event()
        if app.replica_root is not None:
            threading.Thread(target=self._run, name="penstock-cleanup", daemon=True).start()

    def close(self) -> None:
        """Look no more; a removal that is under way goes on to its end."""
        self._ended.set()

    def remove(self) -> list[str]:
        """Remove what nobody has used for the delay; return the names of the folders."""
        app, removed = self._app, []
        root = Path(app.replica_root or "")
        shared = global_folder(root, app.application_id, app.identity)
        for folder in list(continuous_replicas(root, app.application_id, app.identity)):
            if folder != shared and remove_idle(folder, self._delay_s):
                removed.append(folder.name)
                _log.info("Removed the replica %s: its task has moved away, or is gone", folder)
        return removed

    def _run(self) -> None:
        while not self._ended.wait(max(_LEAST_PAUSE_S, self._delay_s)):
            try:
                self.remove()
            except Exception as error:  # noqa: BLE001 - the next look may succeed, and no task depends on it
                _log.warning("Unused replicas in %s could not be removed: %s", self._app.replica_root, error)
