"""Awaiting a user's coroutine function for each row: many calls at once, all settled before the batch is done."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from penstock.runtime.functions import pair_of
from penstock.runtime.operator import Operator
from penstock.serde.column import Column
from penstock.topology.operations.definitions import MapAsync, Operation

if TYPE_CHECKING:
    from penstock.runtime.context import TaskContext
    from penstock.runtime.rows import Rows
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES"]

T = TypeVar("T")


class _EventLoop:
    """One event loop for all batches of an operator, so that a function's open objects (a session) stay usable."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._finalizer = weakref.finalize(self, _outside, self._runner.close)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return _outside(lambda: self._runner.run(work))

    def close(self) -> None:
        self._finalizer()


def _outside(call: Callable[[], T]) -> T:
    """Call at once, or in another thread where a loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(call).result()


class _MapAsync(Operator):
    """The operator of a coroutine function; results in the order of the rows, or as they were completed."""

    leaves_out_rows = True

    def __init__(self, node: ProcessorNode, context: TaskContext) -> None:
        self._name = node.name
        self._context = context
        self._operation = cast("MapAsync", node.operation)
        self._loop: _EventLoop | None = None

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if not len(rows):
            return rows
        if self._loop is None:
            self._loop = _EventLoop()
        outcomes, completed = self._loop.run(self._settle(rows))
        for row, outcome in enumerate(outcomes):
            if isinstance(outcome, _Failure):
                self._context.failed(self._name, self._operation.fn, rows, row, outcome.error)
        order = range(len(rows)) if self._operation.ordered else completed
        good = np.array([row for row in order if not isinstance(outcomes[row], _Failure)], np.int64)
        results = [outcomes[row] for row in good.tolist()]
        # As completed: the first result takes the first place.
        out = replace(rows.take(good), place=rows.place.take(np.sort(good)))
        if not self._operation.pairs:
            return out.with_values(Column.of_items(results))
        keys, values = [key for key, _ in results], [value for _, value in results]
        return out.with_keys(Column.of_items(keys)).with_values(Column.of_items(values))

    async def _settle(self, rows: Rows) -> tuple[list[Any], list[int]]:
        """Return each row's result or failure, and the rows in the order in which they were completed."""
        outcomes: list[Any] = [None] * len(rows)
        completed: list[int] = []
        calls = enumerate(zip(rows.keys.items(), rows.values.items(), strict=True))

        async def work() -> None:
            for row, (key, value) in calls:
                outcomes[row] = await self._outcome(key, value)
                completed.append(row)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._operation.limit, len(rows))):
                group.create_task(work())
        return outcomes, completed

    async def _outcome(self, key: Any, value: Any) -> Any:
        """Return the function's result after as many attempts as are allowed."""
        retry = self._operation.retry
        pauses = iter(()) if retry is None else retry.pauses_ms()
        while True:
            try:
                result = await asyncio.wait_for(self._call(key, value), self._seconds)
                return pair_of(result) if self._operation.pairs else result
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                pause_ms = next(pauses, None) if retry is not None and isinstance(error, retry.on) else None
                if pause_ms is None:
                    return _Failure(error)
            await asyncio.sleep(pause_ms / 1000)

    async def _call(self, key: Any, value: Any) -> Any:
        fn = self._operation.fn
        awaitable = fn.fn(value) if fn.arity == 1 else fn.fn(key, value)
        if not inspect.isawaitable(awaitable):
            message = f"{fn.name} returned {awaitable!r}, which cannot be awaited; write it as async def"
            raise TypeError(message)
        return await awaitable

    @property
    def _seconds(self) -> float | None:
        timeout_ms = self._operation.timeout_ms
        return None if timeout_ms is None else timeout_ms / 1000

    def close(self) -> None:
        """End the loop."""
        if self._loop is not None:
            self._loop.close()


class _Failure:
    """The exception of a call's last attempt."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _factory(node: ProcessorNode, topology: Topology, context: TaskContext) -> Operator:  # noqa: ARG001
    return _MapAsync(node, context)


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {MapAsync: _factory}
