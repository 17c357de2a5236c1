"""The console as an extension of each application: its recorder, and its pages at the application's HTTP port."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.console.actions import audit, stop_asked
from penstock.console.alerts import alert_lines
from penstock.console.applications import OwnApplication
from penstock.console.recorder import Recorder
from penstock.console.topology_drawing import watched
from penstock.engines.extensions import ApplicationExtension, ApplicationHandle
from penstock.errors import EnvironmentProblemError
from penstock.state.checkpoint import local_directory

if TYPE_CHECKING:
    from penstock.console.web.server import EmbeddedConsole
    from penstock.engines.application_run import Run
    from penstock.engines.spark.progress import BatchProgress
    from penstock.errors import PenstockError
    from penstock.metrics import BatchRecord
    from penstock.serving import Beside

__all__ = ["ConsoleExtension"]

_log = own_logger(__name__)
_LOOK_S, _LOOK_REMOTE_S = 2.0, 15.0


class ConsoleExtension(ApplicationExtension):
    """The console of a running application.

    It records what the application does, for its own pages and for consoles of other processes, judges the alerts, and
    stops the application when a console asks for that.
    """

    def __init__(self, application: ApplicationHandle) -> None:
        super().__init__(application)
        self._recorder = Recorder.of(application.config, lambda: application.state().value, application.batches)
        self._console: EmbeddedConsole | None = None
        self._checkpoint: str | None = None
        self._has_others = False
        self._next_look = 0.0

    def started(self, run: Run) -> None:
        """Begin to record."""
        self._checkpoint = None if run.places is None else run.places.checkpoint
        what = watched(run)
        self._has_others = what.has_others
        self._recorder.begin(what)

    def batch_done(self, progress: BatchProgress, record: BatchRecord) -> None:
        """Record a batch."""
        self._recorder.take(progress, record)

    def failed(self, error: PenstockError) -> None:
        """Record the error."""
        self._recorder.failure = error

    def is_stop_requested(self) -> bool:
        """Look now and then whether a console of another process has asked for the end, in the checkpoint."""
        document = self._recorder.document()
        if self._checkpoint is None or not document or time.monotonic() < self._next_look:
            return False
        is_local = local_directory(self._checkpoint) is not None
        self._next_look = time.monotonic() + (_LOOK_S if is_local else _LOOK_REMOTE_S)
        if not stop_asked(self._checkpoint, document["started_ms"], of_all=self._has_others):
            return False
        audit("the console", f"stop {self.application.config['application.id']}", "stopping")
        return True

    def page(self) -> Beside | None:
        """Return the pages below ``/ui``, if they are enabled and their libraries are installed."""
        config = self.application.config
        if not config["penstock.console.enabled"]:
            return None
        from penstock.console.web.server import EmbeddedConsole, require_console_libraries

        try:
            require_console_libraries()
        except EnvironmentProblemError as error:
            _log.info("%s; %s", error.message, error.hint)
            return None
        queries, stop = self.application.queries, self.application.stop
        self._console = EmbeddedConsole(OwnApplication(config["application.id"], self._recorder, queries, stop), config)
        return self._console.beside()

    def served_at(self, url: str, is_stopping: Callable[[], bool]) -> None:
        """Make the address with the token."""
        if self._console is not None:
            self.url = self._console.served_at(url, is_stopping)
            _log.info("The console is at %s/ui", url)

    def exposition(self) -> str:
        """Return the alerts in Prometheus' text format."""
        return alert_lines(self.application.config["application.id"], self.alerts())

    def alerts(self) -> Sequence[Mapping[str, Any]]:
        """Return the alerts that hold."""
        return list(self._recorder.document().get("alerts", ()))

    def close(self) -> None:
        """Write what has been recorded a last time, and close the pages."""
        self._recorder.close()
        if self._console is not None:
            self._console.close()
        self._console = self.url = None
