"""``KTable.transform_values``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.api.derived_tables import serdes_of
from penstock.api.handle import TableHandle
from penstock.api.materialize import key_value_spec
from penstock.api.options import Materialized
from penstock.api.processing.build import check_method, check_stores, check_supplier
from penstock.api.processing.transformer import ValueTransformerWithKey
from penstock.api.serdes import UNKNOWN
from penstock.errors import TopologyError
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.operations.tables import TableTransformValues
from penstock.topology.tables import DerivedTable

__all__ = ["transform_values"]


def transform_values(
    above: TableHandle,
    supplier: Callable[[], Any],
    stores: Sequence[str],
    materialized: Materialized | None,
    name: str | None,
) -> TableHandle:
    """Add `KTable.transform_values`; the stores have been added to the builder."""
    if isinstance(supplier, ValueTransformerWithKey):
        raise TopologyError(
            f"transform_values() takes a class or function that makes a transformer, not {supplier!r}",
            hint="Every task needs its own transformer: pass the class, or lambda: MyTransformer(...).",
        )
    check_supplier(supplier, "transform_values")
    check_method(supplier, "transform", ("key", "value"), "transform_values")
    check_stores(stores, "transform_values")
    uses = tuple(dict.fromkeys(stores))
    spec = None
    if materialized is not None and materialized.name is not None:
        spec = key_value_spec(materialized, above.key_serde, UNKNOWN)
    state = DerivedTable((above.state,), spec)
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
    serdes = serdes_of(materialized, above.key_serde, UNKNOWN)
    return TableHandle(above.builder, graph, node, *serdes, above.sources, state, state.store)
