"""Interactive queries of a `KafkaStreams` object: its stores, and its hosts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penstock.base.argument_checks import check_given
from penstock.errors import InvalidStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config import StreamsConfig
    from penstock.engines.lifecycle import State
    from penstock.query import StateQueryRequest, StateQueryResult, StoreQueryParameters
    from penstock.query.http.service import QueryService
    from penstock.query.instances import Instance, Instances, KeyQueryMetadata, StreamsMetadata
    from penstock.query.placement import LagInfo
    from penstock.query.source import CommittedStores, StoreInfo
    from penstock.topology.topology import Topology

__all__ = ["StoreQueries"]


class StoreQueries:
    """The queries of an application, which see committed state only.

    Args:
        topology: The application's topology.
        config: Its settings.
        state: Returns its state.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, state: Callable[[], State]) -> None:
        self._topology, self._config, self._state = topology, config, state
        self._opened: QueryService | None = None
        self._opening = threading.Lock()  # of this application: another one's log may answer late

    def service(self) -> QueryService:
        """Return the service that answers queries; it is opened at the first call."""
        with self._opening:
            if self._opened is None:
                from penstock.engines.committed_state.opening import instances_of, lag_of, open_committed
                from penstock.query.http.service import QueryService

                state = open_committed(self._topology, self._config)
                self._opened = QueryService(state, is_active=self._is_active, lag=lag_of(self._config))
                self._opened.instances = instances_of(self._topology, self._config, state)
            return self._opened

    def store(self, parameters: str | StoreQueryParameters[Any]) -> Any:
        """Return a read-only store, see `KafkaStreams.store`."""
        from penstock.query import StoreQueryParameters
        from penstock.query.stores import open_store

        hint = 'For example streams.store("os-counts").'
        check_given(parameters, (str, StoreQueryParameters), "store()", "a name or StoreQueryParameters", hint)
        query = StoreQueryParameters(parameters) if isinstance(parameters, str) else parameters
        if not query.stale_stores:
            self._require_running("store")
        return open_store(self._committed().stale() if query.stale_stores else self._committed(), query)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Answer a request partition by partition, see `KafkaStreams.query`."""
        from penstock.query.execute import check_request, run_query

        check_request(request)
        return run_query(self._committed(), request, is_active=self._is_active())

    def metadata_of_key(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return the instances that answer for a key, and its partition."""
        return self.service().key_metadata(store, key)

    def instances_with(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have a store."""
        self.service().state.store(store)
        return self.instances()

    def instances(self) -> list[StreamsMetadata]:
        """Return all registered instances."""
        service = self.service()
        stores = service.state.stores()
        return [_metadata_of(one, service.instances, stores) for one in service.instances.alive()]

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return by store and partition how far the copies on this machine are behind."""
        return {store: dict(parts) for store, parts in self._committed().lags().items()}

    def close(self) -> None:
        """Close the stores that have been opened; a later query opens them again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _committed(self) -> CommittedStores:
        return self.service().state

    def _is_active(self) -> bool:
        return self._state().is_running_or_rebalancing

    def _require_running(self, call: str) -> None:
        if not self._is_active():
            raise InvalidStateError(
                f"{call}() is for running applications; this one is {self._state().value}",
                hint="Call start() first; or read what was committed last, with "
                "StoreQueryParameters(name).enable_stale_stores().",
            )


def _metadata_of(one: Instance, instances: Instances, stores: Mapping[str, StoreInfo]) -> StreamsMetadata:
    """Return the stores of an instance, and the partitions of topics behind them, by its roles."""
    from penstock.query.instances import StreamsMetadata

    names: dict[str, set[str]] = {"active": set(), "standby": set()}
    places: dict[str, set[tuple[str, int]]] = {"active": set(), "standby": set()}
    for store, info in stores.items():
        for partition in range(info.partitions):
            role = instances.role_of(one, store, partition)
            if role is not None:
                names[role].add(store)
                places[role] |= {(topic, partition) for topic in info.topics}
    return StreamsMetadata(
        one.host_info,
        frozenset(names["active"]),
        frozenset(places["active"]),
        frozenset(names["standby"]),
        frozenset(places["standby"]),
    )
