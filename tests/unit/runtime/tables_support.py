"""A task of one operator: real state in memory, real views, rows from plain tuples."""

from __future__ import annotations

import itertools

import numpy as np

from penstock.runtime.rows import Place, Rows
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import operator_for
from penstock.serde.column import Column
from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.state.maps import MemoryTaskState
from penstock.state.views import open_view
from penstock.topology.nodes import ProcessorNode, SourceNode
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

STRING = StringSerde()
LONG = NumberSerde("long")


def function(fn, arity):
    return Function.wrap(fn, verb="test", allowed=(arity,))


def store(name="store", value=LONG, *, size_ms=0, retention_ms=0, caching=None):
    if size_ms:
        return StoreSpec(
            name,
            "window",
            STRING,
            value,
            timestamped=True,
            window_size_ms=size_ms,
            retention_ms=retention_ms,
            persistent=False,
            caching=caching,
        )
    return StoreSpec(name, "timestamped", STRING, value, timestamped=True, caching=caching)


def rows_of(records, *, first=0, columnar=True, children=()):
    """Rows of (key, value, timestamp[, old]) tuples; places count from ``first``."""
    keys = [r[0] for r in records]
    values = [r[1] for r in records]
    place = Place.of_inputs(np.arange(first, first + len(records), dtype=np.int64))
    for child in children:
        place = place.child(child)
    column_keys, column_values = Column.of_items(keys), Column.of_items(values)
    if columnar and records:
        column_keys, column_values = Column.of_series(column_keys.series()), Column.of_series(column_values.series())
    olds = Column.of_items([r[3] for r in records]) if records and len(records[0]) > 3 else None
    return Rows(place, np.array([r[2] for r in records], np.int64), column_keys, column_values, None, olds)


def plain(rows):
    """Rows as tuples: (input position, key, value, old, timestamp)."""
    olds = rows.olds.items() if rows.olds is not None else ["-"] * len(rows)
    columns = (rows.place.inputs.tolist(), rows.keys.items(), rows.values.items(), olds, rows.timestamps.tolist())
    return list(zip(*columns, strict=True))


class OneTask:
    """What operators ask of their task, over real stores in memory."""

    def __init__(self, *nodes, stores=(), caching=False, config=None, on_failure=None):
        source = SourceNode("source", ("in",), STRING, LONG)
        self.topology = Topology({"source": source, **{n.name: n for n in nodes}}, {s.name: s for s in stores})
        self.state = MemoryTaskState(stores)
        self.views = {s.name: open_view(s, self.state.map(s.name), self.state.meta) for s in stores}
        self.caching = caching
        self.until_latest = False
        self.config = config or {}
        self.task_id = "0_0"
        self.sensor = Sensor()
        self.batch = 0
        self.wall_clock_ms = 0
        self.input_stream_times = np.zeros(1, np.int64)
        self.dropped = 0
        self.failures = []
        self._fail = on_failure is None
        self._tables = {}
        self.operators = {n.name: operator_for(n, self.topology, self) for n in nodes}

    def caches(self, spec):
        return self.caching and spec.caching is not False

    def store(self, name):
        return self.views[name]

    def table(self, node):
        return self._tables[node]

    def register_table(self, node, view):
        self._tables[node] = view

    def drop(self, node, count, why):
        self.dropped += count

    def drop_rows(self, node, rows, numbers, why):
        self.dropped += len(numbers)

    def failed(self, node, fn, rows, row, error):
        if self._fail:
            raise error
        self.failures.append((node, int(rows.place.inputs[row]), type(error)))

    def get_meta(self, name, default):
        return self.state.meta.get(name, default)

    def put_meta(self, name, value):
        self.state.meta[name] = value

    def run(self, name, rows):
        self.batch += 1
        return self.step(name, rows)

    def step(self, name, rows):
        return self.operators[name].process(rows, "source")


def node(name, operation, *, stores=("store",), parents=("source",)):
    return ProcessorNode(name, operation, parents, stores)


def run_splits(make_task, name, records, splits, *, columnar=True):
    """All output of the operator over the records, cut into batches at these positions; and the task."""
    task = make_task()
    out = []
    bounds = [0, *sorted(set(splits)), len(records)]
    for start, stop in itertools.pairwise(bounds):
        if stop > start:
            out += plain(task.run(name, rows_of(records[start:stop], first=start, columnar=columnar)))
    return out, task
