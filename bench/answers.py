"""The right answers, computed with Polars from the very frames that were loaded, and the comparison with a topic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import datasets
from penstock.log.open import open_log

NEAR_MS = 30_000
HOP_MS = 12_000


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


def ss_join(root: Path) -> pl.DataFrame:
    """All pairs."""
    left = pl.scan_parquet(root / "shown.parquet")
    pairs = left.join(pl.scan_parquet(root / "clicked.parquet"), on="key")
    apart = pl.col("timestamp") - pl.col("timestamp_right")
    value = pl.format("{}|{}", "value", "value_right")
    return pairs.filter(apart.abs() <= NEAR_MS).select(value=value).sort("value").collect()


def tt_join(root: Path) -> pl.DataFrame:
    left, right = _latest(root / "prices.parquet"), _latest(root / "stock.parquet")
    return (
        left.join(right, on="key").select("key", value=pl.format("{}|{}", "value", "value_right")).sort("key").collect()
    )


def fk_join(root: Path) -> pl.DataFrame:
    left = _latest(root / "purchases.parquet").with_columns(buyer=pl.col("value").str.split("|").list.first())
    right = _latest(root / "buyers.parquet").rename({"key": "buyer"})
    value = pl.format("{}|{}", "value", "value_right")
    return left.join(right, on="buyer").select("key", value=value).sort("key").collect()


def _latest(file: Path) -> pl.LazyFrame:
    return pl.scan_parquet(file).group_by("key", maintain_order=True).last().select("key", "value")


def sessions(root: Path) -> pl.DataFrame:
    """A session goes on for as long as the next record is at most the gap away."""
    records = pl.scan_parquet(root / "sums.parquet").select("key", "timestamp").sort("key", "timestamp")
    begins = (pl.col("timestamp").diff() > NEAR_MS).over("key").fill_null(value=True)
    numbered = records.with_columns(session=begins.cum_sum())
    found = numbered.group_by("key", "session").agg(
        start=pl.col("timestamp").min(), end=pl.col("timestamp").max(), value=pl.len().cast(pl.Int64)
    )
    return found.select(key=pl.format("{}@{}-{}", "key", "start", "end"), value="value").sort("key").collect()


def sliding(root: Path) -> pl.DataFrame:
    """One window ends at each record, one begins right after it unless it would be empty."""
    records = pl.scan_parquet(root / "sums.parquet").select("key", "timestamp").sort("key", "timestamp").collect()
    keys = records["key"].rle_id().to_numpy().astype(np.int64)
    line = keys * 10 * datasets.SPAN_MS + records["timestamp"].to_numpy() - datasets.T0_MS + datasets.SPAN_MS
    starts = np.concatenate([line - NEAR_MS, line + 1])
    counts = np.searchsorted(line, starts + NEAR_MS, "right") - np.searchsorted(line, starts, "left")
    both = pl.DataFrame(
        {
            "key": pl.concat([records["key"], records["key"]]),
            "start": np.concatenate([records["timestamp"].to_numpy() - NEAR_MS, records["timestamp"].to_numpy() + 1]),
            "value": counts.astype(np.int64),
        }
    )
    windows = both.filter(pl.col("value") > 0).unique(["key", "start"])
    return windows.select(key=pl.format("{}@{}", "key", "start"), value="value").sort("key")


def hopping(root: Path) -> pl.DataFrame:
    records = pl.scan_parquet(root / "sums.parquet").select("key", "timestamp")
    last = pl.col("timestamp") // HOP_MS * HOP_MS
    windows = pl.concat([records.select("key", start=last - back * HOP_MS) for back in range(5)])
    counts = windows.group_by("key", "start").len()
    return (
        counts.select(key=pl.format("{}@{}", "key", "start"), value=pl.col("len").cast(pl.Int64)).sort("key").collect()
    )


ANSWERS = {
    "w1": w1, "w2a": lambda root: w2(root, "os"), "w2b": lambda root: w2(root, "ip"), "w3": w3, "w4": w4,
    "ss-join": ss_join, "tt-join": tt_join, "fk-join": fk_join, "sessions": sessions, "sliding": sliding,
    "hopping": hopping,
}  # fmt: skip
WHOLE_TOPIC = ("w1", "ss-join")  # every record is a result, rather than the last one per key


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
    if workload in WHOLE_TOPIC:
        found = found.select("value").sort("value")
    else:
        latest = found.unique("key", keep="last", maintain_order=True).sort("key")
        found = latest.filter(pl.col("value").is_not_null()).cast({"value": expected.schema["value"]})
    if not found.equals(expected):
        raise SystemExit(
            f"{workload} gave a WRONG answer: {found.height} rows, expected {expected.height}\n{found.head()}\n{expected.head()}"
        )
    return expected.height
