"""BranchedKStream: one stream cut into several by predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api.handle import Handle
from penstock.api.options import Branched
from penstock.errors import TopologyError
from penstock.topology import operations as ops
from penstock.topology.functions import Function
from penstock.topology.graph import ProcessorGraph
from penstock.topology.names import check_name

if TYPE_CHECKING:
    import polars as pl

    from penstock.api.stream import KStream

__all__ = ["BranchedKStream"]

K = TypeVar("K")
V = TypeVar("V")


class BranchedKStream(Generic[K, V]):
    """The branches made so far: Kafka's ``BranchedKStream``. The first predicate that holds takes a record."""

    def __init__(self, stream: KStream[K, V], name: str | None) -> None:
        self._stream = stream
        handle = stream._handle  # noqa: SLF001
        self._name = handle.builder.names.processor("KSTREAM-BRANCH-", name)
        self._predicates: list[Function] = []
        self._children: list[str] = []
        self._default: str | None = None
        self._branches: dict[str, KStream[K, V]] = {}
        self._graph = ProcessorGraph(name=self._name, operation=self._operation)
        handle.builder.add(handle.graph, self._graph)

    def branch(
        self,
        predicate: Callable[[V], bool] | Callable[[K, V], bool] | pl.Expr,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> BranchedKStream[K, V]:
        """Adds a branch. Its stream goes to the function ``to``, or into the result under ``<split name><name>``."""
        if self._default is not None:
            raise TopologyError("branch() comes after default_branch()", hint="Make the default branch last.")
        self._predicates.append(Function.wrap(predicate, verb="branch", allowed=(1, 2)))
        self._children.append(self._add(branched or Branched(name, to), len(self._predicates)))
        return self

    def default_branch(
        self,
        branched: Branched | None = None,
        *,
        name: str | None = None,
        to: Callable[[KStream[K, V]], Any] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """Ends the branching with a branch for all other records (``defaultBranch``); gives the branches by name."""
        if self._default is not None:
            raise TopologyError("a split has one default branch", hint="Call default_branch() once.")
        self._default = self._add(branched or Branched(name, to), 0)
        return dict(self._branches)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Ends the branching: all other records are dropped (``noDefaultBranch``); gives the branches by name."""
        return dict(self._branches)

    def _operation(self) -> ops.Branch:
        return ops.Branch(tuple(self._predicates), tuple(self._children), self._default)

    def _add(self, branched: Branched, number: int) -> str:
        from penstock.api.stream import KStream

        above = self._stream._handle  # noqa: SLF001
        child = check_name(f"{self._name}{number if branched.name is None else branched.name}")
        above.builder.names.processor(child)  # Kafka burns a number here
        graph = ProcessorGraph(name=child, operation=ops.PassThrough)
        above.builder.add(self._graph, graph)
        handle = Handle(above.builder, graph, child, above.key_serde, above.value_serde, above.sources)
        stream: KStream[K, V] = KStream(handle, needs_repartition=self._stream._needs_repartition)  # noqa: SLF001
        result = stream if branched.to is None else branched.to(stream)
        if isinstance(result, KStream):
            self._branches[child] = result
        return child
