"""What a running application shows of itself at its HTTP port: queries, metrics, alerts, and its console."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.console.actions import audit, stop_asked
from penstock.console.alerts import alert_lines
from penstock.errors import EnvironmentProblemError
from penstock.log_lines import own_logger
from penstock.metrics import prometheus_text
from penstock.spark.driver.app_metrics import MeasuredApplication
from penstock.spark.queries.stores import InteractiveQueries
from penstock.state.documents import local_directory

if TYPE_CHECKING:
    from penstock.console.recorder import Recorder
    from penstock.console.web.embedded import EmbeddedConsole
    from penstock.serving import Beside
    from penstock.spark.driver.running import Run

__all__ = ["ShownApplication"]

_log = own_logger(__name__)
_LOOK_S, _LOOK_REMOTE_S = 2.0, 15.0


class ShownApplication(MeasuredApplication, InteractiveQueries):
    """The part of ``KafkaStreams`` that answers queries, and shows the console beside them."""

    _recorder: Recorder
    _stop: threading.Event
    _console: EmbeddedConsole | None = None
    _console_url: str | None = None
    _run: Run | None = None
    _next_look = 0.0

    @property
    def console_url(self) -> str | None:
        """The address of the web console with its token, at the port of ``penstock.http.port``; None if there is none.

        Anybody who knows the address can see what the application does, and the messages of its log.
        """
        return self._console_url

    def _show(self) -> None:
        """Serve queries, metrics and the console, as the settings ask."""
        self._exposition, self._exported = self._exposed, self.exported_metrics
        self._alerts = self._alerts_now
        self._serve()
        if self._console is not None and self._server is not None:
            server = self._server
            self._console_url = self._console.served_at(server.url, lambda: server.is_stopping)
            _log.info("The console is at %s/ui", server.url)

    def _exposed(self) -> str:
        return prometheus_text(self.metrics) + alert_lines(self.config["application.id"], self._alerts_now())

    def _alerts_now(self) -> Sequence[Mapping[str, Any]]:
        return list(self._recorder.document().get("alerts", ()))

    def _beside(self) -> Beside | None:
        from penstock.console.applications import OwnApplication
        from penstock.console.web.server import require_console_libraries

        if not self.config["penstock.console.enabled"]:
            return None
        try:
            require_console_libraries()
        except EnvironmentProblemError as error:
            _log.info("%s; %s", error.message, error.hint)
            return None
        from penstock.console.web.embedded import EmbeddedConsole

        own = OwnApplication(self.config["application.id"], self._recorder, self._service, self._stop.set)
        self._console = EmbeddedConsole(own, self.config)
        return self._console.beside()

    def _is_asked_to_stop(self) -> bool:
        """Look now and then whether a console of another process has asked for the end, in the checkpoint."""
        run, document = self._run, self._recorder.document()
        if run is None or run.places is None or not document or time.monotonic() < self._next_look:
            return False
        is_local = local_directory(run.places.checkpoint) is not None
        self._next_look = time.monotonic() + (_LOOK_S if is_local else _LOOK_REMOTE_S)
        if not stop_asked(run.places.checkpoint, document["started_ms"]):
            return False
        audit("the console", f"stop {self.config['application.id']}", "stopping")
        return True

    def _stop_serving(self) -> None:
        super()._stop_serving()
        self._recorder.close()
        if self._console is not None:
            self._console.close()
        self._console = self._console_url = None
