"""The verbs of a stream that join it with streams and tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.handle import Fluent, GlobalTableHandle, StreamHandle, TableHandle, name_of, option, same_builder
from penstock.api.joins.build import Join, JoinKind, join_verb
from penstock.api.joins.stream_stream import JoinWindows, join_streams
from penstock.api.options import Joined, Named, StreamJoined
from penstock.api.serdes import UNKNOWN, for_store
from penstock.base.durations import duration_ms
from penstock.errors import TopologyError
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.building.joins import GraceJoinGraph, not_versioned
from penstock.topology.operations.definitions import StreamGlobalTableJoin, StreamTableJoin
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.stream import KStream
    from penstock.api.table import GlobalKTable, KTable

__all__ = ["JoinVerbs", "join_global_table", "join_table"]

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
VR = TypeVar("VR")
Name = str | Named | None


@dataclass(frozen=True, slots=True)
class _WithStream:
    """The arguments of a join with a stream."""

    joiner: object
    windows: JoinWindows | None = None
    joined: StreamJoined | None = None


@dataclass(frozen=True, slots=True)
class _WithTable:
    """The arguments of a join with a table or a global table."""

    joiner: object
    joined: Joined | None = None
    _: KW_ONLY
    key: object = None


A = TypeVar("A", _WithStream, _WithTable)


class JoinVerbs(Fluent[StreamHandle], Generic[K, V]):
    """``join``, ``left_join`` and ``outer_join`` of a `KStream`; the type of the other side selects the join."""

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], VR],
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: Callable[[V, V2], VR],
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2], VR],
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], VR],
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: Callable[[K, V, V2], VR],
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], VR],
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: pl.Expr,
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: pl.Expr,
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    def join(self, other: Any, *args: Any, name: Name = None, **named: Any) -> KStream[K, Any]:
        """Join each record with the current row of a table, or with the records of a stream that are near in time.

        Records without a match are dropped. The other side decides the arguments:

        - ``join(table, joiner, joined)`` matches by the record's key,
        - ``join(global_table, joiner, key=...)`` by the result of a function of (value) or (key, value),
        - ``join(stream, joiner, windows, joined)`` by the key, with the records of both sides inside the window.

        ``joiner`` takes (left, right) or (key, left, right), with a global table also (key, key of the table, left,
        right); in an expression the values are ``left`` and ``right``.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.join(s.to_table(), lambda left, right: left + right), [("a", "x")])
        [('a', 'xx')]
        >>> from penstock import JoinWindows
        >>> near = JoinWindows.of("5 seconds")
        >>> try_out(lambda s: s.join(s.map_values(len), lambda left, right: (left, right), near), [("a", "xyz")])
        [('a', ('xyz', 3))]
        """
        return self._join(other, "inner", name, args, named)

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: pl.Expr,
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: pl.Expr,
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    def left_join(self, other: Any, *args: Any, name: Name = None, **named: Any) -> KStream[K, Any]:
        """Join as ``join`` does, with None on the right where there is no match (``leftJoin``).

        With a stream, an unmatched record is sent when later records have closed its window.
        """
        return self._join(other, "left", name, args, named)

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], VR],
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], VR],
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, VR]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], VR] | Callable[[K, V | None, V2 | None], VR] | pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]:
        """Join two streams as ``left_join`` does, also with None on the left for unmatched records (``outerJoin``)."""
        return self._join(other, "outer", name, (joiner, windows, joined), {})

    def _join(
        self, other: Any, kind: JoinKind, name: Name, args: tuple[Any, ...], named: dict[str, Any]
    ) -> KStream[K, Any]:
        from penstock.api.stream import KStream
        from penstock.api.table import GlobalKTable, KTable

        verb = join_verb(kind)
        if isinstance(other, KStream):
            with_stream = _bound(_WithStream, verb, "another stream", args, named)
            return KStream(_join_stream(self._handle, self._handle_of(other), kind, name_of(name), with_stream))
        if kind == "outer":
            raise TopologyError(
                f"outer_join() takes a KStream, not {type(other).__name__} {other!r}",
                hint="A stream and a table have join() and left_join().",
            )
        if not isinstance(other, KTable | GlobalKTable):
            raise TopologyError(
                f"{verb}() takes a KStream, a KTable or a GlobalKTable, not {type(other).__name__} {other!r}",
                hint="Make one with builder.stream(), builder.table() or builder.global_table().",
            )
        with_table = _bound(_WithTable, verb, "a table", args, named)
        table: Fluent[TableHandle | GlobalTableHandle] = other
        return KStream(_join_table(self._handle, self._handle_of(table), kind, name_of(name), with_table))


def _bound(kind: type[A], verb: str, what: str, args: tuple[Any, ...], named: dict[str, Any]) -> A:
    signature = inspect.signature(kind)
    try:
        bound = signature.bind(*args, **named)
    except TypeError as error:
        own = signature.parameters.values()
        takes = ", ".join(f"{each.name}=" if each.kind is each.KEYWORD_ONLY else each.name for each in own)
        raise TopologyError(
            f"{verb}() with {what} takes {takes}: {error}", hint=f"See the docstring of {verb}."
        ) from None
    return kind(*bound.args, **bound.kwargs)


def _join_stream(
    left: StreamHandle, right: StreamHandle, kind: JoinKind, name: str | None, arguments: _WithStream
) -> StreamHandle:
    if arguments.windows is None:
        raise TopologyError(
            "a join of two streams takes JoinWindows after the joiner; they are missing",
            hint='For example JoinWindows.of("1 minute", grace="10 seconds").',
        )
    if not isinstance(arguments.windows, JoinWindows):
        raise TopologyError(
            f"a join of two streams takes JoinWindows after the joiner, not {type(arguments.windows).__name__} "
            f"{arguments.windows!r}",
            hint='For example JoinWindows.of("1 minute", grace="10 seconds").',
        )
    joined = option(arguments.joined, StreamJoined, "join")
    return join_streams(left, right, Join.of(kind, arguments.joiner, joined.name or name), arguments.windows, joined)


def _join_table(
    stream: StreamHandle,
    table: TableHandle | GlobalTableHandle,
    kind: JoinKind,
    name: str | None,
    arguments: _WithTable,
) -> StreamHandle:
    joined = option(arguments.joined, Joined, "join")
    is_global = isinstance(table, GlobalTableHandle)
    join = Join.of(kind, arguments.joiner, joined.name or name, mapped=is_global)
    if isinstance(table, GlobalTableHandle):
        return join_global_table(stream, table, join, arguments.key)
    if arguments.key is not None:
        raise TopologyError(
            f"{join.verb}() with a table has a key=, which is for global tables",
            hint="Tables are joined by the record's own key: select_key() before the join, or a global table.",
            node=join.name,
        )
    return join_table(stream, table, join, joined)


def join_table(stream: StreamHandle, table: TableHandle, join: Join, joined: Joined) -> StreamHandle:
    """Add `KStream.join` or `KStream.left_join` with a table."""
    same_builder(stream, table, join.verb)
    stream = stream.by_present_key(join.name or stream.node, joined.key_serde, joined.value_serde, for_join=True)
    sources = stream.sources | table.sources
    stream.builder.copartition(sources)
    left = join.is_left
    node = stream.builder.names.processor("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", join.name)
    uses = table.state.getter_stores()
    key = joined.key_serde if joined.key_serde is not None else stream.key_serde
    buffer: StoreSpec | None = None
    graph: ProcessorGraph
    grace = None if joined.grace is None else duration_ms(joined.grace)
    if grace is not None:
        value = joined.value_serde if joined.value_serde is not None else stream.value_serde
        buffer = StoreSpec(f"{node}-Buffer", "record_buffer", for_store(key), for_store(value), caching=False)

    def operation() -> StreamTableJoin:
        return StreamTableJoin(table.node, join.joiner, left, grace, None if buffer is None else buffer.name)

    if buffer is None or grace is None:
        graph = ProcessorGraph(name=node, operation=operation, uses=uses, keeps_null_keys=left)
    else:
        if table.graph.output_versioned is False:
            raise not_versioned(node, uses)
        graph = GraceJoinGraph(
            name=node, operation=operation, uses=uses, keeps_null_keys=left, buffer=buffer, grace_ms=grace
        )
    stream.builder.add(stream.graph, graph)
    return StreamHandle(stream.builder, graph, node, key, UNKNOWN, sources)


def join_global_table(stream: StreamHandle, table: GlobalTableHandle, join: Join, key: object) -> StreamHandle:
    """Add `KStream.join` or `KStream.left_join` with a global table.

    Args:
        stream: The left side.
        table: The right side.
        join: The joiner and the name.
        key: A function of (value) or (key, value), or an expression, for the table's key.
    """
    if key is None:
        raise TopologyError(
            f"{join.verb}() with a global table has no key",
            hint="Pass a function that returns the key of the table, for example key=lambda value: value['item'].",
            node=join.name,
        )
    selector = Function.wrap(key, verb=f"{join.verb}: key", allowed=(1, 2))
    operation = StreamGlobalTableJoin(table.spec.name, join.joiner, selector, join.is_left)
    # Kafka names inner joins with global tables like left ones.
    node = stream.builder.names.processor("KSTREAM-LEFTJOIN-", join.name)
    graph = ProcessorGraph(name=node, operation=lambda: operation, keeps_null_keys=join.is_left)
    return stream.below(graph, keys=False, values=True)
