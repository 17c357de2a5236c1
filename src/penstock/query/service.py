"""Queries as text and plain data: what HTTP and the command share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from penstock.errors import StateError
from penstock.query.answers import (
    Bounds,
    count_of,
    described,
    from_cursor,
    now_ms,
    refused,
    to_cursor,
    value_of,
    windowed,
)
from penstock.query.codec import Encoding, parse, plain
from penstock.query.committed import CommittedState
from penstock.query.execute import position_of
from penstock.query.lag import LagWatch
from penstock.query.metadata import HostInfo, Instances, KeyQueryMetadata, key_metadata
from penstock.query.source import Reading, StoreInfo
from penstock.query.stores import lookup, merged_entries
from penstock.state.views import SessionView, VersionedView, WindowView
from penstock.state.views.keyvalue import key_bytes

__all__ = ["QueryService"]

_WINDOWS = ("window",)
_SESSIONS = ("session",)
_KEYED = ("key_value", "timestamped", "lru", "versioned")
_ORDERED = ("key_value", "timestamped", "lru")
_FOREVER = 2**63 - 1
_LOOK_S = 0.01


class QueryService:
    """Answers for one application.

    Args:
        state: Its committed state.
        host: Where this instance answers; None if nowhere.
        is_active: Whether the application runs in this process.
        lag: Knows how many records are behind; None: nobody does.
    """

    def __init__(
        self,
        state: CommittedState,
        *,
        host: HostInfo | None = None,
        is_active: Callable[[], bool] = lambda: False,
        lag: LagWatch | None = None,
    ) -> None:
        self.state = state
        self.host = host
        self.is_active = is_active
        self.instances = Instances(state.checkpoint)
        self._lag = lag

    # What there is

    def about(self) -> dict[str, Any]:
        """The application, how far it is, and its instances."""
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

    def stores(self) -> list[dict[str, Any]]:
        """All stores that can be queried."""
        return [described(info) for _, info in sorted(self.state.stores().items())]

    def store(self, name: str) -> dict[str, Any]:
        """One store, with the number of its entries where that is known without reading them all."""
        info = self.state.store(name)
        with self.state.reading(name) as reading:
            views = list(reading.views.values())
            counts = [view.approximate_num_entries() for view in views if hasattr(view, "approximate_num_entries")]
        found = {**described(info), **self._about(reading, None, info)}
        return {**found, "approximate_entries": sum(counts)} if len(counts) == len(views) and views else found

    def metadata(self, store: str, key: str, encoding: Encoding = "auto") -> dict[str, Any]:
        """Who answers for a key."""
        found = self.key_metadata(store, parse(self.state.store(store).spec.key_serde, key, encoding))
        return {
            "store": store,
            "key": key,
            "partition": found.partition,
            "active_host": str(found.active_host) if found.active_host.port >= 0 else None,
            "standby_hosts": sorted(map(str, found.standby_hosts)),
        }

    def key_metadata(self, store: str, key: Any) -> KeyQueryMetadata:
        """The same for a key that is not text."""
        info = self.state.store(store)
        return key_metadata(info, key_bytes(info.spec, key), self.instances.alive())

    # Queries

    def get(self, store: str, key: str, encoding: Encoding = "auto", as_of: int | None = None) -> dict[str, Any]:
        """The value under a key of a key-value store; of a versioned one, also as of a time."""
        info = self._info(store, _KEYED, "keys")
        wanted = parse(info.spec.key_serde, key, encoding)
        if as_of is not None and info.spec.kind != "versioned":
            raise self._unfit(info, "as_of")
        versioned = info.spec.kind == "versioned"
        found = lookup(self.state, info, wanted, lambda v: v.get(wanted, as_of) if versioned else v.get(wanted))
        about = self._about(found.reading, found.partition, info)
        if found.value is None:
            raise refused(
                f"store {store!r} has nothing under {key!r}",
                "Look at the encoding of the key, and at the position: the record may not be in the state yet.",
                "KEY_NOT_FOUND",
                404,
                answer={"store": store, "key": plain(wanted), **about},
            )
        return {"store": store, "key": plain(wanted), **value_of(found.value), **about}

    def versions(self, store: str, key: str, low: int | None, high: int | None, encoding: Encoding) -> dict[str, Any]:
        """The versions of a key in a time."""
        info = self._info(store, ("versioned",), "versions")
        wanted = parse(info.spec.key_serde, key, encoding)
        first, last = 0 if low is None else low, _FOREVER if high is None else high

        def read(view: VersionedView) -> Any:
            return list(view.between(wanted, first, last)) or None

        found = lookup(self.state, info, wanted, read)
        entries = [value_of(version) for version in found.value or ()]
        about = self._about(found.reading, found.partition, info)
        return {"store": store, "key": plain(wanted), "entries": entries, **about}

    def range(
        self,
        store: str,
        low: str | None = None,
        high: str | None = None,
        *,
        encoding: Encoding = "auto",
        reverse: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Entries from one key to another, both included, in the order of the keys' bytes; None is open."""
        info = self._info(store, _ORDERED, "range")
        serde = info.spec.key_serde
        first = None if low is None else parse(serde, low, encoding)
        last = None if high is None else parse(serde, high, encoding)
        after = from_cursor(cursor)
        if after is not None:
            first, last = (first, serde.deserialize(after)) if reverse else (serde.deserialize(after), last)

        def read(view: Any) -> Iterable[Any]:
            found: Iterable[Any] = view.reverse_range(first, last) if reverse else view.range(first, last)
            return found

        return self._page(info, read, limit, after, reverse=reverse)

    def prefix(
        self, store: str, prefix: str, *, encoding: Encoding = "auto", limit: int = 100, cursor: str | None = None
    ) -> dict[str, Any]:
        """Entries whose key bytes begin with those of the prefix."""
        info = self._info(store, _ORDERED, "prefix")
        wanted = parse(info.spec.key_serde, prefix, encoding)
        return self._page(info, lambda view: view.prefix_scan(wanted), limit, from_cursor(cursor), reverse=False)

    def windows(
        self,
        store: str,
        key: str | None,
        low: int | None,
        high: int | None,
        *,
        encoding: Encoding = "auto",
        reverse: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Windows that start in a time: of a key, or of all."""
        info = self._info(store, _WINDOWS, "windows")
        first, last = 0 if low is None else low, _FOREVER if high is None else high
        size = info.spec.window_size_ms
        if key is None:
            return self._counted(
                info, lambda view: view.fetch_all(first, last, reverse=reverse), windowed, limit, cursor
            )
        wanted = parse(info.spec.key_serde, key, encoding)

        def read(view: WindowView) -> Any:
            return list(view.fetch_range(wanted, first, last, reverse=reverse)) or None

        return self._of_key(
            info, wanted, read, lambda e: {"start": e[0], "end": e[0] + size, **value_of(e[1])}, limit, cursor
        )

    def sessions(
        self,
        store: str,
        key: str | None,
        earliest_end: int | None,
        latest_start: int | None,
        *,
        encoding: Encoding = "auto",
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Sessions that touch a time: of a key, or of all."""
        info = self._info(store, _SESSIONS, "sessions")
        low, high = 0 if earliest_end is None else earliest_end, _FOREVER if latest_start is None else latest_start
        if key is None:

            def touching(view: SessionView) -> Iterable[Any]:
                return (e for e in view.all() if e[0].window.end >= low and e[0].window.start <= high)

            return self._counted(info, touching, windowed, limit, cursor)
        wanted = parse(info.spec.key_serde, key, encoding)

        def read(view: SessionView) -> Any:
            return list(view.find_sessions(wanted, low, high)) or None

        return self._of_key(
            info,
            wanted,
            read,
            lambda e: {"start": e[0].window.start, "end": e[0].window.end, **value_of(e[1])},
            limit,
            cursor,
        )

    def wait_for(self, bounds: Bounds) -> None:
        """Waits until the committed state is fresh enough; raises a StateError (NOT_UP_TO_BOUND) if it is not."""
        deadline = time.monotonic() + bounds.wait_ms / 1000
        while True:
            commit = self.state.commits.newest()
            staleness = None if commit is None else now_ms() - commit.committed_ms
            stale = bounds.max_staleness_ms is not None and (staleness is None or staleness > bounds.max_staleness_ms)
            if commit is None:
                behind = bool(bounds.position.position.offsets)
            else:
                behind = not bounds.position.allows(commit.position)
            if not stale and not behind:
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        seen = {} if commit is None else commit.position.to_json()
        raise refused(
            f"the committed state is at {seen}, of {staleness} ms ago: that is not fresh enough",
            "Ask again later, wait longer, or ask for less.",
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
        """Entries by key; the cursor is the last key's bytes."""
        serde = info.spec.key_serde

        def sort(entry: tuple[Any, Any]) -> bytes:
            return key_bytes(info.spec, entry[0])

        with self.state.reading(info.spec.name) as reading:
            entries = merged_entries(reading, read, sort, reverse=reverse)
            if after is not None:
                entries = (e for e in entries if (sort(e) < after if reverse else sort(e) > after))
            found = list(islice(entries, limit + 1))
        shown = [{"key": plain(key), **value_of(value)} for key, value in found[:limit]]
        following = to_cursor(serde.serialize(found[limit - 1][0])) if len(found) > limit else None
        return {"store": info.spec.name, "entries": shown, "next": following, **self._about(reading, None, info)}

    def _counted(
        self,
        info: StoreInfo,
        read: Callable[[Any], Iterable[Any]],
        show: Callable[[Any], dict[str, Any]],
        limit: int,
        cursor: str | None,
    ) -> dict[str, Any]:
        """Entries partition by partition; the cursor is their number."""
        skipped = count_of(cursor)
        with self.state.reading(info.spec.name) as reading:
            found = list(islice(merged_entries(reading, read, None, reverse=False), skipped, skipped + limit + 1))
        following = str(skipped + limit) if len(found) > limit else None
        shown = [show(entry) for entry in found[:limit]]
        return {"store": info.spec.name, "entries": shown, "next": following, **self._about(reading, None, info)}

    def _of_key(
        self,
        info: StoreInfo,
        wanted: Any,
        read: Callable[[Any], Any],
        show: Callable[[Any], dict[str, Any]],
        limit: int,
        cursor: str | None,
    ) -> dict[str, Any]:
        skipped = count_of(cursor)
        found = lookup(self.state, info, wanted, read)
        entries = (found.value or [])[skipped : skipped + limit]
        following = str(skipped + limit) if len(found.value or ()) > skipped + limit else None
        return {
            "store": info.spec.name,
            "key": plain(wanted),
            "entries": [show(entry) for entry in entries],
            "next": following,
            **self._about(found.reading, found.partition, info),
        }

    def _info(self, store: str, kinds: tuple[str, ...], what: str) -> StoreInfo:
        info = self.state.store(store)
        if info.spec.kind not in kinds:
            raise self._unfit(info, what)
        return info

    @staticmethod
    def _unfit(info: StoreInfo, what: str) -> StateError:
        fitting = {"window": "windows", "session": "sessions", "versioned": "keys, keys with as_of, and versions"}
        return refused(
            f"store {info.spec.name!r} is of kind {info.spec.kind!r}, which has no query by {what}",
            f"It is queried by {fitting.get(info.spec.kind, 'keys, range and prefix')}.",
            "UNKNOWN_QUERY_TYPE",
            400,
            store=info.spec.name,
        )

    def _about(self, reading: Reading, partition: int | None, info: StoreInfo) -> dict[str, Any]:
        position = reading.position if partition is None else position_of(reading, partition, info)
        facts = self._freshness(reading.batch, reading.committed_ms, position.to_json())
        return facts if partition is None or partition < 0 else {"partition": partition, **facts}

    def _freshness(self, batch: int, committed_ms: int, position: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "batch": batch,
            "position": position,
            "committed_ms": committed_ms or None,
            "staleness_ms": max(0, now_ms() - committed_ms) if committed_ms else None,
            "records_behind": None if self._lag is None else self._lag.behind(self.state.commits.newest()),
            "role": "active" if self.is_active() else "standby",
            "host": None if self.host is None else str(self.host),
        }

    def close(self) -> None:
        if self._lag is not None:
            self._lag.close()
        self.state.close()
