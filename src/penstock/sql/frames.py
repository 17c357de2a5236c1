"""Rows of results as Polars and pandas frames, with the dtypes of their SQL types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["pandas_frame", "polars_frame"]

DECIMAL = re.compile(r"DECIMAL\(([0-9]+), ([0-9]+)\)")
MOST_DIGITS = 38  # of Polars' decimals


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
            name: pl.Series(name, [row[place] for row in rows], dtype=dtype, strict=dtype is not None)
            for place, (name, dtype) in enumerate(schema.items())
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
