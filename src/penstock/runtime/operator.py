"""The base of all operators, and the interface by which one operator reads the table of another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from penstock.runtime.rows import Row, Rows
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Operator", "RowStep", "TableView"]

RowStep: TypeAlias = Callable[[Row], Row | Iterable[Row] | Iterable[tuple[str, Row]] | None]
"""An operator's work for a row by itself: the row that goes on, several of them, or None.

Of an operator that names children each row comes with the child that gets it.
"""


class TableView(Protocol):
    """A table's values as of any place in the present batch: Kafka's ``KTableValueGetter``.

    Rows of the batch that come before the place are seen, later ones are not.
    """

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return for each row (its place counts) the value under that row's key, and its timestamp (-1 for null)."""
        ...

    def sent_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values that the table has sent on by then; of a cached table one per key and batch, the last.

        Joined tables read each other in this way: one sees what the other has sent, not what it still holds in its
        cache.
        """
        ...


class Operator(ABC):
    """One processor of one task. Called once per batch with the rows of all its parents in order of place.

    Attributes:
        runs_without_rows: Whether it is called in a batch without rows for it: for punctuations, or for windows that
            close with time alone.
        sliced_reason: The reason why its task has to process batches record by record; None: it need not.
        leaves_out_rows: Whether what a row that fails has done and leaves undone is by column the same as alone, mostly
            nothing, so that all others may go on.
        keeps_users_state: Whether the user's code in it may remember records, so that none may be processed twice.
        caches_rows: Whether it sends what leaves a cache, where several updates of a batch become one.
        makes_many: Whether several rows may come of one.
        names_children: Whether its `row_step` names the child that gets a row.
        takes_turns: Whether it does something behind what it sends on, so that its `row_step` goes depth first only.
    """

    runs_without_rows: bool = False
    sliced_reason: str | None = None
    leaves_out_rows: bool = False
    keeps_users_state: bool = False
    caches_rows: bool = False
    makes_many: bool = False
    names_children: bool = False
    takes_turns: bool = False

    @abstractmethod
    def process(self, rows: Rows, parent: str) -> Rows | Iterable[tuple[str | None, Rows]]:
        """Process a batch; return the rows for all children, or (child name or None for all, rows) pairs.

        Depth first, each pair reaches the children before the next one is asked for.

        Rows must be in order of place. A row that comes from one input row keeps its place; several rows from one get
        ``place.extend(number)``.
        """

    def row_step(self) -> RowStep | None:
        """Return the work for a row by itself, which equals `process` with a batch of that row; None: there is none.

        Depth first, each of several rows reaches the children before the next one is asked for.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release all resources that it holds open."""
