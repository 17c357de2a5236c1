"""What every operator is, and what it may ask of its task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from penstock.runtime.rows import Rows
from penstock.serde.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.config import StreamsConfig
    from penstock.topology.functions import Function

_Shared = TypeVar("_Shared")

__all__ = ["Operator", "TableView", "TaskContext"]


class TableView(Protocol):
    """A table's values as of any place in the present batch: Kafka's ``KTableValueGetter``.

    Rows of the batch that come before the place are seen, later ones are not.
    """

    def values_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """For each row (its place counts) the value under the key of that row, and its timestamp (-1 for null)."""
        ...

    def sent_at(self, rows: Rows, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """As `values_at`, but of a cached table what it has sent on by then: one value a key and batch, the last.

        Joined tables see each other so: what one has joined, the other then tells of when it goes.
        """
        ...


class TaskContext(Protocol):
    """The task, as an operator sees it."""

    @property
    def task_id(self) -> str:
        """``<sub-topology>_<partition>``."""
        ...

    @property
    def input_stream_times(self) -> NDArray[np.int64]:
        """The task's stream time after each input position of this batch."""
        ...

    @property
    def caching(self) -> bool:
        """Whether table operators give one change per key and batch."""
        ...

    def store(self, name: str) -> Any:
        """The typed store view (`penstock.state.views`) of that name."""
        ...

    def table(self, node: str) -> TableView:
        """The view of a table node."""
        ...

    def register_table(self, node: str, view: TableView) -> None:
        """Makes the view of a table node known; operators of tables call it when they are made."""
        ...

    def shared(self, name: str, make: Callable[[], _Shared]) -> _Shared:
        """What several operators of the task have in common, made by the first that asks."""
        ...

    def failed(self, node: str, function: Function | None, rows: Rows, row: int, error: Exception) -> None:
        """Tells the task that a user's function raised for one row.

        Raises ProcessingError, unless the processing exception handler says to continue: then the record is counted as
        dropped (and sent to the dead letter queue) and the caller leaves that row out.
        """
        ...

    @property
    def config(self) -> StreamsConfig:
        """The application's settings."""
        ...

    @property
    def batch(self) -> int:
        """A number that differs for every call of the task's ``process``: what was kept for the batch is then stale."""
        ...

    @property
    def wall_clock_ms(self) -> int:
        """The wall-clock time of this batch."""
        ...

    def drop(self, node: str, count: int, why: str) -> None:
        """Counts dropped records (Kafka's ``dropped-records-total``) and logs once per batch why."""
        ...

    def get_meta(self, name: str, default: int) -> int:
        """A number that an operator keeps with the state (its stream time), committed with the batch."""
        ...

    def put_meta(self, name: str, value: int) -> None: ...


class Operator(Protocol):
    """One processor of one task. Called once per batch with the rows of all its parents in order of place."""

    def process(self, rows: Rows, parent: str) -> Rows | Iterable[tuple[str | None, Rows]]:
        """Gives the rows for all children, or (child name or None for all, rows) pairs.

        Depth first, each pair reaches the children before the next one is asked for.

        Rows must be in order of place. A row that comes from one input row keeps its place; several rows from one get
        ``place.extend(number)``.
        """
        ...
