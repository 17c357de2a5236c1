"""The growing state of a table's processor: whether it has a store, and whether it sends old values.

Both may change after the verb that made the table: a join materialises a source table, a regrouping asks every table
above it for old values.
"""

from __future__ import annotations

from typing import Protocol

from penstock.topology.stores import StoreSpec

__all__ = ["AggregatedTable", "DerivedTable", "JoinedTable", "SourceTable", "SuppressedTable", "TableState"]


class TableState(Protocol):
    """Kafka's ``KTableProcessorSupplier``, as far as the graph cares."""

    send_old: bool

    def enable_send_old(self, *, force: bool) -> bool:
        """Ask for old values; ``force`` materialises a source for it. Return whether they will be sent."""
        ...

    def getter_stores(self) -> tuple[str, ...]:
        """Return the stores that a reader of the table's values needs; a source is materialised."""
        ...

    def own_stores(self) -> tuple[StoreSpec, ...]:
        """Return the stores that the processor itself keeps."""
        ...


class SourceTable:
    """The state of ``table()`` and ``to_table()``: a store when the user named one or a node downstream needs it."""

    def __init__(self, spec: StoreSpec, *, materialized: bool) -> None:
        self.spec = spec
        self.materialized = materialized
        self.send_old = False

    @property
    def store(self) -> str | None:
        return self.spec.name if self.materialized else None

    def enable_send_old(self, *, force: bool) -> bool:
        if force or self.materialized:
            self.send_old = self.materialized = True
        return self.send_old

    def getter_stores(self) -> tuple[str, ...]:
        self.materialized = True
        return (self.spec.name,)

    def own_stores(self) -> tuple[StoreSpec, ...]:
        return (self.spec,) if self.materialized else ()


class DerivedTable:
    """The state of ``filter()`` and ``map_values()``: without a store of its own it reads through its parents."""

    def __init__(self, parents: tuple[TableState, ...], spec: StoreSpec | None) -> None:
        self._parents = parents
        self.spec = spec
        self.send_old = False

    @property
    def store(self) -> str | None:
        return self.spec.name if self.spec else None

    def enable_send_old(self, *, force: bool) -> bool:
        if self.spec is not None:
            self.send_old = True
        else:
            answers = [parent.enable_send_old(force=force) for parent in self._parents]
            self.send_old = self.send_old or all(answers)
        return self.send_old

    def getter_stores(self) -> tuple[str, ...]:
        if self.spec is not None:
            return (self.spec.name,)
        return tuple(dict.fromkeys(store for parent in self._parents for store in parent.getter_stores()))

    def own_stores(self) -> tuple[StoreSpec, ...]:
        return (self.spec,) if self.spec else ()


class JoinedTable:
    """The state of two joined tables: for old values it needs those of both sides, with a store or without."""

    def __init__(self, left: TableState, right: TableState, spec: StoreSpec | None) -> None:
        self._sides = (left, right)
        self.spec = spec
        self.send_old = False

    @property
    def store(self) -> str | None:
        return self.spec.name if self.spec else None

    def enable_send_old(self, *, force: bool) -> bool:  # noqa: ARG002 - joined tables are materialised in any case
        for side in self._sides:
            side.enable_send_old(force=True)
        self.send_old = True
        return True

    def getter_stores(self) -> tuple[str, ...]:
        if self.spec is not None:
            return (self.spec.name,)
        return tuple(dict.fromkeys(store for side in self._sides for store in side.getter_stores()))

    def own_stores(self) -> tuple[StoreSpec, ...]:
        return (self.spec,) if self.spec else ()


class AggregatedTable:
    """The state of an aggregation's result: always with a store."""

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec
        self.send_old = False

    def enable_send_old(self, *, force: bool) -> bool:  # noqa: ARG002 - there is nothing to force
        self.send_old = True
        return True

    def getter_stores(self) -> tuple[str, ...]:
        return (self.spec.name,)

    def own_stores(self) -> tuple[StoreSpec, ...]:
        return (self.spec,)


class SuppressedTable:
    """The state of ``suppress()``: a buffer of its own, and the table above for keys that do not wait."""

    def __init__(self, parent: TableState, spec: StoreSpec) -> None:
        self._parent = parent
        self.spec = spec
        self.send_old = parent.enable_send_old(force=True)  # a buffer shows the value before the first one it holds

    def enable_send_old(self, *, force: bool) -> bool:
        return self._parent.enable_send_old(force=force)

    def getter_stores(self) -> tuple[str, ...]:
        return (self.spec.name, *self._parent.getter_stores())

    def own_stores(self) -> tuple[StoreSpec, ...]:
        return (self.spec,)
