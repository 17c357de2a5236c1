"""The right answers, computed with Polars from the very frames that were loaded, and the comparison with a topic."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import datasets
from penstock.log.open import open_log


def w1(root: Path) -> pl.DataFrame:
    """Key is null; all values in order of their text."""
    hits = pl.scan_parquet(root / "logs.parquet").filter(pl.col("status") >= 400)
    path = pl.col("value").str.split(" ").list.get(6)
    value = pl.format('{{"ip":"{}","path":"{}","status":{}}}', "ip", path, "status")
    return hits.select(value=value).sort("value").collect()


def w2(root: Path, by: str) -> pl.DataFrame:
    start = pl.col("timestamp") // datasets.WINDOW_MS * datasets.WINDOW_MS
    counts = pl.scan_parquet(root / "logs.parquet").group_by(by, start.alias("start")).len()
    return counts.select(key=pl.format("{}@{}", by, "start"), value=pl.col("len").cast(pl.Int64)).sort("key").collect()


def w3(root: Path) -> pl.DataFrame:
    sums = pl.scan_parquet(root / "sums.parquet").group_by("key").agg(value=pl.col("amount").sum())
    return sums.sort("key").collect()


def w4(root: Path) -> pl.DataFrame:
    users = pl.scan_parquet(root / "users.parquet").select("key", "city")
    joined = pl.scan_parquet(root / "orders.parquet").join(users, on="key")
    return joined.group_by(key="city").agg(value=pl.len().cast(pl.Int64)).sort("key").collect()


ANSWERS = {"w1": w1, "w2a": lambda root: w2(root, "os"), "w2b": lambda root: w2(root, "ip"), "w3": w3, "w4": w4}


def written(url: str, topic: str) -> pl.DataFrame:
    """Key and value of all records of a topic, partition by partition in the order of their offsets."""
    parts = []
    with open_log(url) as log:
        for tp, end in log.end_offsets([topic]).items():
            parts += [
                pl.DataFrame(pl.from_arrow(b.select(["key", "value"])))
                for b in log.iterate(topic, tp.partition, 0, end)
            ]
    return pl.concat(parts).select(pl.col("key", "value").cast(pl.String))


def check(workload: str, root: Path, url: str) -> int:
    """Compares the topic `out` with the answer and gives the number of rows compared; ends the program if it is wrong."""
    expected = ANSWERS[workload](root)
    found = written(url, "out")
    if workload == "w1":
        found = found.select("value").sort("value")
    else:
        latest = found.unique("key", keep="last", maintain_order=True).sort("key")
        found = latest.with_columns(pl.col("value").cast(pl.Int64))
    if not found.equals(expected):
        raise SystemExit(
            f"{workload} gave a WRONG answer: {found.height} rows, expected {expected.height}\n{found.head()}\n{expected.head()}"
        )
    return expected.height
