"""The HTTP port of an application: its queries, metrics and alerts, and the pages of its extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.metrics import prometheus_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config import StreamsConfig
    from penstock.engines.app_metrics import AppMetrics
    from penstock.engines.committed_state.interactive_queries import StoreQueries
    from penstock.engines.extensions import ApplicationExtensions
    from penstock.engines.lifecycle import State
    from penstock.query.http.server import QueryServer
    from penstock.query.http.service import QueryService
    from penstock.query.instances import HostInfo, Registration

__all__ = ["HttpPort"]

_log = own_logger(__name__)


class HttpPort:
    """The query server of an application, or the registration of the user's own server, as the settings ask.

    Args:
        config: The application's settings.
        queries: Its queries.
        metrics: Its metrics.
        extensions: Its extensions, whose pages are served beside the queries.
        state: Returns its state.
    """

    def __init__(
        self,
        config: StreamsConfig,
        queries: StoreQueries,
        metrics: AppMetrics,
        extensions: ApplicationExtensions,
        state: Callable[[], State],
    ) -> None:
        self._config, self._queries, self._metrics, self._extensions = config, queries, metrics, extensions
        self._state = state
        self._server: QueryServer | None = None
        self._noted: Registration | None = None
        self._advertised: HostInfo | None = None

    @property
    def url(self) -> str | None:
        """The address of the server; None if there is none."""
        return None if self._server is None else self._server.url

    @property
    def advertised(self) -> HostInfo | None:
        """The address at which other instances reach this one's queries; None if there is none."""
        return self._advertised

    def open(self) -> None:
        """Start the server; or only register the address of the user's own server."""
        from penstock.query.instances import HostInfo

        port, server = self._config["penstock.http.port"], str(self._config["application.server"] or "")
        advertised = self._advertised = HostInfo.of(server) if server else None
        if port is not None:
            self._serve(HostInfo(str(self._config["penstock.http.host"]), int(port)), advertised)
        elif advertised is not None:
            self._register(self._queries.service(), advertised)

    def _register(self, service: QueryService, advertised: HostInfo) -> None:
        from penstock.query.instances import Instance, Registration

        service.host = advertised
        instance = Instance(advertised.host, advertised.port, "active", serves_http=False)
        self._noted = Registration(service.state.checkpoint, instance, service.state.place)

    def _serve(self, address: HostInfo, advertised: HostInfo | None) -> None:
        from penstock.query.http.server import QueryServer

        service = self._queries.service()
        service.exposition, service.figures = self._exposition, self._metrics.exported
        service.alerts, service.phase = self._extensions.alerts, lambda: self._state().value
        pages = self._extensions.pages()
        server = self._server = QueryServer(service, address=address, advertised=advertised, role="active", pages=pages)
        server.start()
        self._advertised = server.advertised
        _log.info("Queries are answered at %s", server.url)
        self._extensions.served_at(server.url, lambda: server.is_stopping)

    def _exposition(self) -> str:
        self._metrics.catch_up()
        return prometheus_text(self._metrics.registry) + self._extensions.exposition()

    def close(self) -> None:
        """Stop serving, and close the stores that queries have opened."""
        for one in (self._server, self._noted):
            if one is not None:
                one.close()
        self._server = self._noted = self._advertised = None
        self._queries.close()
