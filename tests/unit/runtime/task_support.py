"""Small topologies put together from nodes, and records in Arrow."""

from __future__ import annotations

import pyarrow as pa

from penstock.config import StreamsConfig
from penstock.log.base import RECORD_SCHEMA
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.task import StreamTask, TaskPart, TopicBatch
from penstock.serde.primitives import StringSerde
from penstock.state.maps import MemoryTaskState
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.functions import Function
from penstock.topology.topology import Topology

STRING = StringSerde()


def function(fn, *allowed):
    return Function.wrap(fn, verb="test", allowed=allowed or (1, 2))


def chain(*operations, sources=("in",), sink="out", stores=(), value_serde=STRING, **sink_options):
    """source -> operations -> sink, names n0, n1, ..."""
    nodes = [SourceNode("source", tuple(sources), STRING, STRING)]
    for number, operation in enumerate(operations):
        used = tuple(getattr(operation, "stores", ()))
        nodes.append(ProcessorNode(f"n{number}", operation, (nodes[-1].name,), used))
    nodes.append(SinkNode("sink", sink, STRING, value_serde, (nodes[-1].name,), **sink_options))
    return topology(*nodes, stores=stores)


def topology(*nodes, stores=()):
    return Topology({n.name: n for n in nodes}, {s.name: s for s in stores})


def batch(records, topic="in", partition=0, first=0):
    """A TopicBatch of (key, value, timestamp[, headers]) tuples; keys and values are bytes."""
    headers = [[{"key": k, "value": v} for k, v in r[3]] if len(r) > 3 else None for r in records]
    columns = [
        list(range(first, first + len(records))),
        [r[2] for r in records],
        [r[0] for r in records],
        [r[1] for r in records],
        headers,
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)]
    return TopicBatch(topic, partition, pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA))


def task(built, partitions=None, sensor=None, **config):
    settings = {"application.id": "test", "statestore.cache.max.bytes": 0}
    settings.update({name.replace("_", "."): value for name, value in config.items()})
    state = MemoryTaskState(built.stores.values())
    environment = TaskEnvironment(wall_clock_ms=0) if sensor is None else TaskEnvironment(sensor, 0)
    return StreamTask(built, StreamsConfig(settings), TaskPart("0_0", partitions or {}), state, environment)


def written(output, topic="out"):
    """(key, value, timestamp) of what was written."""
    if topic not in output.records:
        return []
    rows = output.records[topic].to_pylist()
    return [(r["key"], r["value"], r["timestamp"]) for r in rows]
