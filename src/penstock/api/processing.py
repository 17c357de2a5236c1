"""``process`` and ``process_values``: the Processor API inside the DSL."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from penstock.api.processor import Processor
from penstock.api.stream import KStream
from penstock.errors import TopologyError
from penstock.topology.graph import ProcessorGraph
from penstock.topology.operations import Process
from penstock.topology.stores import StoreSpec

__all__ = ["check_supplier", "connected_stores", "process", "processor_operation"]


def process(
    stream: KStream[Any, Any],
    supplier: Callable[[], Any],
    stores: Sequence[str | StoreSpec],
    name: str | None,
    *,
    fixed_key: bool,
) -> KStream[Any, Any]:
    """Adds a processor; stores given as specs are its own, those given by name have been added to the builder."""
    verb = "process_values" if fixed_key else "process"
    if isinstance(stores, str):
        raise TopologyError(f"{verb}(): stores is the text {stores!r}", hint=f"Pass a list: stores=[{stores!r}].")
    own = (*(store for store in stores if isinstance(store, StoreSpec)), *connected_stores(supplier))
    uses = tuple(store for store in stores if isinstance(store, str))
    operation = processor_operation(supplier, verb, own, uses, fixed_key=fixed_key)
    names = stream._handle.builder.names  # noqa: SLF001
    # Unlike other verbs, a processor with a name of its own burns no number.
    node = (
        name if name is not None else names.processor("KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-")
    )
    graph = ProcessorGraph(name=node, operation=lambda: operation, own_stores=lambda: own, uses=uses)
    return stream._below(graph, keys=not fixed_key, values=True)  # noqa: SLF001


def processor_operation(
    supplier: Callable[[], Any],
    verb: str,
    own: Sequence[StoreSpec],
    uses: Sequence[str] = (),
    *,
    fixed_key: bool = False,
) -> Process:
    """The operation of a processor with these stores, after a check of what makes it."""
    check_supplier(supplier, verb)
    return Process(supplier, tuple(dict.fromkeys([*(store.name for store in own), *uses])), fixed_key)


def connected_stores(supplier: object) -> tuple[StoreSpec, ...]:
    """The stores that a supplier's own ``stores()`` gives: Kafka's ``ConnectedStoreProvider``."""
    while isinstance(supplier, functools.partial):
        supplier = supplier.func
    stores = getattr(supplier, "stores", None)
    if not callable(stores):
        return ()
    try:
        found = tuple(stores())
    except TypeError as error:
        raise TopologyError(
            f"stores() of {supplier!r} cannot be called without an instance: {error}", hint="Make it a classmethod."
        ) from error
    wrong = next((store for store in found if not isinstance(store, StoreSpec)), None)
    if wrong is not None:
        raise TopologyError(
            f"stores() of {supplier!r} gives {wrong!r}", hint='Give stores, e.g. [Stores.key_value("counts")].'
        )
    return found


def check_supplier(supplier: object, verb: str) -> None:
    """Raises TopologyError unless this makes a new processor when it is called."""
    if isinstance(supplier, Processor) or not callable(supplier):
        raise TopologyError(
            f"{verb}() takes a class or function that makes a processor, not {type(supplier).__name__} {supplier!r}",
            hint="Every task needs a processor of its own: pass the class, or lambda: MyProcessor(...).",
        )
    try:
        inspect.signature(supplier).bind()
    except TypeError as error:
        raise TopologyError(
            f"{verb}() calls what makes the processor without arguments: {error}",
            hint="Wrap it: lambda: MyProcessor(...).",
        ) from error
    except ValueError:
        return
