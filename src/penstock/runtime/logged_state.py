"""The stores of a local task with their changelog topics: what the commits of an engine would write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.runtime.record import RawRecord, headers_of
from penstock.state.changelog.noting import note_writes, notes_of
from penstock.state.changelog.writing import records_of_changes, records_of_puts
from penstock.state.memory import MemoryMap
from penstock.state.overlay import Overlay, TaskOverlay
from penstock.state.views import open_view
from penstock.topology.plan.changelog_topics import changelog_topic
from penstock.topology.stores import StoreSpec

__all__ = ["LoggedState"]


class LoggedState:
    """The state of a task in memory, whose changes become records of changelog topics with each commit.

    Args:
        application_id: The application.
        stores: The task's stores.
    """

    def __init__(self, application_id: str, stores: Mapping[str, StoreSpec]) -> None:
        self._stores = stores
        self._maps = {name: MemoryMap() for name in stores}
        self._topics = {name: changelog_topic(application_id, name) for name, spec in stores.items() if spec.logging}
        self._meta: dict[str, int] = {}
        self.state = TaskOverlay(0, self._maps, self._meta)
        self.current = note_writes(self.state)

    def map(self, store: str) -> Overlay:
        """Return the rows of a store, with the changes since the last commit."""
        return self.state.map(store)

    @property
    def meta(self) -> dict[str, int]:
        """The task's small numbers."""
        return self.state.meta

    def take_touched(self) -> list[str]:
        """Return the stores that have been written since the last commit."""
        return [name for name, overlay in self.state.maps.items() if overlay.changes or overlay.puts]

    def committed(self, store: str) -> Any:
        """Return the typed view of a store as the last commit left it."""
        return open_view(self._stores[store], Overlay(self._maps[store]), dict(self._meta))

    def commit(self) -> list[RawRecord]:
        """Write the changes since the last commit into the stores, and return their records, topic by topic."""
        state = self.state
        changes = state.sorted_changes()
        records = records_of_puts(self._topics, ((name, state.puts(name)) for name in self._stores))
        records += records_of_changes(self._stores, self._topics, changes.items(), state.meta, notes_of(state))
        for store, rows in changes.items():
            self._maps[store].put_many(rows.column(0).to_pylist(), rows.column(1).to_pylist())
        self._meta = dict(state.meta)
        state.rebase(0, self._maps, self._meta)
        written = []
        for topic, batch in records:
            headers = headers_of(batch.column("headers"))
            columns = (batch.column(name).to_pylist() for name in ("timestamp", "key", "value"))
            for row, (timestamp, key, value) in enumerate(zip(*columns, strict=True)):
                written.append(RawRecord(topic, -1, timestamp, key, value, headers[row] if headers else ()))
        return written
