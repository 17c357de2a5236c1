"""KTable: the newest value of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api.handle import Handle, name_of
from penstock.api.materialize import optional_spec
from penstock.api.options import Grouped, Materialized, Named, TableJoined
from penstock.api.serdes import UNKNOWN
from penstock.errors import TopologyError
from penstock.topology import operations as ops
from penstock.topology.functions import Function
from penstock.topology.graph import ProcessorGraph
from penstock.topology.tables import DerivedTable, TableState

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.grouped_table import KGroupedTable
    from penstock.api.stream import KStream
    from penstock.api.suppressed import Suppressed
    from penstock.api.transformer import ValueTransformerWithKey
    from penstock.topology.stores import StoreSpec
    from penstock.topology.table_operations import TableJoinKind

__all__ = ["GlobalKTable", "KTable"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")
Name = str | Named | None


class KTable(Generic[K, V]):
    """A table, as a stream of its changes: Kafka's ``KTable``. Null deletes a key."""

    def __init__(self, handle: Handle, state: TableState, store: str | None) -> None:
        self._handle = handle
        self._state = state
        self._store = store

    @property
    def queryable_store_name(self) -> str | None:
        """The name that the user gave its store, if any (``queryableStoreName``)."""
        return self._store

    def filter(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Keeps the rows for which the predicate holds; other rows count as deleted.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.to_table().filter(lambda value: value > 1), [("a", 2), ("a", 1)])
        [('a', 2), ('a', None)]
        """
        return self._filter("filter", predicate, materialized, name, negate=False)

    def filter_not(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V]:
        """Drops the rows for which the predicate holds (``filterNot``)."""
        return self._filter("filter_not", predicate, materialized, name, negate=True)

    def map_values(
        self,
        mapper: Callable[[V], V2] | Callable[[K, V], V2] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V2]:
        """Makes a new value of each row (``mapValues``); deletions pass by.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.to_table().map_values(lambda value: value * 10), [("a", 2), ("a", None)])
        [('a', 20), ('a', None)]
        """
        fn = Function.wrap(mapper, verb="map_values", allowed=(1, 2))
        given = Materialized.of(materialized)
        spec = optional_spec(given, self._handle.builder, "KTABLE-MAPVALUES-", self._handle.key_serde, UNKNOWN)
        state = DerivedTable((self._state,), spec)
        parent = self._handle.node
        return self._then(
            "KTABLE-MAPVALUES-",
            name,
            state,
            lambda: ops.TableMapValues(fn, parent, state.store, state.send_old),
            given,
            UNKNOWN,
        )

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformerWithKey[K, V, V2]],
        stores: Sequence[str] = (),
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, V2]:
        """Makes new values with a transformer that may use state stores (``transformValues``).

        Args:
            supplier: A `ValueTransformerWithKey` class, or what makes one; each task has its own.
            stores: Names of stores that it uses, added with ``add_state_store``.
            materialized: A store for the result. Without one the transformer is called again when the table is read.
            name: The processor's name.
        """
        from penstock.api.table_transform import transform_values

        return transform_values(self, supplier, stores, Materialized.of(materialized), name_of(name))

    def to_stream(
        self, selector: Callable[[K, V], K2] | pl.Expr | None = None, *, name: Name = None
    ) -> KStream[Any, V]:
        """The table's changes as records (``toStream``), under new keys if a function for them is given."""
        from penstock.api.stream import KStream

        above = self._handle
        node = above.builder.names.processor("KTABLE-TOSTREAM-", name_of(name))
        graph = ProcessorGraph(name=node, operation=ops.TableToStream)
        above.builder.add(above.graph, graph)
        handle = Handle(above.builder, graph, node, above.key_serde, above.value_serde, above.sources)
        stream: KStream[Any, V] = KStream(handle)
        return stream if selector is None else stream.select_key(selector)

    def suppress(self, suppressed: Suppressed, *, name: Name = None) -> KTable[K, V]:
        """Holds changes back until a window closes or some time has passed, and sends the newest of each key then.

        Time is stream time: it moves with the records that arrive here. The buffer is kept with the application's
        state. See `Suppressed` and `BufferConfig`.

        Raises:
            TopologyError: The table is versioned, or has no windows that could close.

        >>> from penstock import Suppressed
        >>> from penstock.testing import try_out
        >>> latest = lambda s: s.to_table().suppress(Suppressed.until_time_limit("1 second"))
        >>> try_out(latest, [("a", 1, 0), ("a", 2, 500), ("b", 3, 1_000)])
        [('a', 2)]
        """
        from penstock.api.suppressed import suppress_table

        return suppress_table(self, suppressed, name)

    def group_by(
        self, selector: Callable[[K, V], tuple[K2, V2]] | pl.Expr, grouped: Grouped | None = None, *, name: Name = None
    ) -> KGroupedTable[K2, V2]:
        """Groups the rows by a new key: the function makes a (key, value) of each (``groupBy``)."""
        from penstock.api.grouped_table import group_table

        fn = Function.wrap(selector, verb="group_by", allowed=(2,))
        return group_table(self, fn, grouped or Grouped(), name_of(name))

    def join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2], VR] | Callable[[K, V, V2], VR] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | Callable[[K, V], Any] | pl.Expr | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]:
        """Joins the rows of two tables (``join``); a row needs both sides. A change of either changes the result.

        Without ``foreign_key`` rows of the same key meet, and both tables must have as many partitions. With it each
        row of this table meets the row of the other whose key the function gives; None joins nothing.

        Args:
            other: The other table.
            joiner: Gets both values, or this table's key and both; an expression sees ``left`` and ``right``.
            materialized: A store for the result.
            foreign_key: Gets this table's value, or key and value, and gives a key of the other table.
            joined: Name and partitioners of a foreign-key join.
            name: Of the processors; short for ``joined=TableJoined(name)``.

        >>> from penstock.testing import try_out
        >>> def people(s):  # "ann": "boss bob"
        ...     table = s.to_table()
        ...     return table.join(table, lambda me, boss: f"{me} < {boss}", foreign_key=lambda v: v.split()[1])
        >>> try_out(people, [("bob", "boss bob"), ("ann", "dev bob")])
        [('bob', 'boss bob < boss bob'), ('ann', 'dev bob < boss bob')]
        """
        return self._join("inner", other, joiner, materialized, foreign_key, joined, name)

    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR] | Callable[[K, V, V2 | None], VR] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | Callable[[K, V], Any] | pl.Expr | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]:
        """As `join`, and rows of this table that meet nothing are joined with None (``leftJoin``)."""
        return self._join("left", other, joiner, materialized, foreign_key, joined, name)

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], VR] | Callable[[K, V | None, V2 | None], VR] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, VR]:
        """As `join`, and rows that only one table has are joined with None (``outerJoin``)."""
        return self._join("outer", other, joiner, materialized, None, None, name)

    def _join(
        self,
        kind: TableJoinKind,
        other: KTable[Any, V2],
        joiner: object,
        materialized: Materialized | str | None,
        foreign_key: object,
        joined: TableJoined | None,
        name: Name,
    ) -> KTable[K, Any]:
        given = Materialized.of(materialized)
        if foreign_key is None:
            from penstock.api.table_joins import join_tables

            if joined is not None:
                raise TopologyError("TableJoined is for joins with foreign_key=", hint="Leave it out; give name=.")
            return join_tables(self, other, joiner, given, name_of(name), kind)
        from penstock.api.foreign_key_joins import join_on_foreign_key

        joined = joined or TableJoined(name_of(name))
        return join_on_foreign_key(self, other, foreign_key, joiner, joined, given, is_left=kind == "left")

    def _filter(
        self, verb: str, predicate: object, materialized: Materialized | str | None, name: Name, *, negate: bool
    ) -> KTable[K, V]:
        fn = Function.wrap(predicate, verb=verb, allowed=(1, 2))
        above = self._handle
        given = Materialized.of(materialized)
        spec = optional_spec(given, above.builder, "KTABLE-FILTER-", above.key_serde, above.value_serde)
        state = DerivedTable((self._state,), spec)

        def operation() -> ops.Operation:
            return ops.TableFilter(fn, above.node, state.store, negate, state.send_old, above.graph.is_versioned())

        # A parent that keeps a store knows old values: with them no needless tombstones are sent.
        state.send_old = self._state.enable_send_old(force=False)
        return self._then("KTABLE-FILTER-", name, state, operation, given, above.value_serde)

    def _then(
        self,
        prefix: str,
        name: Name,
        state: DerivedTable,
        operation: Callable[[], ops.Operation],
        materialized: Materialized | None,
        value_serde: Any,
    ) -> KTable[K, Any]:
        above = self._handle
        node = above.builder.names.processor(prefix, name_of(name))
        graph = ProcessorGraph(name=node, operation=operation, own_stores=state.own_stores)
        if materialized is not None and materialized.name is not None:
            graph.output_versioned = materialized.history is not None
        above.builder.add(above.graph, graph)
        handle = Handle(above.builder, graph, node, *_serdes(materialized, above.key_serde, value_serde), above.sources)
        return KTable(handle, state, state.store)

    def __repr__(self) -> str:
        return f"KTable({self._handle.node})"


class GlobalKTable(Generic[K, V]):
    """A table of which every task has a full copy: Kafka's ``GlobalKTable``."""

    def __init__(self, node: str, spec: StoreSpec) -> None:
        self._node = node
        self._spec = spec

    @property
    def queryable_store_name(self) -> str:
        """The name of its store (``queryableStoreName``)."""
        return self._spec.name

    def __repr__(self) -> str:
        return f"GlobalKTable({self._node})"


def _serdes(materialized: Materialized | None, key_serde: Any, value_serde: Any) -> tuple[Any, Any]:
    """Those of the materialisation, else the inherited ones."""
    if materialized is None:
        return key_serde, value_serde
    return (
        materialized.key_serde if materialized.key_serde is not None else key_serde,
        materialized.value_serde if materialized.value_serde is not None else value_serde,
    )
