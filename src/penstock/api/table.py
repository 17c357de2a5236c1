"""KTable: the newest value of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.derived_tables import filter_table, map_table_values, serdes_of, stream_of_table
from penstock.api.handle import Fluent, GlobalTableHandle, TableHandle, name_of, option
from penstock.api.joins.table_verbs import TableJoinVerbs
from penstock.api.materialize import key_value_spec
from penstock.api.options import Grouped, Materialized, Named
from penstock.api.processing.build import check_method, check_stores, check_supplier
from penstock.api.processing.processor import ValueTransformerWithKey
from penstock.api.serdes import UNKNOWN
from penstock.api.windowed.suppressed import Suppressed, suppress_table
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.operations.definitions import TableTransformValues
from penstock.topology.operations.functions import Function
from penstock.topology.tables import DerivedTable

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.groups.grouped import KGroupedTable
    from penstock.api.stream import KStream

__all__ = ["GlobalKTable", "KTable"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
Name = str | Named | None


@with_java_names
class KTable(TableJoinVerbs[K, V]):
    """A table, as a stream of its changes: Kafka's ``KTable``. A null value deletes a key."""

    @property
    def queryable_store_name(self) -> str | None:
        """The name of its store if the user named one (``queryableStoreName``)."""
        return self._handle.store

    @overload
    def filter(
        self, predicate: Callable[[V], bool], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[K, V]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[K, V], bool] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]: ...

    def filter(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Keep the rows for which the predicate is true; other rows count as deleted.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.to_table().filter(lambda value: value > 1), [("a", 2), ("a", 1)])
        [('a', 2), ('a', None)]
        """
        fn = Function.wrap(predicate, verb="filter", allowed=(1, 2))
        return KTable(filter_table(self._handle, fn, Materialized.of(materialized), name_of(name), negate=False))

    @overload
    def filter_not(
        self, predicate: Callable[[V], bool], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[K, V]: ...

    @overload
    def filter_not(
        self,
        predicate: Callable[[K, V], bool] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]: ...

    def filter_not(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Drop the rows for which the predicate is true (``filterNot``)."""
        fn = Function.wrap(predicate, verb="filter_not", allowed=(1, 2))
        return KTable(filter_table(self._handle, fn, Materialized.of(materialized), name_of(name), negate=True))

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self, mapper: pl.Expr, materialized: Materialized | str | None = None, *, name: Name = None
    ) -> KTable[K, Any]: ...

    def map_values(
        self,
        mapper: Callable[[V], V2] | Callable[[K, V], V2] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V2]:
        """Replace the value of each row (``mapValues``). Deletions do not call the function.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.to_table().map_values(lambda value: value * 10), [("a", 2), ("a", None)])
        [('a', 20), ('a', None)]
        """
        fn = Function.wrap(mapper, verb="map_values", allowed=(1, 2))
        return KTable(map_table_values(self._handle, fn, Materialized.of(materialized), name_of(name)))

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformerWithKey[K, V, V2]],
        stores: Sequence[str] = (),
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V2]:
        """Replace the values with a transformer that may use state stores (``transformValues``).

        Args:
            supplier: A `ValueTransformerWithKey` class, or a function that makes one; called once for each task.
            stores: The names of stores that it uses, added with ``add_state_store``.
            materialized: A store for the result. Without one the transformer is called again when the table is read.
            name: The processor's name.
        """
        store_options = Materialized.of(materialized)
        return KTable(_transform_values(self._handle, supplier, stores, store_options, name_of(name)))

    @overload
    def to_stream(self, selector: None = None, *, name: Name = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, selector: Callable[[K, V], K2], *, name: Name = None) -> KStream[K2, V]: ...

    @overload
    def to_stream(self, selector: pl.Expr, *, name: Name = None) -> KStream[Any, V]: ...

    def to_stream(
        self, selector: Callable[[K, V], K2] | pl.Expr | None = None, *, name: Name = None
    ) -> KStream[Any, V]:
        """Return the changes as a stream of records (``toStream``), with new keys if there is a selector."""
        from penstock.api.stream import KStream

        stream: KStream[Any, V] = KStream(stream_of_table(self._handle, name_of(name)))
        return stream if selector is None else stream.select_key(selector)

    def suppress(self, suppressed: Suppressed, *, name: Name = None) -> KTable[K, V]:
        """Buffer changes until a window closes or some time has passed, and then send the newest of each key.

        Time is stream time, which advances with the records that arrive here. The buffer is part of the application's
        state. See `Suppressed` and `BufferConfig`.

        Raises:
            TopologyError: The table is versioned, or has no windows that could close.

        >>> from penstock import Suppressed
        >>> from penstock.testing import try_out
        >>> latest = lambda s: s.to_table().suppress(Suppressed.until_time_limit("1 second"))
        >>> try_out(latest, [("a", 1, 0), ("a", 2, 500), ("b", 3, 1_000)])
        [('a', 2)]
        """
        return KTable(suppress_table(self._handle, suppressed, name_of(name)))

    def group_by(
        self, selector: Callable[[K, V], tuple[K2, V2]] | pl.Expr, grouped: Grouped | None = None, *, name: Name = None
    ) -> KGroupedTable[K2, V2]:
        """Group the rows by a new key (``groupBy``); the function returns the new (key, value) of each row."""
        from penstock.api.groups.grouped import KGroupedTable, group_table

        fn = Function.wrap(selector, verb="group_by", allowed=(2,), passed="(key, value)")
        options = option(grouped, Grouped, "group_by")
        return KGroupedTable(group_table(self._handle, fn, options, name_of(name)))

    def __repr__(self) -> str:
        return f"KTable({self._handle.node})"


@with_java_names
class GlobalKTable(Fluent[GlobalTableHandle], Generic[K, V]):
    """A table that every machine has in full: Kafka's ``GlobalKTable``."""

    @property
    def queryable_store_name(self) -> str:
        """The name of its store (``queryableStoreName``)."""
        return self._handle.spec.name

    def __repr__(self) -> str:
        return f"GlobalKTable({self._handle.node})"


def _transform_values(
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
