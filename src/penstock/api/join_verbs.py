"""The verbs of a stream that join it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from penstock.api.handle import name_of
from penstock.api.options import Joined, Named, StreamJoined

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.join_windows import JoinWindows
    from penstock.api.stream import KStream
    from penstock.api.stream_stream_joins import JoinKind
    from penstock.api.table import GlobalKTable, KTable

__all__ = ["JoinVerbs"]

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
Name = str | Named | None


class JoinVerbs(Generic[K, V]):
    """What `KStream` can be joined with; which join it is, the type of the other side says."""

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[..., Any] | pl.Expr,
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: Callable[..., Any] | pl.Expr,
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[..., Any] | pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    def join(self, other: Any, *args: Any, name: Name = None, **named: Any) -> KStream[K, Any]:
        """Joins each record with a table's present value, or with a stream's records that are near in event time.

        ``join(table, joiner, joined)`` drops records without a match in the table, ``join(global_table, joiner,
        key=...)`` those without a match under the key that a function of the value, or of key and value, gives,
        ``join(stream, joiner, windows, joined)`` those of both sides that find none in the window. ``joiner`` takes
        (left, right) or (key, left, right) values; an expression sees ``left`` and ``right``.

        >>> from penstock.testing import try_out
        >>> try_out(lambda s: s.join(s.to_table(), lambda left, right: left + right), [("a", "x")])
        [('a', 'xx')]
        >>> from penstock import JoinWindows
        >>> near = JoinWindows.of("5 seconds")
        >>> try_out(lambda s: s.join(s.map_values(len), lambda left, right: (left, right), near), [("a", "xyz")])
        [('a', ('xyz', 3))]
        """
        return self._join(other, "inner", name, *args, **named)

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[..., Any] | pl.Expr,
        joined: Joined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[Any, V2],
        joiner: Callable[..., Any] | pl.Expr,
        *,
        key: Callable[..., Any] | pl.Expr,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[..., Any] | pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]: ...

    def left_join(self, other: Any, *args: Any, name: Name = None, **named: Any) -> KStream[K, Any]:
        """As ``join``, with None on the right where there is no match (``leftJoin``).

        With a stream, an unmatched record comes once later records have closed its window.
        """
        return self._join(other, "left", name, *args, **named)

    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[..., Any] | pl.Expr,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: Name = None,
    ) -> KStream[K, Any]:
        """As ``left_join`` with a stream, with None on the left for unmatched records of the other (``outerJoin``)."""
        return self._join(other, "outer", name, joiner, windows, joined)

    def _join(self, other: Any, kind: JoinKind, name: Name, *args: Any, **named: Any) -> KStream[K, Any]:
        from penstock.api.joins import join

        return cast("KStream[K, Any]", join(cast("KStream[K, V]", self), other, kind, name_of(name), *args, **named))
