"""Wrapping the processors of a topology: Kafka's ``ProcessorWrapper`` (KIP-1112)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from penstock.api.processing.build import check_supplier
from penstock.base.java_names import with_java_names
from penstock.errors import ConfigError, TopologyError
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.base import (
    DropNullKeys,
    Filter,
    FlatMapValues,
    MapValues,
    Peek,
    Process,
    TableToStream,
)
from penstock.topology.topology import Topology

__all__ = ["ProcessorWrapper", "wrapped"]

SETTING = "processor.wrapper.class"
_KEEP_KEYS = (DropNullKeys, Filter, FlatMapValues, MapValues, Peek, TableToStream)
Supplier = Callable[[], Any]
BuiltTopology = TypeVar("BuiltTopology", bound=Topology)


@with_java_names
class ProcessorWrapper:
    """The base class of what ``processor.wrapper.class`` names: it may replace the suppliers of processors.

    The setting is read by ``builder.build(config)``. The wrapper is asked once for each processor, those of the DSL
    included, but not those of global stores. The suppliers of the DSL's own operators have to be returned as they are:
    operators work on whole batches.

    >>> from penstock import StreamsBuilder
    >>> class Names(ProcessorWrapper):
    ...     def wrap_fixed_key_processor_supplier(self, name, supplier):
    ...         print(name)
    ...         return supplier
    >>> builder = StreamsBuilder()
    >>> builder.stream("words").map_values(len).to("lengths")
    >>> topology = builder.build({"processor.wrapper.class": Names})
    KSTREAM-MAPVALUES-0000000001
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the application's settings. Called once, first."""

    def wrap_processor_supplier(self, name: str, supplier: Supplier) -> Supplier:  # noqa: ARG002 - for subclasses
        """Return the supplier to use for a processor of that name."""
        return supplier

    def wrap_fixed_key_processor_supplier(self, name: str, supplier: Supplier) -> Supplier:  # noqa: ARG002
        """Return the supplier to use for a processor of that name that cannot change keys."""
        return supplier


class _OfTheDsl:
    """The supplier of an operator of the DSL."""

    def __init__(self, node: str) -> None:
        self._node = node

    def __call__(self) -> Any:
        raise TopologyError(
            f"{self._node} is an operator of the DSL, which works on whole batches and has no processor of its own",
            hint="Return its supplier as it is.",
            node=self._node,
        )


def wrapped(topology: BuiltTopology, settings: Mapping[str, Any]) -> BuiltTopology:
    """Return the topology with the processors that the wrapper of the settings returns, if they name one.

    Raises:
        ConfigError: The setting is no wrapper.
        TopologyError: The wrapper returns something else than a supplier, or wraps an operator of the DSL.
    """
    setting = settings.get(SETTING)
    if setting is None:
        return topology
    wrapper = setting() if isinstance(setting, type) else setting
    if not isinstance(wrapper, ProcessorWrapper):
        raise ConfigError(
            f"{SETTING}: {setting!r} is not a ProcessorWrapper",
            hint="Give a class derived from penstock.ProcessorWrapper, or an object of one.",
        )
    wrapper.configure(settings)
    nodes = dict(topology.nodes)
    global_nodes = topology.global_nodes
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode) and name not in global_nodes:
            nodes[name] = _wrapped(node, wrapper)
    return replace(topology, nodes=nodes)


def _wrapped(node: ProcessorNode, wrapper: ProcessorWrapper) -> ProcessorNode:
    operation = node.operation
    keeps_keys = operation.fixed_key if isinstance(operation, Process) else isinstance(operation, _KEEP_KEYS)
    supplier = operation.supplier if isinstance(operation, Process) else _OfTheDsl(node.name)
    wrap = wrapper.wrap_fixed_key_processor_supplier if keeps_keys else wrapper.wrap_processor_supplier
    result = wrap(node.name, supplier)
    if result is supplier:
        return node
    if not isinstance(operation, Process):
        raise TopologyError(
            f"{SETTING} wraps {node.name}, an operator of the DSL, which works on whole batches",
            hint="Return the suppliers of the DSL's operators as they are; wrap those of process() alone.",
            node=node.name,
        )
    check_supplier(result, "process")
    return replace(node, operation=replace(operation, supplier=result))
