"""Extensions of applications: what plugs into each `KafkaStreams`, such as the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.extension_points import ExtensionPoint
from penstock.base.log_lines import own_logger

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application_run import Run
    from penstock.engines.lifecycle import State
    from penstock.engines.spark.progress import BatchProgress
    from penstock.errors import PenstockError
    from penstock.metrics import BatchHistory, BatchRecord
    from penstock.query.http.service import QueryService
    from penstock.serving import Beside
    from penstock.topology.topology import Topology

__all__ = ["APPLICATIONS", "ApplicationExtension", "ApplicationExtensions", "ApplicationHandle"]

_log = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class ApplicationHandle:
    """An application as its extensions see it.

    Attributes:
        config: Its settings.
        topology: Its topology.
        state: Returns its state.
        batches: Its last batches; of stream threads, the looks at them, about one a second.
        queries: Returns the service that answers queries of its stores.
        stop: Stops it, without waiting for its end.
    """

    config: StreamsConfig
    topology: Topology
    state: Callable[[], State]
    batches: BatchHistory
    queries: Callable[[], QueryService]
    stop: Callable[[], None]


class ApplicationExtension:
    """An extension of one application: a subclass overrides the methods that it needs.

    One is made at each start, before anything else is done. All methods but `batch_done` are called by the threads that
    start and watch the application; `batch_done` by the one that counts its metrics. None is called for single records.

    Attributes:
        url: Where people find it, if it has a page of its own.
    """

    url: str | None = None

    def __init__(self, application: ApplicationHandle) -> None:
        self.application = application

    def started(self, run: Run) -> None:
        """Begin; the application's query has been started. An error ends the start."""

    def batch_done(self, progress: BatchProgress, record: BatchRecord) -> None:
        """Take note of a batch, or of what stream threads have done since the last look."""

    def failed(self, error: PenstockError) -> None:
        """Take note of the error that ends the application; `close` follows."""

    def is_stop_requested(self) -> bool:
        """Return whether the application is to stop; asked several times a second. `application.stop()` is faster."""
        return False

    def error(self) -> PenstockError | None:
        """Return the error that is to end the application, if there is one; asked as often, and after `close`."""
        return None

    def page(self) -> Beside | None:
        """Return what to serve at the application's HTTP port, below a prefix of its own; asked once, if it has one."""
        return None

    def served_at(self, url: str, is_stopping: Callable[[], bool]) -> None:
        """Take note of the address of the HTTP port that serves `page`, and of what says that it stops."""

    def exposition(self) -> str:
        """Return lines in Prometheus' text format, to be added to ``/metrics``."""
        return ""

    def alerts(self) -> Sequence[Mapping[str, Any]]:
        """Return the alerts that hold, to be added to ``/health``."""
        return ()

    def close(self) -> None:
        """Release everything; called at the end, and perhaps again."""


def _is_extension(loaded: object) -> bool:
    return isinstance(loaded, type) and issubclass(loaded, ApplicationExtension)


APPLICATIONS: ExtensionPoint[type[ApplicationExtension]] = ExtensionPoint(
    "penstock.applications", _is_extension, "a subclass of penstock.extensions.ApplicationExtension"
)
"""The extensions of applications: subclasses of `ApplicationExtension`."""


class ApplicationExtensions:
    """All extensions of one application; empty until `load`."""

    def __init__(self) -> None:
        self._loaded: Mapping[str, ApplicationExtension] = {}
        self._has_raised: set[tuple[str, str]] = set()  # extension, method: the log has the error once

    def load(self, application: ApplicationHandle) -> None:
        """Make the extensions that are installed.

        Raises:
            EnvironmentProblemError: One cannot be imported.
            ConfigError: One is not an `ApplicationExtension`, or there are two of one name.
        """
        self._loaded = {name: kind(application) for name, kind in APPLICATIONS.all().items()}

    def url(self, name: str) -> str | None:
        """Return where people find an extension; None if it has no page, or is not there."""
        extension = self._loaded.get(name)
        return None if extension is None else extension.url

    def started(self, run: Run) -> None:
        """Begin."""
        for each in self._loaded.values():
            each.started(run)

    def batch_done(self, progress: BatchProgress, record: BatchRecord) -> None:
        """Pass a batch on."""
        for name, each in self._loaded.items():
            self._guarded(name, each.batch_done, progress, record)

    def failed(self, error: PenstockError) -> None:
        """Pass on the error that ends the application."""
        for name, each in self._loaded.items():
            self._guarded(name, each.failed, error)

    def is_stop_requested(self) -> bool:
        """Return whether one wants the application to stop."""
        return any(self._guarded(name, each.is_stop_requested) for name, each in self._loaded.items())

    def error(self) -> PenstockError | None:
        """Return the first error that is to end the application."""
        errors = (self._guarded(name, each.error) for name, each in self._loaded.items())
        return next((error for error in errors if error is not None), None)

    def pages(self) -> list[Beside]:
        """Return what to serve at the HTTP port."""
        possible_pages = (each.page() for each in self._loaded.values())
        return [page for page in possible_pages if page is not None]

    def served_at(self, url: str, is_stopping: Callable[[], bool]) -> None:
        """Pass on the address of the HTTP port."""
        for each in self._loaded.values():
            each.served_at(url, is_stopping)

    def exposition(self) -> str:
        """Return the lines that all add to ``/metrics``."""
        return "".join(self._guarded(name, each.exposition) or "" for name, each in self._loaded.items())

    def alerts(self) -> list[Mapping[str, Any]]:
        """Return the alerts of all."""
        alert_lists = (self._guarded(name, each.alerts) or () for name, each in self._loaded.items())
        return [alert for alerts in alert_lists for alert in alerts]

    def close(self) -> None:
        """Close all."""
        for name, each in self._loaded.items():
            self._guarded(name, each.close)

    def _guarded(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of an extension; the application does not end for its errors."""
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - logged; the application goes on
            method = (name, call.__name__)
            if method in self._has_raised:
                _log.debug("%s of the extension %s has raised again: %s", call.__name__, name, error)
            else:
                self._has_raised.add(method)
                _log.exception("%s of the extension %s has raised; later errors are logged at DEBUG", *reversed(method))
            return None
