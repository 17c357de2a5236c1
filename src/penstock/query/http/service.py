"""Queries with keys as text and answers as plain data, for HTTP and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any

from penstock.base.clock import unix_ms
from penstock.errors import ConfigError, StateError
from penstock.query.execute import position_of
from penstock.query.http.answers import (
    AnswerPage,
    Encoding,
    Freshness,
    Paging,
    count_of,
    described,
    from_cursor,
    in_time,
    key_of_cursor,
    lag_of,
    page_of,
    parse,
    refused,
    to_cursor,
    value_of,
    windowed,
)
from penstock.query.instances import HostInfo, Instances, KeyQueryMetadata, key_metadata
from penstock.query.source import CommittedStores, ReplicaLagWatch, StoreInfo, StoreSnapshot
from penstock.query.stores import lookup, merged_entries
from penstock.serde.plain_json import base64_of, plain
from penstock.state.views import SessionView, VersionedView, WindowView
from penstock.state.views.keyvalue import key_bytes

__all__ = ["QueryService"]

_WINDOWS = ("window",)
_SESSIONS = ("session",)
_KEYED = ("key_value", "timestamped", "lru", "versioned")
_ORDERED = ("key_value", "timestamped", "lru")
_FOREVER = 2**63 - 1
_FIRST_PAGE = Paging()


class QueryService:
    """The queries of one application.

    Args:
        state: Its committed state.
        host: The address of this instance; None if it does not serve.
        is_active: Returns whether the application runs in this process.
        lag: The watch of its lag; None: the lag is unknown.
    """

    def __init__(
        self,
        state: CommittedStores,
        *,
        host: HostInfo | None = None,
        is_active: Callable[[], bool] = lambda: False,
        lag: ReplicaLagWatch | None = None,
    ) -> None:
        self.state = state
        self.host = host
        self.is_active = is_active
        self.instances = Instances(state.checkpoint)
        self._lag = lag
        self.exposition: Callable[[], str] | None = None
        self.figures: Callable[[str], dict[str, Any]] | None = None
        self.alerts: Callable[[], Sequence[Mapping[str, Any]]] | None = None
        self.phase: Callable[[], str] | None = None  # the state of the application
        self.may_forward = True  # to the instance that runs the application, if a request asks for that

    # Metadata

    def metrics(self) -> str:
        """Return the metrics of the application in Prometheus' text format; only the process that runs it has them."""
        if self.exposition is None:
            raise _no_metrics()
        return self.exposition()

    def metrics_json(self, matching: str) -> dict[str, Any]:
        """Return the metrics whose ``<group>:<name>`` matches, the newest batch and the lags; as `metrics`."""
        if self.figures is None:
            raise _no_metrics()
        try:
            return self.figures(matching)
        except ConfigError as error:
            raise refused(error.message, "Write a regular expression.", "BAD_PATTERN", 400) from error

    def about(self) -> dict[str, Any]:
        """Describe the application, its position and its instances."""
        commit = self.state.commits.newest()
        return {
            "application": self.state.application_id,
            "checkpoint": self.state.checkpoint,
            "stores": sorted(self.state.stores()),
            "instances": [
                {"host": str(one.host_info), "role": one.role, "serves_http": one.serves_http}
                for one in self.instances.alive()
            ],
            **self._freshness(
                -1 if commit is None else commit.batch,
                0 if commit is None else commit.committed_ms,
                {} if commit is None else commit.position.to_json(),
            ),
        }

    def health(self) -> dict[str, Any]:
        """Describe how fresh the state is, with the alerts that hold; only the process that runs it has some."""
        about = self.about()
        facts = {name: about[name] for name in ("application", "role", "batch", "staleness_ms", "records_behind")}
        return facts if self.alerts is None else {**facts, "alerts": list(self.alerts())}

    def readiness(self) -> dict[str, Any]:
        """Return whether this process does its work: its tasks run, their state restored.

        One that serves the stores of another process is ready when it can read their position.
        """
        if self.phase is None:
            return {"application": self.about()["application"], "ready": True}
        phase = self.phase()
        return {"application": self.state.application_id, "ready": phase == "RUNNING", "state": phase}

    def stores(self) -> list[dict[str, Any]]:
        """List all stores that can be queried."""
        return [described(info) for _, info in sorted(self.state.stores().items())]

    def store(self, name: str) -> dict[str, Any]:
        """Describe a store, with its number of entries if that is known without reading them all."""
        info = self.state.store(name)
        with self.state.reading(name) as reading:
            views = list(reading.views.values())
            counts = [view.approximate_num_entries() for view in views if hasattr(view, "approximate_num_entries")]
        description = {**described(info), **self._about(reading, None, info)}
        return (
            {**description, "approximate_entries": sum(counts)} if len(counts) == len(views) and views else description
        )

    def metadata(self, store: str, key: str, encoding: Encoding = "auto") -> dict[str, Any]:
        """Return the partition and the hosts of a key."""
        metadata = self.key_metadata(store, parse(self.state.store(store).spec.key_serde, key, encoding))
        return {
            "store": store,
            "key": key,
            "partition": metadata.partition,
            "active_host": str(metadata.active_host) if metadata.active_host.port >= 0 else None,
            "standby_hosts": sorted(map(str, metadata.standby_hosts)),
            "active_machine": metadata.active_machine or None,
            "standby_machines": dict(metadata.standby_machines),
        }

    def key_metadata(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return the partition and the hosts of a key that is not text."""
        info = self.state.store(store)
        return key_metadata(self.state, info, key_bytes(info.spec, key), self.instances)

    def lags(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return by store and partition how far the copies on this machine are behind."""
        return {
            store: {str(number): lag_of(lag) for number, lag in sorted(parts.items())}
            for store, parts in sorted(self.state.lags().items())
        }

    def stale(self) -> QueryService:
        """Return the service that answers from the nearest copy, however far it is behind."""
        service = copy(self)
        service.state = self.state.stale()
        return service

    # Queries

    def get(self, store: str, key: str, encoding: Encoding = "auto", as_of: int | None = None) -> dict[str, Any]:
        """Return the value of a key in a key-value store; in a versioned one, also as of a time."""
        info = self._info(store, _KEYED, "keys")
        parsed_key = parse(info.spec.key_serde, key, encoding)
        if as_of is not None and info.spec.kind != "versioned":
            raise self._unfit(info, "as_of")
        versioned = info.spec.kind == "versioned"
        entry = lookup(
            self.state, info, parsed_key, lambda v: v.get(parsed_key, as_of) if versioned else v.get(parsed_key)
        )
        about = self._about(entry.reading, entry.partition, info)
        if entry.value is None:
            raise refused(
                f"store {store!r} has no key {key!r}",
                "Check the encoding of the key, and the position: the record may not be in the state yet.",
                "KEY_NOT_FOUND",
                404,
                answer={"store": store, "key": plain(parsed_key, base64_of), **about},
            )
        return {"store": store, "key": plain(parsed_key, base64_of), **value_of(entry.value), **about}

    def versions(
        self, store: str, key: str, low: int | None, high: int | None, paging: Paging = _FIRST_PAGE
    ) -> dict[str, Any]:
        """Return the versions of a key in a time range, the newest first."""
        info = self._info(store, ("versioned",), "versions")
        parsed_key = parse(info.spec.key_serde, key, paging.encoding)
        first, last = 0 if low is None else low, _FOREVER if high is None else high

        def read(view: VersionedView) -> Iterable[Any]:
            return view.between(parsed_key, first, last)

        return self._of_key(info, parsed_key, read, value_of, paging)

    def range(
        self,
        store: str,
        low: str | None = None,
        high: str | None = None,
        paging: Paging = _FIRST_PAGE,
    ) -> dict[str, Any]:
        """Return the entries from one key to another, both included, in the order of their bytes; None is open."""
        info = self._info(store, _ORDERED, "range")
        serde, reverse = info.spec.key_serde, paging.reverse
        first = None if low is None else parse(serde, low, paging.encoding)
        last = None if high is None else parse(serde, high, paging.encoding)
        after = from_cursor(paging.cursor)
        if after is not None:
            start = key_of_cursor(serde, after)
            first, last = (first, start) if reverse else (start, last)

        def read(view: Any) -> Iterable[Any]:
            entries: Iterable[Any] = view.reverse_range(first, last) if reverse else view.range(first, last)
            return entries

        return self._page(info, read, paging.limit, after, reverse=reverse)

    def prefix(self, store: str, prefix: str, paging: Paging = _FIRST_PAGE) -> dict[str, Any]:
        """Return the entries whose key bytes begin with those of the prefix."""
        info = self._info(store, _ORDERED, "prefix")
        parsed_prefix = parse(info.spec.key_serde, prefix, paging.encoding)
        after = from_cursor(paging.cursor)
        return self._page(info, lambda view: view.prefix_scan(parsed_prefix), paging.limit, after, reverse=False)

    def windows(
        self, store: str, key: str | None, low: int | None, high: int | None, paging: Paging = _FIRST_PAGE
    ) -> dict[str, Any]:
        """Return the windows that start in a time range, of a key or of all."""
        info = self._info(store, _WINDOWS, "windows")
        first, last = 0 if low is None else low, _FOREVER if high is None else high
        size, reverse = info.spec.window_size_ms, paging.reverse
        if key is None:
            return self._counted(info, lambda view: view.fetch_all(first, last, reverse=reverse), windowed, paging)
        parsed_key = parse(info.spec.key_serde, key, paging.encoding)

        def read(view: WindowView) -> Iterable[Any]:
            return view.fetch_range(parsed_key, first, last, reverse=reverse)

        return self._of_key(
            info, parsed_key, read, lambda e: {"start": e[0], "end": e[0] + size, **value_of(e[1])}, paging
        )

    def sessions(
        self,
        store: str,
        key: str | None,
        earliest_end: int | None,
        latest_start: int | None,
        paging: Paging = _FIRST_PAGE,
    ) -> dict[str, Any]:
        """Return the sessions that overlap a time range, of a key or of all."""
        info = self._info(store, _SESSIONS, "sessions")
        low, high = 0 if earliest_end is None else earliest_end, _FOREVER if latest_start is None else latest_start
        if key is None:

            def touching(view: SessionView) -> Iterable[Any]:
                return (e for e in in_time(view.all()) if e[0].window.end >= low and e[0].window.start <= high)

            return self._counted(info, touching, windowed, paging)
        parsed_key = parse(info.spec.key_serde, key, paging.encoding)

        def read(view: SessionView) -> Iterable[Any]:
            return view.find_sessions(parsed_key, low, high)

        return self._of_key(
            info,
            parsed_key,
            read,
            lambda e: {"start": e[0].window.start, "end": e[0].window.end, **value_of(e[1])},
            paging,
        )

    def not_fresh(self, freshness: Freshness) -> StateError | None:
        """Return the error (NOT_UP_TO_BOUND) if the committed state is not fresh enough; else None."""
        commit = self.state.commits.newest()
        staleness = None if commit is None else unix_ms() - commit.committed_ms
        limit_ms = freshness.max_staleness_ms
        is_stale = limit_ms is not None and (staleness is None or staleness > limit_ms)
        if commit is None:
            is_behind = bool(freshness.position.position.offsets)
        else:
            is_behind = not freshness.position.allows(commit.position)
        if not is_stale and not is_behind:
            return None
        seen = {} if commit is None else commit.position.to_json()
        return refused(
            f"the committed state is at {seen}, of {staleness} ms ago: that is not fresh enough",
            "Try again later, wait longer, or require less.",
            "NOT_UP_TO_BOUND",
            503,
            answer={"position": seen, "staleness_ms": staleness},
        )

    # Pieces of answers

    def _page(
        self,
        info: StoreInfo,
        read: Callable[[Any], Iterable[Any]],
        limit: int,
        after: bytes | None,
        *,
        reverse: bool,
    ) -> dict[str, Any]:
        """Return a page of entries by key; the cursor is the last key's bytes."""
        serde = info.spec.key_serde

        def sort(entry: tuple[Any, Any]) -> bytes:
            return key_bytes(info.spec, entry[0])

        with self.state.reading(info.spec.name) as reading:
            entries: Iterator[Any] = in_time(merged_entries(reading, read, sort, reverse=reverse))
            if after is not None:
                entries = (e for e in entries if (sort(e) < after if reverse else sort(e) > after))
            page = page_of(entries, lambda e: {"key": plain(e[0], base64_of), **value_of(e[1])}, limit)
        following = to_cursor(serde.serialize(page.last[0])) if page.has_more else None
        return {"store": info.spec.name, "entries": page.shown, "next": following, **self._about(reading, None, info)}

    def _counted(
        self,
        info: StoreInfo,
        read: Callable[[Any], Iterable[Any]],
        show: Callable[[Any], dict[str, Any]],
        paging: Paging,
    ) -> dict[str, Any]:
        """Return a page of entries, partition by partition; the cursor is their number."""
        skipped = count_of(paging.cursor)
        with self.state.reading(info.spec.name) as reading:
            entries = in_time(merged_entries(reading, read, None, reverse=False))
            page = page_of(islice(entries, skipped, None), show, paging.limit)
        following = str(skipped + len(page.shown)) if page.has_more else None
        return {"store": info.spec.name, "entries": page.shown, "next": following, **self._about(reading, None, info)}

    def _of_key(
        self,
        info: StoreInfo,
        key: Any,
        read: Callable[[Any], Iterable[Any]],
        show: Callable[[Any], dict[str, Any]],
        paging: Paging,
    ) -> dict[str, Any]:
        skipped = count_of(paging.cursor)

        def part(view: Any) -> AnswerPage | None:
            """Return the page, or None if this partition has no entries of the key."""
            page = page_of(islice(in_time(read(view)), skipped, None), show, paging.limit)
            return page if page.shown else None

        entry = lookup(self.state, info, key, part)
        page: AnswerPage = entry.value or AnswerPage([], None, has_more=False)
        return {
            "store": info.spec.name,
            "key": plain(key, base64_of),
            "entries": page.shown,
            "next": str(skipped + len(page.shown)) if page.has_more else None,
            **self._about(entry.reading, entry.partition, info),
        }

    def _info(self, store: str, kinds: tuple[str, ...], query: str) -> StoreInfo:
        info = self.state.store(store)
        if info.spec.kind not in kinds:
            raise self._unfit(info, query)
        return info

    @staticmethod
    def _unfit(info: StoreInfo, query: str) -> StateError:
        fitting = {"window": "windows", "session": "sessions", "versioned": "keys, keys with as_of, and versions"}
        return refused(
            f"store {info.spec.name!r} is of kind {info.spec.kind!r}, which has no query by {query}",
            f"It is queried by {fitting.get(info.spec.kind, 'keys, range and prefix')}.",
            "UNKNOWN_QUERY_TYPE",
            400,
            store=info.spec.name,
        )

    def _about(self, reading: StoreSnapshot, partition: int | None, info: StoreInfo) -> dict[str, Any]:
        position = reading.position if partition is None else position_of(reading, partition, info)
        facts = self._freshness(reading.batch, reading.committed_ms, position.to_json())
        if partition is None or partition < 0:
            return {**facts, "read_from": sorted(set(reading.sources.values()))}
        return {"partition": partition, **facts, "read_from": reading.sources.get(partition)}

    def _freshness(self, batch: int, committed_ms: int, position: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "batch": batch,
            "position": position,
            "committed_ms": committed_ms or None,
            "staleness_ms": max(0, unix_ms() - committed_ms) if committed_ms else None,
            "records_behind": None if self._lag is None else self._lag.behind(self.state.commits.newest()),
            "role": "active" if self.is_active() else "standby",
            "host": None if self.host is None else str(self.host),
        }

    def close(self) -> None:
        if self._lag is not None:
            self._lag.close()
        self.instances.close()
        self.state.close()


def _no_metrics() -> StateError:
    return refused(
        "this process does not run the application, so it has no metrics",
        "Ask the active instance: /metadata names it.",
        "NO_METRICS",
        404,
    )
