"""The operators that join two streams in a window.

The nodes of one join share its two sides and the join itself. In a batch both `JoinWindow` nodes run first and note
their rows; then the first of the two join nodes matches the rows of both sides, each with the rows stored before the
batch and with the rows of the other side that come before it, and puts them into the stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.runtime.exception_handlers import is_of_record
from penstock.runtime.functions import FAILED, join_rows, row_join
from penstock.runtime.joins.unmatched import Events, OuterJoinQueue, Released
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.rows import NO_OLD, Place, Row, Rows
from penstock.runtime.tables import spread
from penstock.serde.base import row_encoder
from penstock.serde.bound_serdes import RecordHeaders
from penstock.serde.column import Column, to_bytes_list
from penstock.state.views.join_buffers import OuterJoinView
from penstock.topology.building.joins import JoinWindow, SelfJoin, StreamStreamJoin
from penstock.topology.operations.definitions import Operation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Headers
    from penstock.serde.bound_serdes import CurrentHeaders
    from penstock.state.views.window import WindowRows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]

# Pairs of rows

_LARGEST = 1 << 62


@dataclass(frozen=True)
class Probes:
    """Rows that look for matches in ``lows <= time <= highs``; ``ranks`` are their positions in the batch."""

    codes: NDArray[np.int64]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    ranks: NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Rows that can be found, in order of arrival; those stored by earlier batches have the rank -1."""

    codes: NDArray[np.int64]
    times: NDArray[np.int64]
    ranks: NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Positions of probes and of the rows that each one matches, in the order of probe, time and arrival."""

    probes: NDArray[np.int64]
    matches: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.probes)


def pairs_of(probes: Probes, candidates: Candidates) -> Pairs:
    """Return all matches of rows that stand before the probe."""
    none = np.empty(0, np.int64)
    if not len(probes.codes) or not len(candidates.codes):
        return Pairs(none, none)
    lows, highs, times = probes.lows, probes.highs, candidates.times
    base, last = int(times.min()), int(times.max())
    span = last - base + 1
    if span * (int(max(candidates.codes.max(), probes.codes.max())) + 1) >= _LARGEST:  # count distinct times instead
        distinct = np.unique(times)
        times = np.searchsorted(distinct, times)
        lows, highs = np.searchsorted(distinct, lows), np.searchsorted(distinct, highs, "right") - 1
        base, span = 0, len(distinct)
    line, order = _sorted(candidates.codes * span + (times - base))  # one number line, key after key
    fronts = probes.codes * span
    first = _search(line, fronts + np.clip(lows - base, 0, span))
    counts = np.maximum(_search(line, fronts + np.clip(highs - base + 1, 0, span)) - first, 0)
    index = np.repeat(np.arange(len(counts)), counts)
    matched = order[first[index] + numbered(counts)]
    before = candidates.ranks[matched] < probes.ranks[index]
    return Pairs(index[before], matched[before])


def _sorted(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers (none negative) in order, and the place of each; equal ones keep their order."""
    bits = len(numbers).bit_length()
    if int(numbers.max()) >= _LARGEST >> bits:
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order
    packed = (numbers << bits) | np.arange(len(numbers))  # sorting numbers is several times faster than sorting places
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def _search(line: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many numbers of the line are smaller than each; searched in order, for the processor's caches."""
    if not len(numbers):
        return numbers
    ascending, order = _sorted(numbers)
    result = np.empty(len(numbers), np.int64)
    result[order] = np.searchsorted(line, ascending)
    return result


def numbered(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... as many as each count says."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


# Sides

_NO_INDEX = np.empty(0, np.int64)


class JoinSide:
    """One side of a join, shared by the node that keeps the rows and the nodes that look them up."""

    def __init__(self, node: str, store: str, context: TaskContext) -> None:
        self.node = node
        self._store = store
        self._context = context
        self._rows = Rows.empty()

    @property
    def store(self) -> Any:
        """The window store of this side's rows."""
        return self._context.store(self._store)

    def collect(self, rows: Rows) -> None:
        """Note the rows of the batch; they are put into the store once they have been joined."""
        self._rows = rows
        self._context.on_take_back(self.drain)

    def drain(self) -> Rows:
        """Return the noted rows, once."""
        rows, self._rows = self._rows, Rows.empty()
        return rows

    def put(self, arrived: Arrived) -> None:
        """Put the rows that have a key into the store; of a single record its node does that, behind the join."""
        if not self._context.by_record:
            self.put_rows(arrived.rows)

    def put_rows(self, rows: Rows) -> None:
        """Put the rows that have a key into the store."""
        null = rows.keys.null_mask()
        if not null.all():
            rows = rows.filter(~null)
            self.store.put_columns(rows.keys, rows.timestamps, rows.values, rows.timestamps)

    def put_row(self, row: Row) -> None:
        """Put a row by itself into the store, if it has a key."""
        store = self.store
        if store.spec.keeps_headers:
            self.put_rows(row.rows(self._context.step))
        elif row.key is not None:
            store.append(row.key, row.value, row.timestamp)


@dataclass(frozen=True)
class Arrived:
    """A side's rows of the batch. ``valid`` are the positions of those with key and value, ``keys`` their bytes."""

    rows: Rows
    ranks: NDArray[np.int64]
    null_keys: NDArray[np.bool_]
    null_values: NDArray[np.bool_]
    valid: NDArray[np.int64]
    keys: pa.Array

    @classmethod
    def of(cls, rows: Rows, ranks: NDArray[np.int64], side: JoinSide) -> Arrived:
        null_keys, null_values = rows.keys.null_mask(), rows.values.null_mask()
        valid = np.flatnonzero(~(null_keys | null_values))
        keys = rows.keys if len(valid) == len(rows) else rows.keys.take(valid)
        return cls(rows, ranks, null_keys, null_values, valid, side.store.spec.key_serde.encode(keys))

    @property
    def times(self) -> NDArray[np.int64]:
        """The times of the valid rows."""
        return self.rows.timestamps[self.valid]

    def observed_before(self, ranks: NDArray[np.int64], side: JoinSide) -> NDArray[np.int64]:
        """Return the stream time of this side's store as rows at these ranks see it."""
        view = side.store
        before = view.observed_stream_time
        # Stores on disk do not look at records without a value; those in memory do, though they keep none.
        put = self.valid if view.spec.persistent else np.flatnonzero(~self.null_keys)
        if not len(put):
            return np.full(len(ranks), before, np.int64)
        observed = np.maximum.accumulate(np.maximum(self.rows.timestamps[put], before))
        return np.concatenate([[before], observed])[np.searchsorted(self.ranks[put], ranks)]

    def candidates(self, stored: WindowRows, stored_codes: NDArray[np.int64], codes: NDArray[np.int64]) -> Candidates:
        """Return the rows that the other side can find: stored rows, then the batch's."""
        return Candidates(
            np.concatenate([stored_codes, codes]),
            np.concatenate([stored.starts, self.times]),
            np.concatenate([np.full(len(stored), -1, np.int64), self.ranks[self.valid]]),
        )

    def values_of(self, stored: WindowRows, matches: NDArray[np.int64]) -> Column:
        """Return the values of rows that were found: positions in `candidates`."""
        old = matches < len(stored)
        if not old.any():
            return self.rows.values.take(self.valid[matches - len(stored)])
        from_store = stored.decode(matches[old])
        if old.all():
            return from_store
        both = Column.concat([from_store, self.rows.values.take(self.valid[matches[~old] - len(stored)])])
        index = np.empty(len(matches), np.int64)
        index[old] = np.arange(len(from_store))
        index[~old] = np.arange(len(from_store), len(matches))
        return both.take(index)


def codes_of(*keys: pa.Array) -> list[NDArray[np.int64]]:
    """Return a number for each distinct key, across all arrays."""
    together = pa.concat_arrays([k.cast(pa.large_binary()) for k in keys])
    codes = together.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.split(codes, np.cumsum([len(k) for k in keys])[:-1])


def fetch(side: JoinSide, keys: pa.Array, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> WindowRows:
    """Fetch the side's stored rows that rows with these keys may match."""
    distinct = to_bytes_list(keys.unique()) if len(keys) else []
    low, high = (int(lows.min()), int(highs.max())) if len(lows) else (0, -1)
    rows: WindowRows = side.store.fetch_rows(distinct, low, high)
    return rows


def side_of(node: str, store: str, context: TaskContext) -> JoinSide:
    """Return the one `JoinSide` of a windowed node."""
    return context.shared(f"join-side/{node}", lambda: JoinSide(node, store, context))


# A stream with itself


class _SelfJoin(Operator):
    """KStreamKStreamSelfJoin: each row with all earlier ones from the left, then from the right, and with itself.

    The row itself comes among those from the right in order of time, as it would if it were there.
    """

    makes_many = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = operation = cast("SelfJoin", node.operation)
        self._side = side_of(operation.windowed, operation.window_store, context)
        self._time_meta = f"{node.name}/stream-time"

    def row_step(self) -> RowStep:
        return lambda row: _results_of_batch(self, self._side, row.rows(self._context.step))

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        windows = self._operation.windows
        arrived = Arrived.of(self._side.drain(), np.arange(len(rows)), self._side)
        dropped = len(rows) - len(arrived.valid)
        if dropped:
            self._context.drop(self._name, dropped, "null key or value")
        times = arrived.times
        reach = max(windows.before_ms, windows.after_ms)
        stored = fetch(self._side, arrived.keys, np.maximum(times - reach, 0), np.maximum(times + reach, 0))
        codes, old_codes = codes_of(arrived.keys, stored.keys)
        candidates = arrived.candidates(stored, old_codes, codes)
        visible = self._side.store.visible_from(arrived.observed_before(arrived.valid, self._side))

        def pairs(before_ms: int, after_ms: int) -> Pairs:
            lows = np.maximum(np.maximum(times - before_ms, 0), visible)
            return pairs_of(Probes(codes, lows, np.maximum(times + after_ms, 0), arrived.valid), candidates)

        lefts, rights = pairs(windows.before_ms, windows.after_ms), pairs(windows.after_ms, windows.before_ms)
        left_counts = np.bincount(lefts.probes, minlength=len(times))
        right_counts = np.bincount(rights.probes, minlength=len(times))
        alone = self._joins_itself(times)
        is_later = candidates.times[rights.matches] > times[rights.probes]
        earlier = np.bincount(rights.probes[~is_later], minlength=len(times))
        right_numbers = numbered(right_counts) + left_counts[rights.probes] + (is_later & alone[rights.probes])
        valid = rows.take(arrived.valid)
        own = np.flatnonzero(alone)
        pieces = [
            _piece(valid, lefts.probes, numbered(left_counts), candidates.times[lefts.matches]),
            _piece(valid, rights.probes, right_numbers, candidates.times[rights.matches]),
            _piece(valid, own, (left_counts + earlier)[own], times[own]),
        ]
        others = arrived.values_of(stored, rights.matches)
        pieces[0] = replace(pieces[0], olds=arrived.values_of(stored, lefts.matches))
        pieces[1] = replace(pieces[1], values=others, olds=pieces[1].values)
        pieces[2] = replace(pieces[2], olds=pieces[2].values)
        joined = Rows.merge(pieces)
        self._side.put(arrived)
        if joined.olds is None:
            return joined
        return join_rows(self._operation.joiner, replace(joined, olds=None), joined.olds, self._name, self._context)

    def _joins_itself(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each row is young enough to match itself."""
        if not len(times):
            return np.zeros(0, np.bool_)
        stream_times = np.maximum.accumulate(np.maximum(times, self._context.get_meta(self._time_meta, -1)))
        self._context.put_meta(self._time_meta, int(stream_times[-1]))
        return times > stream_times - self._operation.windows.retention_ms + 1


def _piece(rows: Rows, positions: NDArray[np.int64], numbers: NDArray[np.int64], times: NDArray[np.int64]) -> Rows:
    taken = rows.take(positions)
    return replace(taken, place=taken.place.extend(numbers), timestamps=np.maximum(taken.timestamps, times))


# Two streams


class _JoinWindow(Operator):
    """KStreamJoinWindow: notes the rows, which the join puts into the store."""

    takes_turns = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._side = side_of(node.name, cast("JoinWindow", node.operation).window_store, context)
        self._context = context

    def process(self, rows: Rows, parent: str) -> Rows | Iterable[tuple[str | None, Rows]]:  # noqa: ARG002
        self._side.collect(rows)
        return self._joined_first(rows) if self._context.by_record else rows

    def row_step(self) -> RowStep:
        side = self._side

        def step(row: Row) -> Iterator[Row]:
            yield row
            side.put_row(row)

        return step

    def _joined_first(self, row: Rows) -> Iterator[tuple[str | None, Rows]]:
        yield None, row
        self._side.put_rows(row)


class _SharedJoin:
    """Both sides of one join."""

    def __init__(self, operation: StreamStreamJoin, context: TaskContext) -> None:
        self._windows = operation.windows
        self._context = context
        self._outer = (operation.left_outer, operation.right_outer)
        self._left = side_of(operation.left, operation.left_store, context)
        self._right = side_of(operation.right, operation.right_store, context)
        self._queue = (
            None
            if operation.outer_store is None
            else OuterJoinQueue(
                operation.outer_store, operation.windows, both_sides=operation.right_outer, context=context
            )
        )
        self._results: dict[bool, Rows] = {}
        self._record_headers: RecordHeaders | None = None

    def sides(self, *, is_left: bool) -> tuple[JoinSide, JoinSide]:
        """Return a side and the other one."""
        return (self._left, self._right) if is_left else (self._right, self._left)

    def unmatched(self, *, is_left: bool) -> _Unmatched | None:
        """Return the waiting records as rows of one side meet them by themselves; None: none wait."""
        if self._queue is None:
            return None
        own, _ = self.sides(is_left=is_left)
        return _Unmatched(self._queue, own, self._context, is_left=is_left, other_waits=self._outer[int(is_left)])

    def results_with_headers(self, current: CurrentHeaders, *, is_left: bool) -> Rows:
        """Return the result rows of a record whose serdes look at headers.

        As in Kafka they have its headers from before it goes to wait, when the serde of its value adds to them.
        """
        self._record_headers = current.headers
        with current.at(RecordHeaders(current.headers)) as before:
            results = self.results(is_left=is_left)
        self._record_headers = None
        return replace(results, headers=cast("list[Headers]", [before] * len(results)))

    def results(self, *, is_left: bool) -> Rows:
        """Return the result rows of one side, left value in ``values``, right value in ``olds``."""
        if is_left not in self._results:
            self._run()
        return self._results.pop(is_left, Rows.empty())

    def stop_at(self, row: int) -> None:
        """Take back what the rows of one record's results from this one on have done: the joiner failed at that."""
        if self._queue is not None:
            self._queue.stop_at(row)

    def _run(self) -> None:
        left_rows, right_rows = self._left.drain(), self._right.drain()
        ranks = _ranks(left_rows.place, right_rows.place)
        left = Arrived.of(left_rows, ranks[: len(left_rows)], self._left)
        right = Arrived.of(right_rows, ranks[len(left_rows) :], self._right)
        sides = self._match(left, right)
        self._results = self._rows_of(sides)
        self._context.on_take_back(self._results.clear)
        self._left.put(left)
        self._right.put(right)

    def _match(self, left: Arrived, right: Arrived) -> tuple[Matches, Matches]:
        windows = self._windows
        left_lows, left_highs = _bounds(left, windows.before_ms, windows.after_ms)
        right_lows, right_highs = _bounds(right, windows.after_ms, windows.before_ms)
        left_stored = fetch(self._left, right.keys, right_lows, right_highs)
        right_stored = fetch(self._right, left.keys, left_lows, left_highs)
        left_codes, right_codes, left_old, right_old = codes_of(
            left.keys, right.keys, left_stored.keys, right_stored.keys
        )
        left_candidates = left.candidates(left_stored, left_old, left_codes)
        right_candidates = right.candidates(right_stored, right_old, right_codes)
        left_lows = np.maximum(left_lows, _first_visible(self._right, right, left))
        right_lows = np.maximum(right_lows, _first_visible(self._left, left, right))
        left_pairs = pairs_of(Probes(left_codes, left_lows, left_highs, left.ranks[left.valid]), right_candidates)
        right_pairs = pairs_of(Probes(right_codes, right_lows, right_highs, right.ranks[right.valid]), left_candidates)
        return (
            Matches(
                self._left,
                left,
                right,
                right_stored,
                right_candidates,
                left_pairs,
                is_left=True,
                other_waits=self._outer[1],
            ),
            Matches(
                self._right,
                right,
                left,
                left_stored,
                left_candidates,
                right_pairs,
                is_left=False,
                other_waits=self._outer[0],
            ),
        )

    def _rows_of(self, sides: tuple[Matches, Matches]) -> dict[bool, Rows]:
        lone = [self._without_key(m.arrived, outer=outer) for m, outer in zip(sides, self._outer, strict=True)]
        outgoing = None
        if self._queue is None:
            lone = [
                np.union1d(alone, m.arrived.valid[m.counts == 0]) if outer else alone
                for alone, m, outer in zip(lone, sides, self._outer, strict=True)
            ]
        else:
            times = np.empty(sum(len(m.arrived.rows) for m in sides), np.int64)
            for m in sides:
                times[m.arrived.ranks] = m.arrived.rows.timestamps
            stream_times = self._queue.stream_times(times)
            waits = [_NO_INDEX, _NO_INDEX]
            for number, (m, outer) in enumerate(zip(sides, self._outer, strict=True)):
                if not outer:
                    continue
                alone = np.flatnonzero(m.counts == 0)
                after = self._windows.after_ms if m.is_left else self._windows.before_ms
                ends = np.maximum(m.arrived.times[alone] + after, 0)
                late = ends < stream_times[m.arrived.ranks[m.arrived.valid[alone]]]
                lone[number] = np.union1d(lone[number], m.arrived.valid[alone[late]])
                waits[number] = alone[~late]
            events = self._events(sides, (waits[0], waits[1]), times, stream_times)
            outgoing = self._queue.run(events)
        results: dict[bool, Rows] = {}
        for m, alone in zip(sides, lone, strict=True):
            if not len(m.arrived.rows):
                continue
            pieces: list[Rows] = []
            skipped = None
            if outgoing is not None and outgoing.ranks:
                expired, skipped = expired_rows(outgoing, m.arrived, self._left, self._right)
                pieces.append(expired)
            pieces.append(matched_rows(m, skipped))
            if len(alone):
                pieces.append(lone_rows(m.arrived, alone, skipped, is_left=m.is_left))
            results[m.is_left] = Rows.merge(pieces)
        return results

    def _events(
        self,
        sides: tuple[Matches, Matches],
        waits: tuple[NDArray[np.int64], NDArray[np.int64]],
        times: NDArray[np.int64],
        stream_times: NDArray[np.int64],
    ) -> Events:
        """Return the changes of the waiting records; a single one whose value does not encode does not wait."""
        try:
            if self._context.headers is None or self._record_headers is None:
                return outer_events(sides, waits, times, stream_times)
            with self._context.headers.at(self._record_headers):
                return outer_events(sides, waits, times, stream_times)
        except Exception as error:
            if not (self._context.by_record and is_of_record(error)):
                raise
            rows = next(m.arrived.rows for m in sides if len(m.arrived.rows))
            self._context.failed("", None, rows, 0, error)
            return outer_events(sides, (_NO_INDEX, _NO_INDEX), times, stream_times)

    @staticmethod
    def _without_key(arrived: Arrived, *, outer: bool) -> NDArray[np.int64]:
        return np.flatnonzero(arrived.null_keys & ~arrived.null_values) if outer else _NO_INDEX


class _Unmatched:
    """The waiting records of a join, as rows of one side meet them by themselves."""

    def __init__(
        self, queue: OuterJoinQueue, side: JoinSide, context: TaskContext, *, is_left: bool, other_waits: bool
    ) -> None:
        self.queue = queue
        self._context = context
        self._is_left = is_left
        self._other_waits = other_waits
        self._encode = row_encoder(side.store.spec.value_serde)

    def note(self, row: Row, key: bytes, found_times: list[int], *, waits: bool) -> None:
        """Let a row wait, or take out those that it has found; one whose value does not encode does not wait."""
        queue = self.queue
        if found_times and self._other_waits:
            queue.take_out(found_times, key, is_left=not self._is_left)
        if waits:
            try:
                value = self._encode(row.value) or b""
            except Exception as error:
                if not is_of_record(error):
                    raise
                self._context.failed("", None, row.rows(self._context.step), 0, error)
                waits = False
            else:
                queue.add_one(row.timestamp, key, value, is_left=self._is_left)
        queue.note_smallest(row.timestamp if waits else None)


def _ranks(left: Place, right: Place) -> NDArray[np.int64]:
    """Return the position of each row of both sides among all."""
    order = Place.concat([left, right]).order()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _bounds(arrived: Arrived, before_ms: int, after_ms: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and the largest time of a match; Kafka cuts both off at 0."""
    return np.maximum(arrived.times - before_ms, 0), np.maximum(arrived.times + after_ms, 0)


def _first_visible(side: JoinSide, stored: Arrived, probing: Arrived) -> NDArray[np.int64]:
    """Return the smallest time of this side's rows that each valid row of the other can still find."""
    observed = stored.observed_before(probing.ranks[probing.valid], side)
    result: NDArray[np.int64] = side.store.visible_from(observed)
    return result


def _results_of_batch(join: Operator, side: JoinSide, rows: Rows) -> list[Row]:
    """Return what a join makes of a batch of one row of a side."""
    side.collect(rows)
    return Row.each_of(cast("Rows", join.process(rows, side.node)))


class _StreamStreamJoin(Operator):
    """KStreamKStreamJoin, of one side."""

    makes_many = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = operation = cast("StreamStreamJoin", node.operation)
        self._outer = operation.left_outer if operation.is_left else operation.right_outer
        self._join = context.shared(
            f"stream-join/{operation.left}/{operation.right}", lambda: _SharedJoin(operation, context)
        )

    def row_step(self) -> RowStep | None:
        operation, context, name, is_left = self._operation, self._context, self._name, self._operation.is_left
        called, (own, other) = row_join(operation.joiner, name, context), self._join.sides(is_left=is_left)
        if called is None:
            return None
        if own.store.spec.keeps_headers or other.store.spec.keeps_headers:
            return lambda row: _results_of_batch(self, own, row.rows(context.step))
        encode_key = row_encoder(own.store.spec.key_serde)
        before_ms, after_ms = operation.windows.before_ms, operation.windows.after_ms
        if not is_left:
            before_ms, after_ms = after_ms, before_ms
        is_outer, unmatched = self._outer, self._join.unmatched(is_left=is_left)

        def step(row: Row) -> list[Row]:
            key, value, time = row.key, row.value, row.timestamp
            if value is None or (key is None and not is_outer):
                context.drop_row(name, row, "null key or value")
            now = unmatched.queue.stream_time(time) if unmatched is not None else time
            data, partners = b"", []
            if key is not None and value is not None:
                if unmatched is not None and unmatched.queue.is_due(time, now, is_left=is_left):
                    return _results_of_batch(self, own, row.rows(context.step))
                data = encode_key(key) or b""
                partners = other.store.matches(data, max(time - before_ms, 0), max(time + after_ms, 0))
            matched = len(partners)
            waits = False
            if is_outer and value is not None and not matched:
                waits = key is not None and unmatched is not None and max(time + after_ms, 0) >= now
                partners = [] if waits else [(time, None)]
            results: list[Row] = []
            for start, found in partners:
                result = called(row, None, value, found) if is_left else called(row, None, found, value)
                if result is FAILED:
                    break
                results.append(Row(max(time, start), key, result, row.headers, NO_OLD, row.origin))
            if unmatched is not None:
                # A match for which the joiner fails has taken the waiting record out, later ones have not.
                found_times = [start for start, _ in partners[: min(matched, len(results) + 1)]]
                unmatched.note(row, data, found_times, waits=waits)
            return results

        return step

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        null_values = rows.values.null_mask()
        dropped = null_values if self._outer else null_values | rows.keys.null_mask()
        if dropped.any():
            self._context.drop_rows(self._name, rows, np.flatnonzero(dropped), "null key or value")
        current = self._context.headers
        if current is None:
            joined = self._join.results(is_left=self._operation.is_left)
        else:
            joined = self._join.results_with_headers(current, is_left=self._operation.is_left)
        rights = joined.olds
        if rights is None:
            return joined
        results = join_rows(self._operation.joiner, replace(joined, olds=None), rights, self._name, self._context)
        if self._context.has_failed:
            self._join.stop_at(len(results))
        return results


@dataclass(frozen=True)
class Matches:
    """The matches of the rows of one side among the rows of ``other``, and whether those wait for matches."""

    side: JoinSide
    arrived: Arrived
    other: Arrived
    stored: WindowRows  # of the other side
    candidates: Candidates
    pairs: Pairs
    is_left: bool
    other_waits: bool

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of matches of each valid row."""
        return np.bincount(self.pairs.probes, minlength=len(self.arrived.valid))


def _both(rows: Rows, others: Column, *, is_left: bool) -> Rows:
    """Return the rows with both values, the other side's taken from ``others``."""
    return replace(rows, olds=others) if is_left else replace(rows, values=others, olds=rows.values)


def matched_rows(matches: Matches, skipped: NDArray[np.int64] | None) -> Rows:
    """Return a row per match, after ``skipped`` rows (of each row of the side) that come before."""
    pairs = matches.pairs
    positions = matches.arrived.valid[pairs.probes]
    rows = matches.arrived.rows.take(positions)
    number = numbered(matches.counts)
    if skipped is not None:
        number += skipped[positions]
    rows = replace(
        rows,
        place=rows.place.extend(number),
        timestamps=np.maximum(rows.timestamps, matches.candidates.times[pairs.matches]),
    )
    return _both(rows, matches.other.values_of(matches.stored, pairs.matches), is_left=matches.is_left)


def lone_rows(
    arrived: Arrived, positions: NDArray[np.int64], skipped: NDArray[np.int64] | None, *, is_left: bool
) -> Rows:
    """Return the rows at these positions, with nothing on the other side."""
    rows = arrived.rows.take(positions)
    number = np.zeros(len(rows), np.int64) if skipped is None else skipped[positions]
    return _both(replace(rows, place=rows.place.extend(number)), Column.nulls(len(rows)), is_left=is_left)


def expired_rows(
    outgoing: Released, arrived: Arrived, left: JoinSide, right: JoinSide
) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows that leave with the rows of this side, and how many leave with each row."""
    ranks = np.concatenate(outgoing.ranks)
    position = np.searchsorted(arrived.ranks, ranks)
    inside = position < len(arrived.ranks)
    mine = inside & (arrived.ranks[np.where(inside, position, 0)] == ranks)
    taken = pa.array(np.flatnonzero(mine))
    position = position[mine]
    counts = np.bincount(position, minlength=len(arrived.rows))
    times, is_left, keys = OuterJoinView.parse(pa.concat_arrays(outgoing.rows).take(taken))
    encoded = pa.concat_arrays(outgoing.values).take(taken)
    values = []
    for side, mask in ((left, is_left), (right, ~is_left)):
        own = np.flatnonzero(mask)
        values.append(spread(side.store.spec.value_serde.decode(encoded.take(pa.array(own))), own, len(times)))
    rows = replace(
        arrived.rows.take(position),
        timestamps=times,
        keys=left.store.spec.key_serde.decode(keys),
        values=values[0],
        olds=values[1],
    )
    return replace(rows, place=rows.place.extend(numbered(counts))), counts


def outer_events(
    sides: tuple[Matches, Matches],
    waits: tuple[NDArray[np.int64], NDArray[np.int64]],
    times: NDArray[np.int64],
    stream_times: NDArray[np.int64],
) -> Events:
    """Return the batch's changes of the waiting records; ``waits`` are positions in the valid rows of each side."""
    total = len(times)
    is_left, may_release, waiting = (np.zeros(total, np.bool_) for _ in range(3))
    rows, values, ranks = [], [], []
    match_rows, match_ranks = [pa.array([], pa.large_binary())], [np.empty(0, np.int64)]
    for matches, waits_here in zip(sides, waits, strict=True):
        arrived = matches.arrived
        is_left[arrived.ranks] = matches.is_left
        own = arrived.ranks[arrived.valid]
        may_release[own] = True
        waiting[own[waits_here]] = True
        ranks.append(own[waits_here])
        flags = np.full(len(waits_here), matches.is_left, np.bool_)
        rows.append(OuterJoinView.rows(arrived.times[waits_here], flags, arrived.keys.take(pa.array(waits_here))))
        present = arrived.rows.values.take(arrived.valid[waits_here])
        values.append(matches.side.store.spec.value_serde.encode(present))
        if matches.other_waits:
            probes, matched = matches.pairs.probes, matches.pairs.matches
            flags = np.full(len(matched), not matches.is_left, np.bool_)
            keys = arrived.keys.take(pa.array(probes))
            match_rows.append(OuterJoinView.rows(matches.candidates.times[matched], flags, keys))
            match_ranks.append(own[probes])
    order = pa.array(np.argsort(np.concatenate(ranks), kind="stable"))
    return Events(
        times,
        is_left,
        may_release,
        stream_times,
        waiting,
        pa.concat_arrays(rows).take(order),
        pa.concat_arrays(values).take(order),
        np.concatenate(match_ranks),
        pa.concat_arrays(match_rows),
    )


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    JoinWindow: _JoinWindow,
    StreamStreamJoin: _StreamStreamJoin,
    SelfJoin: _SelfJoin,
}
