"""The verbs of a table that join it with another table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.derived_tables import serdes_of
from penstock.api.handle import Fluent, TableHandle, check_kind, name_of, option, same_builder
from penstock.api.joins.build import Join
from penstock.api.joins.foreign_key import ForeignKey, join_on_foreign_key
from penstock.api.materialize import key_value_spec, named
from penstock.api.options import Materialized, Named, TableJoined
from penstock.api.serdes import UNKNOWN
from penstock.errors import TopologyError
from penstock.topology.building.graph import JoinGraph, ProcessorGraph
from penstock.topology.operations.definitions import TableJoinMerge, TableTableJoin
from penstock.topology.tables import JoinedTable

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.table import KTable

__all__ = ["TableJoinVerbs", "join_tables"]

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
VR = TypeVar("VR")
Name = str | Named | None


class TableJoinVerbs(Fluent[TableHandle], Generic[K, V]):
    """``join``, ``left_join`` and ``outer_join`` of a `KTable`."""

    @overload
    def join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[K, V], Any] | pl.Expr,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[K, V, V2], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[K, V, V2], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[K, V], Any] | pl.Expr,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V2],
        joiner: pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, Any]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V2],
        joiner: pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[K, V], Any] | pl.Expr,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, Any]: ...

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
        """Join the rows of two tables (``join``). A row of the result needs both sides; a change of either updates it.

        Without ``foreign_key`` rows of the same key are joined, and both tables need the same number of partitions.
        With it, each row of this table is joined with the row of the other whose key the function returns, or with
        none if it returns None.

        Args:
            other: The other table.
            joiner: A function of (left, right) or (key, left, right); in an expression the values are ``left`` and
                ``right``.
            materialized: A store for the result.
            foreign_key: A function of this table's (value) or (key, value) that returns a key of the other table.
            joined: The name and the partitioners of a foreign-key join.
            name: The name of the processors; short for ``joined=TableJoined(name)``.

        >>> from penstock.testing import try_out
        >>> def people(s):  # "ann": "boss bob"
        ...     table = s.to_table()
        ...     return table.join(table, lambda me, boss: f"{me} < {boss}", foreign_key=lambda v: v.split()[1])
        >>> try_out(people, [("bob", "boss bob"), ("ann", "dev bob")])
        [('bob', 'boss bob < boss bob'), ('ann', 'dev bob < boss bob')]
        """
        join = Join.of("inner", joiner, name_of(name))
        return self._join(other, join, Materialized.of(materialized), foreign_key, joined)

    @overload
    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[K, V], Any] | pl.Expr,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[K, V], Any] | pl.Expr,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[V], Any] | None = None,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, Any]: ...

    @overload
    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        foreign_key: Callable[[K, V], Any] | pl.Expr,
        joined: TableJoined | None = None,
        name: Name = None,
    ) -> KTable[K, Any]: ...

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
        """Join as `join` does; rows of this table without a match are joined with None (``leftJoin``)."""
        join = Join.of("left", joiner, name_of(name))
        return self._join(other, join, Materialized.of(materialized), foreign_key, joined)

    @overload
    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], VR],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V | None, V2 | None], VR],
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, VR]: ...

    @overload
    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, Any]: ...

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], VR] | Callable[[K, V | None, V2 | None], VR] | pl.Expr,
        materialized: Materialized | str | None = None,
        *,
        name: Name = None,
    ) -> KTable[K, VR]:
        """Join as `join` does; rows of either table without a match are joined with None (``outerJoin``)."""
        return self._join(other, Join.of("outer", joiner, name_of(name)), Materialized.of(materialized))

    def _join(
        self,
        other: KTable[Any, V2],
        join: Join,
        materialized: Materialized | None,
        foreign_key: object = None,
        joined: TableJoined | None = None,
    ) -> KTable[K, Any]:
        from penstock.api.table import KTable

        check_kind(other, KTable, join.verb, "Join with a table; stream.to_table() makes one of a stream.")
        left, right = self._handle, self._handle_of(other)
        if foreign_key is None:
            if joined is not None:
                raise TopologyError("TableJoined is for joins with foreign_key=", hint="Leave it out; give name=.")
            return KTable(join_tables(left, right, join, materialized))
        joined = TableJoined(join.name) if joined is None else option(joined, TableJoined, "join")
        key = ForeignKey.of(foreign_key, joined, join.verb)
        return KTable(join_on_foreign_key(left, right, join, key, materialized))


def join_tables(above: TableHandle, other: TableHandle, join: Join, materialized: Materialized | None) -> TableHandle:
    """Add `KTable.join`, `KTable.left_join` or `KTable.outer_join` with a table of the same keys."""
    same_builder(above, other, join.verb)
    kind, fn, name = join.kind, join.joiner, join.name
    names = above.builder.names
    result_store = None if materialized is None else named(materialized, above.builder, "KTABLE-MERGE-")
    merge = names.processor("KTABLE-MERGE-", name)
    sources = above.sources | other.sources
    above.builder.copartition(sources)
    if kind != "inner":
        above.state.enable_send_old(force=True)
    if kind == "outer":
        other.state.enable_send_old(force=True)
    stores = above.state.getter_stores(), other.state.getter_stores()
    this = names.processor("KTABLE-JOINTHIS-", name, "-join-this")
    that = names.processor("KTABLE-JOINOTHER-", name, "-join-other")
    spec = None if result_store is None else key_value_spec(result_store, above.key_serde, UNKNOWN)
    state = JoinedTable(above.state, other.state, spec)
    parts = (
        ProcessorGraph(
            name=this,
            operation=lambda: TableTableJoin(
                kind, other.node, fn, from_right=False, send_old=state.send_old, versioned=above.graph.is_versioned()
            ),
            uses=stores[1],
            written_parents=(above.node,),
        ),
        ProcessorGraph(
            name=that,
            operation=lambda: TableTableJoin(
                kind, above.node, fn, from_right=True, send_old=state.send_old, versioned=other.graph.is_versioned()
            ),
            uses=stores[0],
            written_parents=(other.node,),
        ),
        ProcessorGraph(
            name=merge,
            operation=lambda: TableJoinMerge(kind, above.node, other.node, fn, state.store, state.send_old),
            own_stores=state.own_stores,
            written_parents=(this, that),
        ),
    )
    graph = JoinGraph(name=merge, parts=parts)
    graph.output_versioned = result_store is not None and result_store.history is not None
    above.builder.add((above.graph, other.graph), graph)
    serdes = serdes_of(result_store, above.key_serde, UNKNOWN)
    return TableHandle(above.builder, graph, merge, *serdes, sources, state, state.store)
