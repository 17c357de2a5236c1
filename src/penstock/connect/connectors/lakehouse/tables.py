"""What a lakehouse sink asks of a table format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa

from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = ["ConflictError", "LakeFormat", "LakeTable", "Upsert", "first_line", "require_columns"]


class ConflictError(Exception):
    """Another writer has committed first, or may have, or the table is gone: look it up again."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows by key.

    Attributes:
        rows: The new rows, one of a key.
        deleted: The columns of the keys whose rows go.
        key: The names of the columns of the key.
    """

    rows: pa.Table
    deleted: pa.Table
    key: Sequence[str]


def require_columns(names: Iterable[str], schema: pa.Schema) -> None:
    """Require that a table that is made has the columns of ``partition.by``.

    Raises:
        ConnectError: It lacks one.
    """
    missing = next((name for name in names if name not in schema.names), None)
    if missing is not None:
        raise ConnectError(
            f"partition.by names {missing}, and the first records have no such field",
            hint="Correct partition.by, or make the table.",
        )


def first_line(error: Exception) -> str:
    """Return what an error of a library says, without the details below."""
    return str(error).strip().partition("\n")[0]


class LakeTable(Protocol):
    """A table as it was when it was looked up last, and commits on top of that.

    Attributes:
        schema: Its columns.
    """

    @property
    def schema(self) -> pa.Schema: ...

    def refresh(self) -> bool:
        """Look whether the table has changed, for formats whose commits fail for any change; returns whether it has.

        Raises:
            ConflictError: The table is gone.
        """
        ...

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return the offset behind the last record of a partition that is in the table; None: none is.

        Raises:
            ConflictError: The table is gone.
        """
        ...

    def append(self, rows: pa.Table, offsets: Mapping[TopicPartition, int]) -> None:
        """Append rows, with the offsets behind them, in one commit. Columns that the table does not have are added.

        Raises:
            ConflictError: Nothing is known to be written: another commit came first.
        """
        ...

    def upsert(self, rows: Upsert, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace and delete rows by key, as `append` does.

        Raises:
            ConflictError: As there.
        """
        ...

    def maintain(self) -> None:
        """Compact small files, and remove what the settings say.

        Raises:
            ConflictError: Another commit came first; it can be done later.
        """
        ...


class LakeFormat(Protocol):
    """A format of tables.

    Attributes:
        ignores_case: Whether columns must differ in more than capital letters.
    """

    ignores_case: ClassVar[bool] = False

    def column_type(self, incoming: pa.DataType) -> pa.DataType | None:
        """Return the type of a column that holds values of an Arrow type without fields; None: there is none."""
        ...

    def widened(self, current: pa.DataType, incoming: pa.DataType) -> pa.DataType:
        """Return the type of a column that gets values of another one."""
        ...

    def load(self, name: str) -> LakeTable | None:
        """Look a table up; None: there is none."""
        ...

    def create(self, name: str, schema: pa.Schema) -> None:
        """Make a table.

        Raises:
            ConflictError: There is one by now.
        """
        ...
