"""Both sides of a foreign-key join: subscriptions on their way to the other table, and answers on their way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SerializationError
from penstock.runtime.fold.columns import group_keys
from penstock.runtime.functions import apply, failures_removed, join_values
from penstock.runtime.operator import Operator
from penstock.runtime.rows import Place, Rows
from penstock.runtime.tables import (
    StoreTableView,
    drop_null_keys,
    drop_out_of_order,
    read_store,
    spread,
    write_store,
)
from penstock.serde.column import Column, large_binary, series_of, to_bytes_list
from penstock.serde.foreign_key_messages import (
    Hashes,
    Instruction,
    ResponseColumn,
    SubscriptionColumn,
    combined_keys,
    foreign_prefixes,
    primary_keys,
)
from penstock.topology.operations.definitions import (
    ForeignTableJoin,
    Operation,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.serde.base import Serde
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


_NOTHING = 255  # no instruction: nothing is sent
_NEVER = object()  # in place of the foreign key of a row that no earlier part of the batch has changed


def _encoded(
    serde: Serde[Any], column: Column, rows: Rows, node: str, context: TaskContext
) -> tuple[pa.Array, NDArray[np.int64] | None]:
    """Return the column's bytes, and the rows that encode (None: all); the others are reported and null."""
    try:
        return large_binary(serde.encode(column)), None
    except (SerializationError, pa.ArrowException):
        pass  # some row is bad: find it
    data: list[bytes | None] = []
    failed: list[int] = []
    for row, item in enumerate(column.items()):
        try:
            data.append(serde.serialize(item))
        except Exception as error:  # noqa: BLE001 - a user's serde may raise anything
            context.failed(node, None, rows, row, error)
            data.append(None)
            failed.append(row)
    return pa.array(data, pa.large_binary()), failures_removed(failed, len(column))


def _olds(rows: Rows) -> Column:
    return Column.nulls(len(rows)) if rows.olds is None else rows.olds


class _EarlierParts:
    """The rows that earlier parts of the batch have changed, and the foreign key that each was known to have last."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._begun = 0
        self._foreign_keys: dict[bytes | None, Any] = {}

    def exchange(self, names: list[bytes | None], codes: list[int], before: list[Any]) -> list[Any]:
        """Return what is known of the rows of these names, `_NEVER` if they have not changed; then note their changes.

        Args:
            names: The bytes of primary keys.
            codes: For each change the number of its key.
            before: For each change the foreign key until then.
        """
        if self._begun != self._context.begun:
            self._begun, self._foreign_keys = self._context.begun, {}
        foreign_keys = self._foreign_keys
        earlier = [foreign_keys.get(name, _NEVER) for name in names]
        self._context.on_take_back(lambda: self._restore(names, earlier))
        foreign_keys.update((name, None) for name, one in zip(names, earlier, strict=True) if one is _NEVER)
        foreign_keys.update((names[code], key) for code, key in zip(codes, before, strict=True) if key is not None)
        return earlier

    def _restore(self, names: list[bytes | None], earlier: list[Any]) -> None:
        for name, one in zip(names, earlier, strict=True):
            if one is _NEVER:
                self._foreign_keys.pop(name, None)
            else:
                self._foreign_keys[name] = one


class _SubscriptionSend(Operator):
    """SubscriptionSendProcessorSupplier: subscribes changed rows to their foreign keys, and unsubscribes from old ones.

    In an inner join Kafka asks for an answer only where one is needed, on the assumption that earlier answers have
    arrived. Those to earlier changes of the same batch have not, and will be thrown away when they do, as the row has
    changed again: so every further change of a row in a batch asks for an answer.
    """

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = cast("SubscriptionSend", node.operation)
        self._earlier = _EarlierParts(context)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._operation.versioned:
            rows = drop_out_of_order(rows, self._name, self._context)
        encoded, good = _encoded(self._operation.value_serde, rows.values, rows, self._name, self._context)
        if good is not None:
            rows, encoded = rows.take(good), encoded.take(pa.array(good))
        hashes = Hashes.of_values(encoded)
        before, good = self._extracted(rows, _olds(rows))
        if good is not None:
            rows, before, hashes = rows.take(good), before.take(good), hashes.take(good)
        after, good = self._extracted(rows, rows.values)
        if good is not None:
            rows, before, after, hashes = rows.take(good), before.take(good), after.take(good), hashes.take(good)
        unsubscribe, subscribe = self._instructions(rows, before, after)
        if not self._operation.left:
            before = self._ask_again(rows, before, unsubscribe, subscribe)
        return self._sent(rows, hashes, (before, after), (unsubscribe, subscribe))

    def _extracted(self, rows: Rows, values: Column) -> tuple[Column, NDArray[np.int64] | None]:
        """Return the foreign keys of the values that are present, and the rows whose extraction did not raise."""
        there = np.flatnonzero(~values.null_mask())
        if not len(there):
            return Column.nulls(len(rows)), None
        present = replace(rows, values=values, olds=None)
        present = present if len(there) == len(rows) else present.take(there)
        keys, kept = apply(self._operation.extractor, present, self._name, self._context)
        if kept is None:
            return spread(keys, there, len(rows)), None
        good = failures_removed(np.setdiff1d(there, there[kept]).tolist(), len(rows))
        return spread(keys, there[kept], len(rows)), good

    def _instructions(self, rows: Rows, before: Column, after: Column) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return for each row the instruction to the old foreign key, and after that to the new one."""
        gone, never = rows.values.null_mask(), _olds(rows).null_mask()
        had, has = ~before.null_mask(), ~after.null_mask()
        changed = had & self._changed(before, after)
        unsubscribe = np.full(len(rows), _NOTHING, np.uint8)
        subscribe = np.full(len(rows), _NOTHING, np.uint8)
        if self._operation.left:  # every row wants an answer
            unsubscribe[changed & ~(gone & never)] = Instruction.DELETE_KEY_NO_PROPAGATE
            subscribe[~(gone & never)] = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
            return unsubscribe, subscribe
        invalid = ~gone & ~has
        if invalid.any():
            self._context.drop(self._name, int(invalid.sum()), "null foreign key")
        unsubscribe[had & changed & has] = Instruction.DELETE_KEY_NO_PROPAGATE
        unsubscribe[had & ~has] = Instruction.DELETE_KEY_AND_PROPAGATE
        subscribe[has] = Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
        subscribe[has & changed] = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
        return unsubscribe, subscribe

    def _ask_again(
        self, rows: Rows, before: Column, unsubscribe: NDArray[np.uint8], subscribe: NDArray[np.uint8]
    ) -> Column:
        """Change the instructions for rows that an earlier record of the batch has changed already.

        Returns:
            The old foreign keys, with one to send to where a row has none but needs an answer.
        """
        groups = group_keys(rows.keys, self._operation.primary_key_serde)
        inputs = rows.place.inputs
        again = inputs != inputs[groups.first][groups.codes]
        earlier: list[Any] = [_NEVER] * len(groups)
        if self._context.in_parts:
            names = to_bytes_list(large_binary(self._operation.primary_key_serde.encode(rows.keys.take(groups.first))))
            earlier = self._earlier.exchange(names, groups.codes.tolist(), before.items())
            again |= np.array([earlier_key is not _NEVER for earlier_key in earlier], np.bool_)[groups.codes]
        if not again.any():
            return before
        subscribe[again & (subscribe == Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)] = (
            Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
        )
        silent = again & (unsubscribe == _NOTHING) & (subscribe == _NOTHING)
        if not silent.any():
            return before
        segments = groups.segments
        at = np.where(~before.null_mask()[segments.order], np.arange(len(rows)), -1)
        newest = np.maximum.accumulate(at)
        last_sent = segments.scatter(np.where(newest >= segments.starts[segments.codes], segments.order[newest], -1))
        every = before
        sent_earlier = np.array(
            [earlier_key is not _NEVER and earlier_key is not None for earlier_key in earlier], np.bool_
        )[groups.codes]
        if sent_earlier.any():
            last_sent = np.where((last_sent < 0) & sent_earlier, len(rows) + groups.codes, last_sent)
            every = Column.concat(
                [before, Column.of_items([None if earlier_key is _NEVER else earlier_key for earlier_key in earlier])]
            )
        removed = silent & (last_sent >= 0)
        unsubscribe[removed] = Instruction.DELETE_KEY_AND_PROPAGATE
        return every.take(np.where(removed, last_sent, np.arange(len(rows))))

    def _changed(self, before: Column, after: Column) -> NDArray[np.bool_]:
        """Return whether the foreign keys' bytes differ; null differs from any key."""
        if before.null_mask().all():
            return np.ones(len(before), np.bool_)
        serde = self._operation.foreign_key_serde
        same = pc.equal(large_binary(serde.encode(before)), large_binary(serde.encode(after)))
        return ~np.asarray(same.fill_null(pa.scalar(value=False)))

    def _sent(
        self,
        rows: Rows,
        hashes: Hashes,
        foreign: tuple[Column, Column],
        instructions: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    ) -> Rows:
        first, second = (np.flatnonzero(i != _NOTHING) for i in instructions)
        source = np.concatenate([first, second])
        order = np.argsort(source, kind="stable")  # of one row, the old foreign key comes first
        source = source[order]
        keys = [column.take(index) for column, index in zip(foreign, (first, second), strict=True) if len(index)]
        part = np.concatenate([np.zeros(len(first), np.int64), np.ones(len(second), np.int64)])[order]
        sent = np.concatenate([instructions[0][first], instructions[1][second]])[order]
        partition = int(self._context.task_id.rsplit("_", 1)[1])
        taken = rows.take(source)
        wrapped = SubscriptionColumn(hashes.take(source), sent, taken.keys, np.full(len(source), partition, np.int32))
        foreign_keys = Column.concat(keys).take(order) if keys else Column.nulls(0)
        return Rows(taken.place.extend(part), taken.timestamps, foreign_keys, wrapped, taken.headers)


class _ResponseJoin(Operator):
    """ResponseJoinProcessorSupplier: joins the answers to left rows that are still as they were when they asked."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = cast("ResponseJoin", node.operation)

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        operation = self._operation
        answers = ResponseColumn.of(rows.values)
        current, _ = self._context.table(operation.table).sent_at(rows, rows.keys)
        fits = Hashes.of_values(large_binary(operation.value_serde.encode(current))).equal(answers.hashes)
        if not fits.all():
            self._context.drop(self._name, int((~fits).sum()), "the left row has changed since it asked")
            rows, current, answers = rows.filter(fits), current.filter(fits), answers.take(np.flatnonzero(fits))
        foreign = answers.inner
        has_result = ~foreign.null_mask()
        if operation.left:
            has_result |= ~current.null_mask()
        at = np.flatnonzero(has_result)
        side = replace(rows, values=current).take(at)
        results, kept = join_values(operation.joiner, side, foreign.take(at), self._name, self._context)
        good: NDArray[np.int64] | None = None
        if kept is not None:
            good = failures_removed(np.setdiff1d(at, at[kept]).tolist(), len(rows))
            at = at[kept]
        joined = rows.with_values(spread(results, at, len(rows)))
        return joined if good is None else joined.take(good)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    SubscriptionSend: _SubscriptionSend,
    ResponseJoin: _ResponseJoin,
    SubscriptionReceive: _SubscriptionReceive,
    SubscriptionJoin: _SubscriptionJoin,
    ForeignTableJoin: _ForeignTableJoin,
}
