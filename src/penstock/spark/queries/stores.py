"""Interactive queries of a `KafkaStreams` object: its stores, its hosts, and its query server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.errors import InvalidStateError
from penstock.given import check_given
from penstock.log_lines import own_logger

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.query import StateQueryRequest, StateQueryResult, StoreQueryParameters
    from penstock.query.http.server import QueryServer
    from penstock.query.http.service import QueryService
    from penstock.query.metadata import HostInfo, KeyQueryMetadata, Registration, StreamsMetadata
    from penstock.query.placement import LagInfo
    from penstock.query.source import CommittedStores
    from penstock.serving import Beside
    from penstock.topology.topology import Topology

__all__ = ["InteractiveQueries"]

S = TypeVar("S")

_log = own_logger(__name__)
_RUNNING = ("RUNNING", "REBALANCING")


class InteractiveQueries:
    """The part of ``KafkaStreams`` that answers queries, which see committed state only."""

    config: StreamsConfig
    topology: Topology
    _queries: QueryService | None = None
    _server: QueryServer | None = None
    _noted: Registration | None = None
    _exposition: Callable[[], str] | None = None
    _exported: Callable[[str], dict[str, Any]] | None = None
    _alerts: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    _opening: threading.Lock  # of this application: another one's log may answer late

    def _state_name(self) -> str:
        raise InvalidStateError("only an application has a state")

    # Stores

    @overload
    def store(self, parameters: str) -> Any: ...

    @overload
    def store(self, parameters: StoreQueryParameters[S]) -> S: ...

    def store(self, parameters: str | StoreQueryParameters[Any]) -> Any:
        """Return a read-only store over all partitions; Kafka's ``store``.

        Type checkers know its methods if a type is asked for:
        ``store(StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store()))``.

        Args:
            parameters: The store's name, or `StoreQueryParameters` for a type, one partition, or a stopped application.

        Example:
            streams.store("os-counts").get("linux")

        Raises:
            InvalidStateError: The application does not run, and stale stores are not enabled.
            StateError: There is no such store, or it is of another type.
        """
        from penstock.query import StoreQueryParameters
        from penstock.query.stores import open_store

        hint = 'For example streams.store("os-counts").'
        check_given(parameters, (str, StoreQueryParameters), "store()", "a name or StoreQueryParameters", hint)
        wanted = StoreQueryParameters(parameters) if isinstance(parameters, str) else parameters
        if not wanted.stale_stores:
            self._require_running("store")
        return open_store(self._committed().stale() if wanted.stale_stores else self._committed(), wanted)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Answer a request partition by partition; Kafka's ``query`` (interactive queries, version 2).

        Example:
            streams.query(StateQueryRequest.in_store("os-counts").with_query(KeyQuery.with_key("linux")))

        Raises:
            StateError: There is no such store.
        """
        from penstock.query.execute import check_request, run_query

        check_request(request)
        return run_query(self._committed(), request, is_active=self._state_name() in _RUNNING)

    # Hosts

    def query_metadata_for_key(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return the instances that answer for a key, and its partition; Kafka's ``queryMetadataForKey``."""
        return self._service().key_metadata(store, key)

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have a store; Kafka's ``streamsMetadataForStore``."""
        self._service().state.store(store)
        return self.metadata_for_all_streams_clients()

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return all registered instances; Kafka's ``metadataForAllStreamsClients``."""
        from penstock.query.metadata import StreamsMetadata

        service = self._service()
        stores = service.state.stores()
        names = frozenset(stores)
        parts = frozenset((t, p) for info in stores.values() for t in info.topics for p in range(info.partitions))
        none: frozenset[Any] = frozenset()
        return [
            StreamsMetadata(one.host_info, names, parts)
            if one.role == "active"
            else StreamsMetadata(one.host_info, none, none, names, parts)
            for one in service.instances.alive()
        ]

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return by store and partition how far the copies on this machine are behind (``allLocalStorePartitionLags``).

        In continuous mode the replicas of threads and standbys of this machine, and copies that this process has made
        for queries, by offsets of the changelog. In micro-batches all answers are those of the newest batch.

        Example:
            streams.all_local_store_partition_lags()["os-counts"][0].offset_lag
        """
        return {store: dict(parts) for store, parts in self._committed().lags().items()}

    @property
    def query_url(self) -> str | None:
        """The URL of this application's query server; None if it has none."""
        return None if self._server is None else self._server.url

    # Inside

    def _committed(self) -> CommittedStores:
        return self._service().state

    def _service(self) -> QueryService:
        with self._opening:
            if self._queries is None:
                from penstock.query.http.service import QueryService
                from penstock.spark.queries.committed import lag_of, open_committed

                state = open_committed(self.topology, self.config)
                self._queries = QueryService(
                    state, is_active=lambda: self._state_name() in _RUNNING, lag=lag_of(self.config)
                )
            return self._queries

    def _require_running(self, call: str) -> None:
        if self._state_name() not in _RUNNING:
            raise InvalidStateError(
                f"{call}() is for running applications; this one is {self._state_name()}",
                hint="Call start() first; or read what was committed last, with "
                "StoreQueryParameters(name).enable_stale_stores().",
            )

    def _serve(self) -> None:
        """Start a query server, or only register the address of the user's own server, as the settings ask."""
        from penstock.query.metadata import HostInfo, Instance, Registration

        port, server = self.config["penstock.http.port"], str(self.config["application.server"] or "")
        advertised: HostInfo | None = HostInfo.of(server) if server else None
        if port is None:
            if advertised is not None:
                service = self._service()
                service.host = advertised
                instance = Instance(advertised.host, advertised.port, "active", serves_http=False)
                self._noted = Registration(service.state.checkpoint, instance, service.state.place)
            return
        from penstock.query.http.server import QueryServer

        service = self._service()
        service.exposition, service.figures, service.alerts = self._exposition, self._exported, self._alerts
        self._server = QueryServer(
            service,
            address=HostInfo(str(self.config["penstock.http.host"]), int(port)),
            advertised=advertised,
            role="active",
            beside=self._beside(),
        )
        self._server.start()
        _log.info("Queries are answered at %s", self._server.url)

    def _beside(self) -> Beside | None:
        """Return a further application for the port of the query server."""
        return None

    def _stop_serving(self) -> None:
        for one in (self._server, self._noted, self._queries):
            if one is not None:
                one.close()
        self._server = self._noted = self._queries = None
