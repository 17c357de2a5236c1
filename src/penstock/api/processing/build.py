"""``process`` and ``process_values``: the Processor API inside the DSL, and wrappers of processors (KIP-1112)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from penstock.api.handle import StreamHandle
from penstock.api.processing.processor import Processor
from penstock.base.java_names import with_java_names
from penstock.errors import ConfigError, TopologyError
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.building.names import check_name
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import Process
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

__all__ = [
    "ProcessorWrapper",
    "check_method",
    "check_stores",
    "check_supplier",
    "connected_stores",
    "process",
    "processor_operation",
    "wrapped",
]


def process(
    stream: StreamHandle,
    supplier: Callable[[], Any],
    stores: Sequence[str | StoreSpec],
    name: str | None,
    *,
    fixed_key: bool,
) -> StreamHandle:
    """Add a processor; stores given as specs are its own, those given by name have been added to the builder."""
    verb = "process_values" if fixed_key else "process"
    check_stores(stores, verb)
    own = (*(store for store in stores if isinstance(store, StoreSpec)), *connected_stores(supplier))
    uses = tuple(store for store in stores if isinstance(store, str))
    operation = processor_operation(supplier, verb, own, uses, fixed_key=fixed_key)
    names = stream.builder.names
    # Unlike other verbs, a processor with a name of its own uses up no number.
    prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
    node = names.processor(prefix) if name is None else check_name(name)
    graph = ProcessorGraph(
        name=node,
        operation=lambda: operation,
        own_stores=lambda: own,
        uses=uses,
        may_change="value" if fixed_key else "key",
    )
    return stream.below(graph, keys=not fixed_key, values=True)


def processor_operation(
    supplier: Callable[[], Any],
    verb: str,
    own: Sequence[StoreSpec],
    uses: Sequence[str] = (),
    *,
    fixed_key: bool = False,
) -> Process:
    """Check the supplier of a processor, and make the operation that runs it with these stores."""
    check_supplier(supplier, verb)
    check_method(supplier, "process", ("record",), verb)
    if inspect.iscoroutinefunction(getattr(supplier, "process", None)):
        raise TopologyError(
            f"{verb}(): process() of {getattr(supplier, '__name__', supplier)} is an async def, which is not awaited",
            hint="Use map_values_async() or map_async() for the calls to await, and a plain process() after it.",
        )
    return Process(supplier, tuple(dict.fromkeys([*(store.name for store in own), *uses])), fixed_key)


def connected_stores(supplier: object) -> tuple[StoreSpec, ...]:
    """Return the stores of a supplier's own ``stores()``: Kafka's ``ConnectedStoreProvider``."""
    while isinstance(supplier, functools.partial):
        supplier = supplier.func
    stores = getattr(supplier, "stores", None)
    if not callable(stores):
        return ()
    try:
        specs = tuple(stores())
    except TypeError as error:
        raise TopologyError(
            f"stores() of {supplier!r} cannot be called without an instance: {error}", hint="Make it a classmethod."
        ) from error
    wrong = next((store for store in specs if not isinstance(store, StoreSpec)), None)
    if wrong is not None:
        raise TopologyError(
            f"stores() of {supplier!r} returns {wrong!r}, not a store",
            hint='Return stores, e.g. [Stores.key_value("counts")].',
        )
    return specs


def check_stores(stores: object, verb: str) -> None:
    """Raise TopologyError unless these are stores or names of stores."""
    hint = f"Pass a list: stores=[{stores!r}]." if isinstance(stores, str | StoreSpec) else 'For example ["counts"].'
    wrong = isinstance(stores, str | bytes) or not isinstance(stores, Iterable)
    if wrong or not all(isinstance(store, str | StoreSpec) for store in stores):  # type: ignore[attr-defined]
        raise TopologyError(f"{verb}() takes a list of stores or their names, not {stores!r}", hint=hint)


def check_supplier(supplier: object, verb: str) -> None:
    """Raise TopologyError unless a call of the supplier makes a new processor."""
    if isinstance(supplier, Processor) or not callable(supplier):
        raise TopologyError(
            f"{verb}() takes a class or function that makes a processor, not {type(supplier).__name__} {supplier!r}",
            hint="Every task needs its own processor: pass the class, or lambda: MyProcessor(...).",
        )
    try:
        inspect.signature(supplier).bind()
    except TypeError as error:
        raise TopologyError(
            f"{verb}() calls its supplier without arguments: {error}",
            hint="Wrap it: lambda: MyProcessor(...).",
        ) from error
    except ValueError:
        return


def check_method(supplier: object, method: str, arguments: tuple[str, ...], verb: str) -> None:
    """Raise TopologyError unless the objects of a class have a method that takes these arguments.

    Functions pass, as the type of their result is not known before they are called.
    """
    if not isinstance(supplier, type):
        return
    call = f"{supplier.__name__}.{method}({', '.join(arguments)})"
    function = getattr(supplier, method, None)
    if not callable(function):
        raise TopologyError(f"{verb}() calls {call}, which does not exist", hint=f"Define {method}(self, ...) there.")
    try:
        inspect.signature(function).bind(None, *arguments)
    except TypeError as error:
        raise TopologyError(f"{verb}() calls {call}: {error}", hint="Take these arguments and no others.") from error
    except ValueError:
        return


SETTING = "processor.wrapper.class"
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
    keeps_keys = operation.fixed_key if isinstance(operation, Process) else operation.keeps_keys
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
