"""What a lakehouse sink asks of a table format, and the settings that all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.connect.config import Importance, Kind, NamedValues, OneOf, Range, Setting
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = [
    "SINK_SETTINGS",
    "ConflictError",
    "LakeFormat",
    "LakeTable",
    "Upsert",
    "contradictions",
    "first_line",
    "require_columns",
]


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


def first_line(error: BaseException) -> str:
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

    def compact(self) -> None:
        """Make large files of small ones, without a change of rows or offsets.

        Raises:
            ConflictError: Another commit came first; it can be done later.
        """
        ...

    def expire(self) -> None:
        """Remove old versions, as the settings say.

        Raises:
            ConflictError: As for `compact`.
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


SINK_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="auto.create",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether a table that is missing is made, with columns that may be null, by the schema of the records.",
    ),
    Setting(
        name="auto.evolve",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether fields that a table does not have become new columns; false: such records are errors.",
    ),
    Setting(
        name="table.properties",
        kind=Kind.LIST,
        default="",
        rule=NamedValues(),
        doc="Properties of a table that is made, as name:value, such as delta.enableChangeDataFeed:true.",
    ),
    Setting(
        name="insert.mode",
        kind=Kind.STRING,
        default="insert",
        rule=OneOf(("insert", "upsert")),
        importance=Importance.HIGH,
        doc="insert: each record is appended as a row; upsert: a record replaces the row that has its key.",
    ),
    Setting(
        name="pk.mode",
        kind=Kind.STRING,
        default="record_key",
        rule=OneOf(("record_key", "record_value")),
        doc="For upserts: whether the columns of the key come from the records' keys or are fields of their values.",
    ),
    Setting(
        name="pk.fields",
        kind=Kind.LIST,
        default="",
        doc="For upserts: the columns of the key; empty: all fields of the records' keys. The one column of a key that "
        "has no fields.",
    ),
    Setting(
        name="behavior.on.null.values",
        kind=Kind.STRING,
        default="delete",
        rule=OneOf(("delete", "ignore", "fail")),
        doc="What happens to records without value. delete: an upserted row of their key is deleted; where rows are "
        "appended, nothing.",
    ),
    Setting(
        name="flush.size",
        kind=Kind.INT,
        default=50_000,
        rule=Range(1),
        importance=Importance.HIGH,
        doc="The number of records after which a task commits to its tables. It keeps so many in memory.",
    ),
    Setting(
        name="flush.interval.ms",
        kind=Kind.LONG,
        default=10_000,
        rule=Range(0),
        importance=Importance.HIGH,
        doc="The time after which a task commits what it has: how old a record is, at most, when its row can be read. "
        "Each commit makes at least one file.",
    ),
    Setting(
        name="compact.commits",
        kind=Kind.INT,
        default=100,
        rule=Range(0),
        doc="After so many commits of its own the first task makes large files of small ones; 0: never.",
    ),
)


def contradictions(parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return settings of a sink that do not go together."""
    if parsed["insert.mode"] == "upsert" and parsed["pk.mode"] == "record_value" and not parsed["pk.fields"]:
        yield "pk.fields", "must name the fields of the key with pk.mode=record_value"
    if parsed["insert.mode"] == "insert" and parsed["pk.fields"]:
        yield "pk.fields", "is for insert.mode=upsert"
