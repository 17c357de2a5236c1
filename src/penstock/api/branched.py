"""BranchedKStream: one stream split into several by predicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.api.handle import Fluent, StreamHandle, name_of, option
from penstock.api.options import Branched, Named
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.building.names import check_name
from penstock.topology.operations import base as ops
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.stream import KStream

__all__ = ["BranchedKStream"]

K = TypeVar("K")
V = TypeVar("V")


@with_java_names
class BranchedKStream(Fluent[StreamHandle], Generic[K, V]):
    """A split stream: Kafka's ``BranchedKStream``. A record goes to the first branch whose predicate is true."""

    def __init__(self, handle: StreamHandle, name: str | None) -> None:
        super().__init__(handle)
        self._name = handle.builder.names.processor("KSTREAM-BRANCH-", name)
        self._predicates: list[Function] = []
        self._children: list[str] = []
        self._default: str | None = None
        self._branches: dict[str, KStream[K, V]] = {}
        self._graph = ProcessorGraph(name=self._name, operation=self._operation)
        handle.builder.add(handle.graph, self._graph)

    @overload
    def branch(
        self,
        predicate: Callable[[V], bool],
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]: ...

    @overload
    def branch(
        self,
        predicate: Callable[[K, V], bool] | pl.Expr,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]: ...

    def branch(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]:
        """Add a branch. Its stream is passed to ``to``, or is in the result under the key ``<split name><name>``."""
        if self._default is not None:
            raise TopologyError("branch() comes after default_branch()", hint="Make the default branch last.")
        self._predicates.append(Function.wrap(predicate, verb="branch", allowed=(1, 2)))
        self._children.append(self._add(_options(branched, name, to), len(self._predicates)))
        return self

    def default_branch(
        self,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """Add a branch for all other records (``defaultBranch``), and return the branches by name."""
        if self._default is not None:
            raise TopologyError("a split has one default branch", hint="Call default_branch() once.")
        self._default = self._add(_options(branched, name, to), 0)
        return dict(self._branches)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records (``noDefaultBranch``), and return the branches by name."""
        return dict(self._branches)

    def _operation(self) -> ops.Branch:
        return ops.Branch(tuple(self._predicates), tuple(self._children), self._default)

    def _add(self, branched: Branched, number: int) -> str:
        from penstock.api.stream import KStream

        above = self._handle
        child = check_name(f"{self._name}{number if branched.name is None else branched.name}")
        above.builder.names.processor(child)  # Kafka uses up a number here
        graph = ProcessorGraph(name=child, operation=ops.PassThrough)
        above.builder.add(self._graph, graph)
        stream: KStream[K, V] = KStream(replace(above, graph=graph, node=child))
        result = stream if branched.to is None else branched.to(stream)
        if isinstance(result, KStream):
            self._branches[child] = result
        return child


def _options(branched: Branched | None, name: str | Named | None, to: Callable[[Any], Any] | None) -> Branched:
    return Branched(name_of(name), to) if branched is None else option(branched, Branched, "branch")
