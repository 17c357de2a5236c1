"""A stream joined with itself over one store: the optimiser's form of a self-join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.runtime.functions.joiners import join_rows
from penstock.runtime.joins.pairs import Pairs, Probes, numbered, pairs_of
from penstock.runtime.joins.sides import Arrived, codes_of, fetch, side_of
from penstock.runtime.operator import Operator
from penstock.runtime.rows import Rows
from penstock.topology.building.joins import SelfJoin
from penstock.topology.operations.base import Operation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]


class _SelfJoin(Operator):
    """KStreamKStreamSelfJoin: each row with all earlier ones from the left, then from the right, and with itself.

    The row itself comes among those from the right in order of time, as it would if it were there.
    """

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:  # noqa: ARG002
        self._name = node.name
        self._context = context
        self._operation = operation = cast("SelfJoin", node.operation)
        self._side = side_of(operation.windowed, operation.window_store, context)
        self._time_meta = f"{node.name}/stream-time"

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
        is_later = candidates.times[rights.found] > times[rights.probes]
        earlier = np.bincount(rights.probes[~is_later], minlength=len(times))
        right_numbers = numbered(right_counts) + left_counts[rights.probes] + (is_later & alone[rights.probes])
        valid = rows.take(arrived.valid)
        own = np.flatnonzero(alone)
        pieces = [
            _piece(valid, lefts.probes, numbered(left_counts), candidates.times[lefts.found]),
            _piece(valid, rights.probes, right_numbers, candidates.times[rights.found]),
            _piece(valid, own, (left_counts + earlier)[own], times[own]),
        ]
        others = arrived.values_of(stored, rights.found)
        pieces[0] = replace(pieces[0], olds=arrived.values_of(stored, lefts.found))
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


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {SelfJoin: _SelfJoin}
