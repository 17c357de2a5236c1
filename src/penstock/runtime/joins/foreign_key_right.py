"""The right side of a foreign-key join: the subscriptions that it keeps, and the answers that it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.runtime.operator import Operator
from penstock.runtime.rows import Place, Rows
from penstock.runtime.tables.groups import group_keys
from penstock.runtime.tables.operators import drop_null_keys, drop_out_of_order
from penstock.runtime.tables.value_getters import StoreTableView, read_store, spread, write_store
from penstock.serde.column import Column, large_binary, series_of
from penstock.serde.subscriptions import (
    Instruction,
    ResponseColumn,
    SubscriptionColumn,
    combined_keys,
    foreign_prefixes,
    primary_keys,
)
from penstock.topology.operations.base import Operation
from penstock.topology.operations.foreign_keys import ForeignTableJoin, SubscriptionJoin, SubscriptionReceive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]

_DELETES = [Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE]


class _Subscriptions(StoreTableView):
    """The subscription store as of any place in the batch, by combined key."""

    def noted_under(self, prefixes: list[bytes]) -> tuple[NDArray[np.int64], list[bytes]]:
        """Return the keys that this batch has set or deleted under one of the prefixes: the prefix, and the key."""
        self._forget_old_batches()
        numbers = {prefix: number for number, prefix in enumerate(prefixes)}
        prefix_by_key: dict[bytes, int] = {}
        for keys, _, _ in self._before:
            for key in keys.items():
                number = numbers.get(key[: 4 + int.from_bytes(key[:4], "big")])
                if number is not None:
                    prefix_by_key[key] = number
        return np.array(list(prefix_by_key.values()), np.int64), list(prefix_by_key)


class _SubscriptionReceive(Operator):
    """SubscriptionReceiveProcessorSupplier: keeps each subscription under foreign and primary key."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = operation = cast("SubscriptionReceive", node.operation)
        self._view = _Subscriptions(operation.store, context)
        context.register_table(node.name, self._view)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        wrapped = SubscriptionColumn.of(rows.values)
        nowhere = rows.keys.null_mask()
        if nowhere.any():
            pointless = nowhere & (wrapped.instructions != Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
            if pointless.any():
                self._context.drop(self._name, int(pointless.sum()), "null foreign key")
                kept = np.flatnonzero(~pointless)
                rows, wrapped, nowhere = rows.take(kept), wrapped.take(kept), nowhere[kept]
        rows = rows.with_values(wrapped)
        if nowhere.all():
            return rows
        keyed = np.flatnonzero(~nowhere)
        self._keep(rows if len(keyed) == len(rows) else rows.take(keyed))
        return rows

    def _keep(self, rows: Rows) -> None:
        operation = self._operation
        wrapped = SubscriptionColumn.of(rows.values)
        combined = combined_keys(
            operation.foreign_key_serde.encode(rows.keys), operation.primary_key_serde.encode(wrapped.inner)
        )
        keys = Column.of_series(series_of(combined))
        kept = np.where(np.isin(wrapped.instructions, _DELETES), -1, np.arange(len(rows)))
        versions = _or_null(wrapped, kept)
        store = self._context.store(operation.store)
        groups = group_keys(keys, store.spec.key_serde)
        first = keys.take(groups.first)
        self._view.note(rows.place, (keys, versions, rows.timestamps), (first, *read_store(store, first)))
        last = groups.last_rows()
        write_store(store, keys.take(last), versions.take(last), rows.timestamps[last])


def _or_null(wrapped: SubscriptionColumn, index: NDArray[np.int64]) -> SubscriptionColumn:
    """Return the subscriptions at these positions, null where the position is negative."""
    if not len(wrapped):
        return SubscriptionColumn.of(Column.nulls(len(index)))
    taken = wrapped.take(np.maximum(index, 0))
    return SubscriptionColumn(taken.hashes, taken.instructions, wrapped.inner.take_or_null(index), taken.partitions)


class _SubscriptionJoin(Operator):
    """SubscriptionJoinProcessorSupplier: answers a subscription with the present foreign value."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._context = context
        self._table = cast("SubscriptionJoin", node.operation).table

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        wrapped = SubscriptionColumn.of(rows.values)
        answered = wrapped.instructions != Instruction.DELETE_KEY_NO_PROPAGATE
        if not answered.all():
            index = np.flatnonzero(answered)
            rows, wrapped = rows.take(index), wrapped.take(index)
        foreign, stamps = self._foreign(rows)
        instructions = wrapped.instructions
        exists = ~foreign.null_mask()
        if (instructions == Instruction.DELETE_KEY_AND_PROPAGATE).any():
            hidden = exists & (instructions != Instruction.DELETE_KEY_AND_PROPAGATE)
            foreign = foreign.take_or_null(np.where(hidden, np.arange(len(rows)), -1))
        silent = ~exists & (instructions == Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)
        if silent.any():
            silent[silent] = ~self._has_just_gone(rows.filter(silent))
        answers = ResponseColumn(wrapped.hashes, foreign, wrapped.partitions)
        out = Rows(rows.place, np.maximum(rows.timestamps, stamps), wrapped.inner, answers, rows.headers)
        return out.filter(~silent)

    def _has_just_gone(self, rows: Rows) -> NDArray[np.bool_]:
        """Return whether the foreign value was present when the batch began.

        The answer about its end was for the left row as it was, which has changed: it needs another. Of a batch in
        parts nobody knows it any more; an answer too many says again that there is nothing.
        """
        if self._context.in_parts:
            return np.ones(len(rows), np.bool_)
        start = Rows(Place((-1,), len(rows)), rows.timestamps, rows.keys, rows.values)
        return ~self._foreign(start)[0].null_mask()

    def _foreign(self, rows: Rows) -> tuple[Column, NDArray[np.int64]]:
        """Return the foreign values as of the places of the rows, and their timestamps; a null key has none."""
        null = rows.keys.null_mask()
        view = self._context.table(self._table)
        if not null.any():
            return view.sent_at(rows, rows.keys) if len(rows) else (Column.nulls(0), np.empty(0, np.int64))
        keyed = np.flatnonzero(~null)
        stamps = np.full(len(rows), -1, np.int64)
        if not len(keyed):
            return Column.nulls(len(rows)), stamps
        part = rows.take(keyed)
        values, stamps[keyed] = view.sent_at(part, part.keys)
        return spread(values, keyed, len(rows)), stamps


class _ForeignTableJoin(Operator):
    """ForeignTableJoinProcessorSupplier: sends every subscriber of a foreign key its new value."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = cast("ForeignTableJoin", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        rows = drop_null_keys(replace(rows, olds=None), self._name, self._context)
        operation = self._operation
        if operation.versioned:
            rows = drop_out_of_order(rows, self._name, self._context)
        prefixes = foreign_prefixes(large_binary(operation.foreign_key_serde.encode(rows.keys)))
        groups = group_keys(Column.of_series(series_of(prefixes)), self._context.store(operation.store).spec.key_serde)
        source, keys, wrapped = self._subscribers(rows, prefixes, groups.codes, groups.first)
        if not len(source):
            return Rows.empty()
        taken = rows.take(source)
        primary = operation.primary_key_serde.decode(primary_keys(keys))
        answers = ResponseColumn(wrapped.hashes, taken.values, wrapped.partitions)
        return Rows(taken.place.extend(np.arange(len(source))), taken.timestamps, primary, answers, taken.headers)

    def _subscribers(
        self, rows: Rows, prefixes: pa.Array, codes: NDArray[np.int64], first: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], pa.Array, SubscriptionColumn]:
        """Return each row with each subscription to its key: the row, the combined key, and the subscription."""
        store = self._context.store(self._operation.store)
        view = cast("_Subscriptions", self._context.table(self._operation.subscriptions))
        distinct = prefixes.take(pa.array(first)).to_pylist()
        group, keys, subscriptions = store.prefix_columns(distinct)
        changed, keys_changed = view.noted_under(distinct)
        wrapped = SubscriptionColumn.of(subscriptions)
        if len(changed):
            group, keys, wrapped = _with_candidates(group, keys, wrapped, changed, keys_changed)
        starts = np.searchsorted(group, np.arange(len(first)))
        counts = np.diff(np.append(starts, len(group)))[codes]
        source = np.repeat(np.arange(len(rows)), counts)
        entry = np.arange(len(source)) + np.repeat(starts[codes] - np.cumsum(counts) + counts, counts)
        keys, wrapped = keys.take(pa.array(entry)), wrapped.take(entry)
        if not len(changed):
            return source, keys, wrapped
        # Under these keys the store has the state after the batch; the rows see the state at their places.
        moved = np.flatnonzero(np.isin(codes[source], changed))
        as_of, _ = view.values_at(rows.take(source[moved]), Column.of_series(series_of(keys.take(pa.array(moved)))))
        index = np.arange(len(source))
        index[moved] = len(source) + np.arange(len(moved))
        wrapped = SubscriptionColumn.of(Column.concat([wrapped, SubscriptionColumn.of(as_of)])).take(index)
        there = np.flatnonzero(~wrapped.null_mask())
        return source[there], keys.take(pa.array(there)), wrapped.take(there)


def _with_candidates(
    group: NDArray[np.int64],
    keys: pa.Array,
    wrapped: SubscriptionColumn,
    more: NDArray[np.int64],
    more_keys: list[bytes],
) -> tuple[NDArray[np.int64], pa.Array, SubscriptionColumn]:
    """Return the entries, and others that may have existed at some place, in order of group and key."""
    stored_keys = set(keys.to_pylist())
    added = [i for i, key in enumerate(more_keys) if key not in stored_keys]
    groups = np.concatenate([group, more[added]])
    every = pa.concat_arrays([keys, pa.array([more_keys[i] for i in added], pa.large_binary())])
    frame = pl.DataFrame({"group": groups, "key": series_of(every)}).with_row_index("row")
    order = frame.sort("group", "key").get_column("row").to_numpy().astype(np.int64)
    known_rows = np.where(order < len(group), order, -1)
    return groups[order], every.take(pa.array(order)), _or_null(wrapped, known_rows)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    SubscriptionReceive: _SubscriptionReceive,
    SubscriptionJoin: _SubscriptionJoin,
    ForeignTableJoin: _ForeignTableJoin,
}
