"""Warnings about fields that expressions and built-in aggregators look up and no value has.

In a schemaless value a field that is not there counts as null, so a misspelled one makes a filter, a key or a sum empty
without an error. Where a schema is known the topology has been checked (`penstock.topology.configured.value_fields`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from penstock.base.log_lines import own_logger
from penstock.base.terminal.human_numbers import counted
from penstock.errors import SerializationError
from penstock.serde.column import Column
from penstock.topology.configured.value_fields import fields_hint, fields_known_above, fields_read

if TYPE_CHECKING:
    from penstock.runtime.graph import Graph
    from penstock.runtime.rows import Rows
    from penstock.runtime.sensor import Sensor
    from penstock.topology.operations.functions import Function
    from penstock.topology.topology import Topology

__all__ = ["MissingFields"]

_NOT_OBJECTS = {dict, type(None), str, int, float, bool, bytes, list, tuple}
_LOG = own_logger("penstock.runtime")
_FIRST_REPORT = 10  # values; from then on at ten times as many each time
_NAMES_KEPT = 100


@dataclass
class _Pending:
    """A field that has not been found so far."""

    function: Function
    values: int = 0
    next_report: int = _FIRST_REPORT
    seen: set[str] = field(default_factory=set)


class MissingFields:
    """The fields of a task's operators that no value has had so far; each is looked for until it is found once.

    Args:
        graph: The task's part of the topology.
        topology: The whole topology.
        task_id: For messages.
        sensor: Its ``on_field_missing`` is called for each missing field.
    """

    def __init__(self, graph: Graph, topology: Topology, task_id: str, sensor: Sensor) -> None:
        self._task_id = task_id
        self._sensor = sensor
        self.nodes: dict[str, dict[str, _Pending]] = {}
        for node in graph.processors():
            read = fields_read(topology.nodes, node)
            if read and fields_known_above(topology.nodes, node) is None:
                self.nodes[node.name] = {name: _Pending(function) for name, function in read.items()}

    @property
    def never_found(self) -> int:
        """The number of fields that no value has had, though there were values."""
        return sum(one.values > 0 for pending in self.nodes.values() for one in pending.values())

    def look(self, node: str, rows: Rows) -> None:
        """Look for the operator's missing fields in the values that it is about to get."""
        pending = self.nodes[node]
        present, values = _names_in(rows.values)
        for name in present & pending.keys():
            del pending[name]
        for one in pending.values():
            one.values += values
            if len(one.seen) < _NAMES_KEPT:
                one.seen |= present
        if not pending:
            del self.nodes[node]

    def report(self, *, closing: bool = False) -> None:
        """Log the fields that are missing after enough values to be worth a warning; at the end all that are left."""
        for node, pending in self.nodes.items():
            for name, one in pending.items():
                if one.values and (closing or one.values >= one.next_report):
                    self._warn(node, name, one)
                    while one.next_report <= one.values:
                        one.next_report *= 10

    def _warn(self, node: str, name: str, one: _Pending) -> None:
        where = f"{one.function.file}:{one.function.line}"
        hint = fields_hint(name, one.seen) if one.seen else "The values are not dicts or structs."
        _LOG.warning(
            "task %s: %s looks for the field %r (%s), and none of %s has it, so it counts as null. %s",
            self._task_id,
            node,
            name,
            where,
            counted(one.values, "value"),
            hint,
        )
        self._sensor.on_field_missing(self._task_id, node, name, one.values)


def _names_in(column: Column) -> tuple[set[str], int]:
    """Return the fields of the values, and how many values there are; nulls are none."""
    has_bytes = type(column) is not Column  # such a one is better read by column
    if column.is_columnar or has_bytes or not set(map(type, column.items())) <= _NOT_OBJECTS:
        with suppress(SerializationError):
            series = column.series()
            fields = {f.name for f in series.dtype.fields} if isinstance(series.dtype, pl.Struct) else set()
            return fields, len(series) - series.null_count()
    present: set[str] = set()
    values = 0
    for item in column.items():
        if item is not None:
            values += 1
            if isinstance(item, Mapping):
                present.update(item)
    return {name for name in present if isinstance(name, str)}, values
