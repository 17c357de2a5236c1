"""``process`` and ``process_values``: the Processor API inside the DSL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from penstock.api.processor import Processor
from penstock.api.stream import KStream
from penstock.errors import TopologyError
from penstock.topology.graph import ProcessorGraph
from penstock.topology.operations import Process
from penstock.topology.stores import StoreSpec

__all__ = ["check_supplier", "process"]


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
    check_supplier(supplier, verb)
    if isinstance(stores, str):
        raise TopologyError(f"{verb}(): stores is the text {stores!r}", hint=f"Pass a list: stores=[{stores!r}].")
    own = tuple(store for store in stores if isinstance(store, StoreSpec))
    uses = tuple(store for store in stores if isinstance(store, str))
    operation = Process(supplier, tuple(s if isinstance(s, str) else s.name for s in stores), fixed_key)
    names = stream._handle.builder.names  # noqa: SLF001
    # Unlike other verbs, a processor with a name of its own burns no number.
    node = (
        name if name is not None else names.processor("KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-")
    )
    graph = ProcessorGraph(name=node, operation=lambda: operation, own_stores=lambda: own, uses=uses)
    return stream._below(graph, keys=not fixed_key, values=True)  # noqa: SLF001


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
