"""Stores for processors: Kafka's ``Stores``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from penstock.api.serdes import resolve
from penstock.base.argument_checks import check_whole
from penstock.base.durations import DurationLike, duration_ms
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.names import check_name
from penstock.topology.stores import StoreKind, StoreSpec

__all__ = ["Stores"]

Supplier = Literal["headers", "timestamped", "plain"]


@with_java_names
class Stores:
    """A maker of stores for ``add_state_store``: Kafka's ``Stores``.

    >>> Stores.key_value("counts", value_serde="long").name
    'counts'
    """

    @staticmethod
    def key_value(
        name: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
        ttl: DurationLike | None = None,
    ) -> StoreSpec:
        """Make a key-value store (``Stores.keyValueStoreBuilder``).

        Args:
            name: The name of the store.
            key_serde: A serde or its name; None is the application's default.
            value_serde: Likewise.
            persistent: Whether it is on disk, or in memory.
            logging: Whether it has a changelog topic.
            ttl: The stream time for which an entry lives after its last put; not in Kafka.

        Raises:
            TopologyError: The time to live is not positive.

        >>> Stores.key_value("recent", ttl="1 hour").ttl_ms
        3600000
        """
        ttl_ms = 0 if ttl is None else duration_ms(ttl, "ttl")
        if ttl is not None and ttl_ms < 1:
            raise TopologyError(f"the ttl of store {name!r} is {ttl!r}", hint="Give at least 1 ms.", store=name)
        return _spec(name, "key_value", key_serde, value_serde, persistent=persistent, logging=logging, ttl_ms=ttl_ms)

    @staticmethod
    def timestamped(
        name: str, *, key_serde: Any = None, value_serde: Any = None, persistent: bool = True, logging: bool = True
    ) -> StoreSpec:
        """Make a key-value store whose values have timestamps (``Stores.timestampedKeyValueStoreBuilder``)."""
        return _spec(
            name, "timestamped", key_serde, value_serde, persistent=persistent, logging=logging, timestamped=True
        )

    @staticmethod
    def timestamped_with_headers(
        name: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
        supplier: Supplier = "headers",
        max_entries: int | None = None,
    ) -> StoreSpec:
        """Make a key-value store whose values have timestamps and headers.

        Kafka's ``Stores.timestampedKeyValueStoreWithHeadersBuilder``.

        Args:
            name: The name of the store.
            key_serde: A serde or its name; None is the application's default.
            value_serde: Likewise.
            persistent: Whether it is on disk, or in memory.
            logging: Whether it has a changelog topic.
            supplier: What reads return. An older supplier is one of Kafka's that keeps no headers ("timestamped") or
                no timestamps either ("plain": -1 is returned); the changelog has both all the same.
            max_entries: Keep so many keys, those used last, in memory (``Stores.lruMap`` as the supplier).

        >>> Stores.timestamped_with_headers("orders", value_serde="json").keeps_headers
        True
        """
        shows = _shown(name, supplier)
        if max_entries is not None:
            check_whole(max_entries, f"store {name!r}: max_entries", 1)
            facts = {"persistent": False, "max_entries": max_entries, "timestamped": True}
            return _spec(name, "lru", key_serde, value_serde, logging=logging, keeps_headers=True, shows=shows, **facts)
        return _spec(
            name,
            "timestamped",
            key_serde,
            value_serde,
            persistent=persistent,
            logging=logging,
            timestamped=True,
            keeps_headers=True,
            shows=shows,
        )

    @staticmethod
    def lru(name: str, max_entries: int, *, key_serde: Any = None, value_serde: Any = None) -> StoreSpec:
        """Make an in-memory store that drops the least recently used keys (``Stores.lruMap``).

        >>> Stores.lru("recent", 1000).max_entries
        1000
        """
        check_whole(max_entries, f"store {name!r}: max_entries", 1)
        return _spec(name, "lru", key_serde, value_serde, persistent=False, max_entries=max_entries)

    @staticmethod
    def window(
        name: str,
        *,
        retention: DurationLike,
        size: DurationLike,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
        retain_duplicates: bool = False,
    ) -> StoreSpec:
        """Make a window store (``Stores.windowStoreBuilder``)."""
        retention_ms, size_ms = duration_ms(retention, "retention"), duration_ms(size, "size")
        if not 0 <= size_ms <= retention_ms:
            raise TopologyError(
                f"store {name!r} keeps windows of {size_ms} ms for {retention_ms} ms",
                hint="The retention is at least the window size.",
                store=name,
            )
        return _spec(
            name,
            "window",
            key_serde,
            value_serde,
            persistent=persistent,
            logging=logging,
            retention_ms=retention_ms,
            window_size_ms=size_ms,
            retain_duplicates=retain_duplicates,
        )

    @staticmethod
    def timestamped_window(
        name: str,
        *,
        retention: DurationLike,
        size: DurationLike,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
        retain_duplicates: bool = False,
    ) -> StoreSpec:
        """Make a window store whose values have timestamps (``Stores.timestampedWindowStoreBuilder``)."""
        spec = Stores.window(
            name,
            retention=retention,
            size=size,
            key_serde=key_serde,
            value_serde=value_serde,
            persistent=persistent,
            logging=logging,
            retain_duplicates=retain_duplicates,
        )
        return replace(spec, timestamped=True)

    @staticmethod
    def window_with_headers(
        name: str,
        *,
        retention: DurationLike,
        size: DurationLike,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
        retain_duplicates: bool = False,
        supplier: Supplier = "headers",
    ) -> StoreSpec:
        """Make a window store whose values have timestamps and headers.

        Kafka's ``Stores.timestampedWindowStoreWithHeadersBuilder``; for ``supplier`` see `timestamped_with_headers`.
        """
        spec = Stores.timestamped_window(
            name,
            retention=retention,
            size=size,
            key_serde=key_serde,
            value_serde=value_serde,
            persistent=persistent,
            logging=logging,
            retain_duplicates=retain_duplicates,
        )
        return replace(spec, keeps_headers=True, shows=_shown(name, supplier))

    @staticmethod
    def session(
        name: str,
        *,
        retention: DurationLike,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
    ) -> StoreSpec:
        """Make a session store (``Stores.sessionStoreBuilder``)."""
        return _spec(
            name,
            "session",
            key_serde,
            value_serde,
            persistent=persistent,
            logging=logging,
            retention_ms=duration_ms(retention, "retention"),
        )

    @staticmethod
    def session_with_headers(
        name: str,
        *,
        retention: DurationLike,
        key_serde: Any = None,
        value_serde: Any = None,
        persistent: bool = True,
        logging: bool = True,
        supplier: Literal["headers", "plain"] = "headers",
    ) -> StoreSpec:
        """Make a session store whose values have headers.

        Kafka's ``Stores.sessionStoreWithHeadersBuilder``; for ``supplier`` see `timestamped_with_headers`.
        """
        spec = Stores.session(
            name,
            retention=retention,
            key_serde=key_serde,
            value_serde=value_serde,
            persistent=persistent,
            logging=logging,
        )
        return replace(spec, keeps_headers=True, shows=_shown(name, supplier))

    @staticmethod
    def versioned(
        name: str, *, history: DurationLike, key_serde: Any = None, value_serde: Any = None, logging: bool = True
    ) -> StoreSpec:
        """Make a store of the versions of values (``Stores.versionedKeyValueStoreBuilder``).

        ``history`` is the time for which old versions can be read, before the largest timestamp that has been put.

        >>> Stores.versioned("prices", history="1 hour").history_ms
        3600000
        """
        return _spec(
            name, "versioned", key_serde, value_serde, logging=logging, history_ms=duration_ms(history, "history")
        )


def _shown(name: str, supplier: str) -> Literal["headers", "timestamps", "values"]:
    shown: dict[str, Literal["headers", "timestamps", "values"]] = {
        "headers": "headers",
        "timestamped": "timestamps",
        "plain": "values",
    }
    if not isinstance(supplier, str) or supplier not in shown:
        hint = f"Give one of {', '.join(shown)}."
        raise TopologyError(f"store {name!r} has no supplier {supplier!r}", hint=hint, store=name)
    return shown[supplier]


def _spec(name: str, kind: StoreKind, key_serde: Any, value_serde: Any, **facts: Any) -> StoreSpec:
    check_name(name, "the name of a store")
    return StoreSpec(name, kind, resolve(key_serde), resolve(value_serde), **{"caching": False, **facts})
