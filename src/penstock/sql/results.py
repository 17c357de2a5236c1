"""The results of statements, for prompts, servers and programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = [
    "Described",
    "Explained",
    "Listing",
    "QueryStarted",
    "Rows",
    "StatementResult",
    "Status",
    "Stream",
    "pandas_frame",
    "polars_frame",
]

Row = tuple[Any, ...]
DECIMAL = re.compile(r"DECIMAL\(([0-9]+), ([0-9]+)\)")
MOST_DIGITS = 38  # of Polars' decimals


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementResult:
    """The common part of all results.

    Attributes:
        statement: The text of the statement, variables put in.
    """

    statement: str = ""


@dataclass(frozen=True, slots=True)
class Status(StatementResult):
    """One sentence: what a statement has done."""

    text: str


@dataclass(frozen=True, slots=True)
class QueryStarted(Status):
    """A persistent query was made, and runs.

    Attributes:
        id: The id of the query, such as ``CSAS_CLICKS_1``.
    """

    id: str = ""


@dataclass(frozen=True, slots=True)
class Rows(StatementResult):
    """Columns and rows that are complete.

    Attributes:
        columns: The names of the columns.
        types: Their SQL types as text; empty where they have none, as in lists.
        rows: The values, as Python has them.
        note: Why there are no rows, if it is known: the query that keeps a table is still starting.

    >>> Rows(("ID", "N"), ("INTEGER", "BIGINT"), ((1, 10),)).to_dicts()
    [{'ID': 1, 'N': 10}]
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dictionary by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars frame, with the dtypes of their SQL types: TIMESTAMP is a datetime in UTC."""
        return polars_frame(self.columns, self._types(), self.rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame; TIMESTAMP is a datetime in UTC."""
        return pandas_frame(self.columns, self._types(), self.rows)

    def _types(self) -> tuple[str, ...]:
        return self.types or ("",) * len(self.columns)

    def _repr_html_(self) -> str:
        """Return the rows as a table of a notebook."""
        return str(self.to_pandas().to_html(index=False, max_rows=100, na_rep=""))


@dataclass(frozen=True, slots=True)
class Listing(Rows):
    """The answer of SHOW.

    Attributes:
        what: What is listed, such as ``STREAMS``.
    """

    what: str = ""


@dataclass(frozen=True, slots=True)
class Described(StatementResult):
    """The answer of DESCRIBE.

    Attributes:
        name: The name of the stream, table or function.
        kind: ``STREAM``, ``TABLE`` or ``FUNCTION``.
        columns: Name, type and role of each column; of a function its signatures.
        facts: Further facts by name, such as topic, formats, queries; more of them with EXTENDED.
    """

    name: str
    kind: str
    columns: tuple[tuple[str, str, str], ...]
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Explained(StatementResult):
    """The answer of EXPLAIN.

    Attributes:
        id: The id of the query, if it runs.
        topology: The topology as Kafka Streams describes it.
        expressions: For each expression its text, its type and its back end.
        plan: The logical plan as plain data.
        facts: Further facts by name: of a query that runs its state and its errors.
    """

    id: str
    topology: str
    expressions: tuple[tuple[str, str, str], ...]
    plan: dict[str, Any]
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stream(StatementResult):
    """Rows that go on to come: of PRINT and of SELECT ... EMIT CHANGES. Iterate over it, and close it.

    Attributes:
        columns: The names of the columns.
        types: Their SQL types as text.
        rows: Yields rows; None means that none came for a while, so that a caller can look at other things.
        stop: Ends the rows.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[Row | None]
    stop: Callable[[], None]

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self.rows if row is not None)

    def close(self) -> None:
        """End the rows; safe to call twice."""
        self.stop()


def polars_frame(columns: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Make a Polars frame: times are datetimes in UTC, decimals keep their scale; other types are inferred.

    >>> frame = polars_frame(["ID", "AT"], ["INTEGER", "TIMESTAMP"], [])
    >>> frame.schema["ID"], frame.schema["AT"].time_zone
    (Int32, 'UTC')

    Args:
        columns: The names of the columns.
        types: Their SQL types as text; empty where they have none.
        rows: The values, as Python has them.
    """
    import polars as pl

    schema = {name: _dtype(kind) for name, kind in zip(columns, types, strict=True)}
    return pl.DataFrame(
        {
            name: pl.Series(name, [row[index] for row in rows], dtype=dtype, strict=dtype is not None)
            for index, (name, dtype) in enumerate(schema.items())
        }
    )


def pandas_frame(columns: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Make a pandas frame: times are datetimes in UTC; other values are as Python has them.

    Args:
        columns: The names of the columns.
        types: Their SQL types as text; empty where they have none.
        rows: The values, as Python has them.
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(columns))
    for name, kind in zip(columns, types, strict=True):
        if kind == "TIMESTAMP":
            frame[name] = pd.to_datetime(frame[name], unit="ms", utc=True, errors="coerce")
    return frame


def _dtype(kind: str) -> Any:
    import polars as pl

    dtypes = {
        "BOOLEAN": pl.Boolean(),
        "INTEGER": pl.Int32(),
        "BIGINT": pl.Int64(),
        "DOUBLE": pl.Float64(),
        "STRING": pl.String(),
        "BYTES": pl.Binary(),
        "DATE": pl.Date(),
        "TIME": pl.Time(),
        "TIMESTAMP": pl.Datetime("ms", "UTC"),
    }
    decimal = DECIMAL.fullmatch(kind)
    if decimal is not None and int(decimal[1]) <= MOST_DIGITS:
        return pl.Decimal(int(decimal[1]), int(decimal[2]))
    return dtypes.get(kind)
