"""The value fields that a verb looks up, and those that exist, where a serde with a schema declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.errors import TopologyError
from penstock.topology.nodes import Node, ProcessorNode, SourceNode
from penstock.topology.operations.base import CogroupMember, CogroupMerge, StreamGlobalTableJoin
from penstock.topology.operations.functions import Function, functions_of

__all__ = ["check_fields", "fields_hint", "fields_known_above", "fields_read"]

_OF_RECORD = frozenset({"key", "timestamp", "value", "aggregate"})


def fields_read(nodes: Mapping[str, Node], node: ProcessorNode) -> dict[str, Function]:
    """Return the fields of incoming values that a node's expressions and built-in aggregators look up, by reader.

    Joiners are left out: their expressions read ``left`` and ``right``.
    """
    operation = node.operation
    if isinstance(operation, CogroupMember):
        merge = next(n.operation for n in nodes.values() if isinstance(n, ProcessorNode) and node.name in n.parents)
        functions = [merge.aggregators[operation.number]] if isinstance(merge, CogroupMerge) else []
    elif isinstance(operation, StreamGlobalTableJoin):
        functions = [operation.selector]
    else:
        functions = list(functions_of(operation)) if operation.reads_values else []
    return {name: function for function in functions for name in _fields_of(function.fn)}


def _fields_known(nodes: Mapping[str, Node], name: str) -> frozenset[str] | None:
    """Return the fields of the values that a node sends on; None where no schema declares them."""
    node = nodes[name]
    if isinstance(node, SourceNode):
        fields = getattr(node.value_serde, "fields", None)
        return None if fields is None else frozenset(fields)
    if not isinstance(node, ProcessorNode) or not node.operation.keeps_values:
        return None
    return fields_known_above(nodes, node)


def check_fields(nodes: Mapping[str, Node]) -> None:
    """Check that the fields which expressions and built-in aggregators look up are in the values' schema.

    Raises:
        TopologyError: A schema is known and lacks a field.
    """
    for node in nodes.values():
        if not isinstance(node, ProcessorNode):
            continue
        read = fields_read(nodes, node)
        field_names = fields_known_above(nodes, node) if read else None
        for field, function in read.items() if field_names is not None else ():
            if field_names is not None and field not in field_names:
                raise TopologyError(
                    f"{node.name} reads the field {field!r}, which the values' schema lacks "
                    f"({function.file}:{function.line})",
                    hint=fields_hint(field, field_names),
                    node=node.name,
                    field=field,
                )


def fields_hint(field: str, field_names: frozenset[str] | set[str]) -> str:
    """Return a hint that names the existing fields, the most similar one first."""
    return f"{did_you_mean(field, field_names)} The fields are {', '.join(sorted(field_names))}.".lstrip()


def fields_known_above(nodes: Mapping[str, Node], node: ProcessorNode) -> frozenset[str] | None:
    """Return the fields of the values that a node gets; None where no schema declares those of a parent."""
    above = [_fields_known(nodes, parent) for parent in node.parents]
    if any(fields is None for fields in above):
        return None
    return frozenset().union(*(fields for fields in above if fields is not None))


def _fields_of(fn: Any) -> Iterator[str]:
    """Yield the fields that a built-in aggregator or a Polars expression names."""
    read = getattr(fn, "fields_read", None)
    if read is not None:
        yield from read
    meta = getattr(fn, "meta", None)
    for name in meta.root_names() if meta is not None else ():
        if name and name not in _OF_RECORD and not (name.startswith("^") and name.endswith("$")):
            yield name
