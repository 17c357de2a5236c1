"""The sink connectors of an application, which run as long as it does: `KStream.sink_to`."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.extensions import ApplicationExtension
from penstock.errors import ConnectError, LogUnavailableError, PenstockError
from penstock.topology.nodes import SinkNode

if TYPE_CHECKING:
    from penstock.connect.plugins import Plugins
    from penstock.engines.application_run import Run
    from penstock.engines.extensions import ApplicationHandle

__all__ = ["ConnectorSinks"]

_log = own_logger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0  # between two tries while the log is away
_LOOK_S = 0.2
_END_S = 30.0  # for what a sink has read to be written and committed


class ConnectorSinks(ApplicationExtension):
    """The connectors that carry topics of an application on, each in a thread of its process.

    Args:
        application: The application.

    Raises:
        SettingError: There is no such connector, or its settings are wrong; the application does not start.
    """

    def __init__(self, application: ApplicationHandle) -> None:
        super().__init__(application)
        nodes = application.topology.nodes.values()
        sinks = [node for node in nodes if isinstance(node, SinkNode) and node.connector and node.topic]
        self._configs = [self._config(node) for node in sinks]
        self._plugins: Plugins | None = None
        self._stopped, self._ending = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._error: PenstockError | None = None
        self._run: Run | None = None
        if self._configs:
            self._check()

    def _config(self, node: SinkNode) -> dict[str, str]:
        name = f"{self.application.config['application.id']}-{node.topic}"
        return {"name": name, **dict(node.connector), "topics": str(node.topic)}

    def _check(self) -> None:
        from penstock.connect.connectors import with_own
        from penstock.connect.data import SettingError
        from penstock.connect.delivery.local_run import check_config
        from penstock.connect.functions import installed_plugins
        from penstock.connect.plugins import PluginKind

        self._plugins = with_own(installed_plugins([Path.cwd()], lambda message: _log.warning("%s", message)))
        names: set[str] = set()
        for config in self._configs:
            if config["name"] in names:
                raise ConnectError(
                    f"two sinks have connectors of the name {config['name']!r}",
                    hint="Give one of them another name in the settings of sink_to().",
                )
            names.add(config["name"])
            what, chosen = f"the connector {config['name']} of topic {config['topics']}", config["connector.class"]
            try:
                check_config(config, self._plugins)
            except SettingError as error:
                raise SettingError(f"{what}: {error.message}", hint=error.hint) from error
            if PluginKind.SINK not in self._plugins.connector(chosen).kinds:
                raise SettingError(
                    f"{what}: {chosen} is a source, which sink_to() cannot write to",
                    hint="penstock connect list shows the sinks.",
                )

    def started(self, run: Run) -> None:
        """Begin to carry records."""
        self._run = run
        for config in self._configs:
            run_it = partial(self._keep_running, config, shares=not run.until_latest)
            thread = threading.Thread(target=run_it, name=f"penstock-sink-{config['name']}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def failed(self, error: PenstockError) -> None:  # noqa: ARG002 - whichever it is
        """Stop: the results of an application that has failed come with its next run."""
        self._stopped.set()

    def error(self) -> PenstockError | None:
        """Return the error of the connector that has failed first."""
        return self._error

    def close(self) -> None:
        """Stop; a run until "latest" waits until all has been carried."""
        is_whole = self._run is not None and self._run.until_latest and not self._is_to_stop()
        self._ending.set()
        while is_whole and not self._is_to_stop() and any(thread.is_alive() for thread in self._threads):
            time.sleep(_LOOK_S)
        self._stopped.set()
        for thread in self._threads:
            thread.join(_END_S)
            if thread.is_alive():
                _log.warning("%s has not ended; what it has not committed comes again", thread.name)
        self._threads = []

    def _is_to_stop(self) -> bool:
        return self._stopped.is_set() or self._error is not None or (self._run is not None and self._run.is_stopped())

    def _keep_running(self, config: dict[str, str], *, shares: bool) -> None:
        """Run a connector until the end, again and again where the log is away."""
        pause_s = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            try:
                self._carry(config, shares=shares)
            except LogUnavailableError as error:
                text = "%s: the log is away: %s; the connector goes on when it is back"
                _log.warning(text, config["name"], error.message)
                self._stopped.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - whatever a connector raises ends the application
                self._fail(config, error)
                return
            else:
                return

    def _carry(self, config: dict[str, str], *, shares: bool) -> None:
        from penstock.connect.delivery.local_run import ConnectorRun
        from penstock.engines.application.locations import open_app_log

        assert self._plugins is not None  # noqa: S101 - made with the first config
        with open_app_log(self.application.config) as log:
            connector = ConnectorRun(log, config, self._plugins, shares=shares)
            _log.info("%s carries %s to %s", config["name"], config["topics"], config["connector.class"])
            connector.run(self._stopped, ending=self._ending)

    def _fail(self, config: dict[str, str], error: Exception) -> None:
        text = error.message if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, PenstockError) else ""
        failure = ConnectError(
            f"the connector {config['name']} of topic {config['topics']} has failed: {text}", hint=hint
        )
        failure.__cause__ = error
        self._error = self._error or failure
