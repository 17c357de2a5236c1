"""The right answers, computed with Polars from the measurements themselves."""

from __future__ import annotations

import numpy as np
import polars as pl

from theodolite.sensors import Plant

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
UC4_MS = 5_000
CLOSE = 1e-6  # of means and variances, whose last digits depend on the order of operations
STATISTICS = ("count", "sum", "min", "max", "mean", "variance")


def uc1(plant: Plant) -> pl.DataFrame:
    return plant.frame()


def _statistics(frame: pl.DataFrame) -> pl.DataFrame:
    value = pl.col("valueInW")
    return frame.group_by("key").agg(
        pl.len().cast(pl.Int64).alias("count"), value.sum().alias("sum"), value.min().alias("min"), value.max().alias("max"),
        value.mean().alias("mean"), value.var(ddof=0).alias("variance"),
    )  # fmt: skip


def uc2(plant: Plant) -> pl.DataFrame:
    start = pl.col("timestamp") // MINUTE_MS * MINUTE_MS
    return _statistics(plant.frame().with_columns(key=pl.format("{}@{}", "identifier", start)))


def uc3(plant: Plant) -> pl.DataFrame:
    hop, windows = 3 * HOUR_MS, 24
    hour, newest = pl.col("timestamp") // HOUR_MS % 24, pl.col("timestamp") // hop * hop
    starts = pl.concat_list(newest - back * hop for back in range(windows)).alias("start")
    in_windows = plant.frame().with_columns(hour.alias("hour"), starts).explode("start")
    return _statistics(in_windows.with_columns(key=pl.format("{}|{}@{}", "identifier", "hour", "start")))


def uc4(plant: Plant) -> pl.DataFrame:
    """Level by level: what the members of a group came to last in a window, added up."""
    values = plant.frame().select("timestamp", child="identifier", value="valueInW")
    groups = plant.groups().sort("timestamp", maintain_order=True)
    sums = []
    for _ in range(plant.depth):
        members = values.sort("timestamp", maintain_order=True).join_asof(
            groups, on="timestamp", by="child", check_sortedness=False
        )
        members = members.filter(pl.col("parents").is_not_null()).explode("parents")
        in_windows = members.with_columns(start=pl.col("timestamp") // UC4_MS * UC4_MS)
        last = in_windows.group_by("parents", "child", "start", maintain_order=True).agg(
            pl.col("value", "timestamp").last()
        )
        level = last.group_by("parents", "start").agg(pl.col("value").sum(), pl.col("timestamp").max())
        sums.append(level)
        values = level.select("timestamp", "value", child="parents")
    # A group of members of several levels would come up more than once; here each has members of one.
    return pl.concat(sums).select(key=pl.format("{}@{}", "parents", "start"), value="value")


ANSWERS = {"uc1": uc1, "uc2": uc2, "uc3": uc3, "uc4": uc4}


def compared(case: str, expected: pl.DataFrame, written: pl.DataFrame) -> tuple[int, str]:
    """Return how many rows the answer has, and what is wrong with what was written (keys and values as bytes)."""
    rows = written.with_columns(pl.col("key").cast(pl.String))
    if case == "uc1":
        schema = pl.Struct(dict(expected.schema))
        found = rows.select(pl.col("value").cast(pl.String).str.json_decode(schema)).unnest("value")
        found, expected = (frame.sort("identifier", "timestamp") for frame in (found, expected))
        wrong = f"{found.height} records, or others than expected"
        return expected.height, "" if found.equals(expected) else wrong
    last = rows.unique("key", keep="last", maintain_order=True)
    if case == "uc4":
        values = np.frombuffer(b"".join(last["value"].to_list()), ">f8").astype(float)
        found = last.select("key").with_columns(value=pl.Series(values))
    else:
        schema = pl.Struct(dict.fromkeys(STATISTICS, pl.Float64) | {"count": pl.Int64})
        found = last.select("key", pl.col("value").cast(pl.String).str.json_decode(schema)).unnest("value")
    both = found.join(expected, on="key", how="full", coalesce=True, suffix="_expected")
    differs = [
        (pl.col(n) - pl.col(f"{n}_expected")).abs()
        > (CLOSE * pl.col(f"{n}_expected").abs() + CLOSE if n in ("mean", "variance") else 0)
        for n in expected.columns
        if n != "key"
    ]
    wrong_rows = both.filter(pl.any_horizontal(differ.fill_null(value=True) for differ in differs))
    if not wrong_rows.height:
        return expected.height, ""
    return expected.height, f"{wrong_rows.height} of {expected.height} rows, such as {wrong_rows.row(0, named=True)}"
