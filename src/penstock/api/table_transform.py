"""``KTable.transform_values``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.api.handle import Handle
from penstock.api.materialize import key_value_spec
from penstock.api.options import Materialized
from penstock.api.processing import check_supplier
from penstock.api.serdes import UNKNOWN
from penstock.api.table import KTable
from penstock.api.transformer import ValueTransformerWithKey
from penstock.errors import TopologyError
from penstock.topology.graph import ProcessorGraph
from penstock.topology.table_operations import TableTransformValues
from penstock.topology.tables import DerivedTable

__all__ = ["transform_values"]


def transform_values(
    table: KTable[Any, Any],
    supplier: Callable[[], Any],
    stores: Sequence[str],
    materialized: Materialized | None,
    name: str | None,
) -> KTable[Any, Any]:
    """Adds a transformer; its stores have been added to the builder."""
    if isinstance(supplier, ValueTransformerWithKey):
        raise TopologyError(
            f"transform_values() takes a class or function that makes a transformer, not {supplier!r}",
            hint="Every task needs a transformer of its own: pass the class, or lambda: MyTransformer(...).",
        )
    check_supplier(supplier, "transform_values")
    if isinstance(stores, str):
        raise TopologyError(f"transform_values(): stores is the text {stores!r}", hint=f"Pass a list: [{stores!r}].")
    above = table._handle  # noqa: SLF001
    uses = tuple(dict.fromkeys(stores))
    spec = None
    if materialized is not None and materialized.name is not None:
        spec = key_value_spec(materialized, above.key_serde, UNKNOWN)
    state = DerivedTable((table._state,), spec)  # noqa: SLF001
    node = above.builder.names.processor("KTABLE-TRANSFORMVALUES-", name)
    graph = ProcessorGraph(
        name=node,
        operation=lambda: TableTransformValues(supplier, above.node, uses, state.store, state.send_old),
        own_stores=state.own_stores,
        uses=uses,
    )
    if materialized is not None:
        graph.output_versioned = materialized.history is not None
    above.builder.add(above.graph, graph)
    key, value = above.key_serde, UNKNOWN
    if materialized is not None:
        key = key if materialized.key_serde is None else materialized.key_serde
        value = value if materialized.value_serde is None else materialized.value_serde
    return KTable(Handle(above.builder, graph, node, key, value, above.sources), state, state.store)
