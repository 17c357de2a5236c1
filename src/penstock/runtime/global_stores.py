"""The view of tasks on global stores: the rows that another task keeps up to date, read-only."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.errors import StateError
from penstock.serde.bound_serdes import CurrentHeaders, in_task, uses_headers
from penstock.state.maps import Entries, ReadableMap
from penstock.state.stored_bytes import stored_bytes
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

__all__ = ["GLOBAL_TASK", "GlobalViews"]

GLOBAL_TASK = "-1_-1"
"""Kafka's id of the task that fills the global stores."""


class GlobalViews:
    """The global stores of a topology, to be read.

    Args:
        specs: The stores.
        maps: Their rows; more may come by `rebase`.
        meta: The numbers of the task that writes them.
    """

    def __init__(
        self, specs: Mapping[str, StoreSpec], maps: Mapping[str, ReadableMap], meta: Mapping[str, int]
    ) -> None:
        self._maps = {name: _ReadOnlyMap(spec, maps[name]) for name, spec in specs.items()}
        self._meta = meta
        self.headers = CurrentHeaders()  # of the record that was written last, for serdes that look at them

    def rebase(self, maps: Mapping[str, ReadableMap]) -> None:
        """Show other rows, also through views that have been opened."""
        for name, shown in self._maps.items():
            shown.base = maps[name]

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return the rows of each store (``entries``), and its bytes on disk (``store_bytes``)."""
        entries = {name: len(rows) for name, rows in self._maps.items()}
        return {"entries": entries, "store_bytes": stored_bytes(self._maps)}

    def view(self, spec: StoreSpec) -> Any:
        """Return the typed view of a store; the specification has the serdes that the reading task uses."""
        meta: MutableMapping[str, int] = ChainMap({}, self._meta)  # type: ignore[arg-type] # writes are discarded
        if uses_headers(spec.value_serde):
            spec = replace(spec, value_serde=in_task(spec.value_serde, self.headers))
        return open_view(spec, self._maps[spec.name], meta)


class _ReadOnlyMap:
    """A byte map that refuses to be written."""

    def __init__(self, spec: StoreSpec, base: ReadableMap) -> None:
        self._spec = spec
        self.base = base

    def __len__(self) -> int:
        return len(self.base)

    def get(self, key: bytes) -> bytes | None:
        return self.base.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.base.get_many(keys)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.base.scan(start, end, reverse=reverse)

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        return self.base.scan_many(ranges)

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        return self.base.read(start, end, limit)

    def put(self, key: bytes, value: bytes | None) -> None:  # noqa: ARG002
        """Refuse the write."""
        self._refuse()

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:  # noqa: ARG002
        """Refuse the writes."""
        self._refuse()

    def _refuse(self) -> None:
        if self._spec.kind != "lru":  # whose gets record uses; here that has no effect
            raise StateError(
                f"global store {self._spec.name!r} is only written by the processor of its topic",
                hint=f"Write a record to the topic {self._spec.changelog_topic!r} instead.",
                store=self._spec.name,
            )
