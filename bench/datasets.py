"""The benchmark records, made by column from fixed seeds: access-log lines, sums, users and orders.

The shapes are those of the workloads in docs/benchmarks.md: 4 partitions, 100,000 keys, ten minutes of event time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa

PARTITIONS = 4
N_KEYS = 100_000
N_CITIES = 200
N_BUYERS = 50_000
WINDOW_MS = 60_000
SPAN_MS = 10 * WINDOW_MS
T0_MS = 1_760_000_040_000  # a whole minute
CHUNK = 200_000

AGENTS = {
    "Windows": "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0 Safari/537.36",
    "Macintosh": "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15",
    "iPhone": "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
    "iPad": "Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
    "Android": "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0 Mobile Safari/537.36",
    "CrOS": "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0 Safari/537.36",
    "Ubuntu": "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
    "Linux": "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
}
STATUSES = np.array([200] * 82 + [301] * 4 + [304] * 4 + [404] * 6 + [403] + [500] * 2 + [502])


def logs(n: int) -> Iterator[pl.DataFrame]:
    """Frames of timestamp, key (null), value (a line), partition, and os, ip, status for the reference answers."""
    rng = np.random.default_rng(42)
    agents = pl.Series(list(AGENTS.values()))
    names = pl.Series(list(AGENTS))
    for first in range(0, n, CHUNK):
        size = min(CHUNK, n - first)
        address = rng.integers(0, N_KEYS, size)
        agent = rng.integers(0, len(AGENTS), size)
        yield pl.DataFrame({
            "offset": np.arange(first, first + size),
            "address": address,
            "status": STATUSES[rng.integers(0, 100, size)],
            "path": rng.integers(0, 400, size),
            "bytes": rng.integers(0, 50_000, size),
            "agent": agents.gather(agent),
            "os": names.gather(agent),
        }).select(
            (T0_MS + pl.col("offset") * SPAN_MS // n).alias("timestamp"),
            pl.lit(None, pl.String).alias("key"),
            (pl.col("offset") % PARTITIONS).alias("partition"),
            pl.format("10.{}.{}.{}", pl.col("address") // 65536, pl.col("address") // 256 % 256, pl.col("address") % 256).alias("ip"),
            "os", "status", "path", "bytes", "agent",
        ).with_columns(
            pl.format(
                '{} - - [{}] "GET /shop/category-{}/item-{} HTTP/1.1" {} {} "https://shop.example.com/" "{}"',
                "ip", pl.from_epoch("timestamp", "ms").dt.strftime("%d/%b/%Y:%H:%M:%S +0000"),
                pl.col("path") % 17, pl.col("path").cast(pl.String).str.zfill(4), "status", "bytes", "agent",
            ).alias("value")
        ).select("timestamp", "key", "value", "partition", "os", "ip", "status")  # fmt: skip


def _keys(numbers: np.ndarray) -> pl.Series:
    return pl.Series(numbers).cast(pl.String).str.zfill(6).str.replace("^", "k")


def sums(n: int) -> Iterator[pl.DataFrame]:
    """Frames of timestamp, key, value (a decimal number as text) and amount."""
    rng = np.random.default_rng(43)
    for first in range(0, n, CHUNK):
        size = min(CHUNK, n - first)
        amounts = rng.integers(0, 1000, size)
        yield pl.DataFrame(
            {
                "timestamp": T0_MS + np.arange(first, first + size) * SPAN_MS // n,
                "key": _keys(rng.integers(0, N_KEYS, size)),
                "value": pl.Series(amounts).cast(pl.String),
                "amount": amounts,
            }
        )


def users() -> pl.DataFrame:
    """One frame of timestamp, key, value (JSON) and city, a row a user, before all orders."""
    rng = np.random.default_rng(44)
    cities = pl.Series(rng.integers(0, N_CITIES, N_KEYS)).cast(pl.String).str.zfill(3)
    frame = pl.DataFrame({"key": _keys(np.arange(N_KEYS)), "city": "city" + cities})
    profile = pl.struct(pl.format("user {}", "key").alias("name"), "city")
    return frame.select(
        pl.lit(T0_MS - WINDOW_MS).alias("timestamp"), "key", profile.struct.json_encode().alias("value"), "city"
    )


def orders(n: int) -> Iterator[pl.DataFrame]:
    """Frames of timestamp, key (a user) and value (JSON)."""
    rng = np.random.default_rng(45)
    for first in range(0, n, CHUNK):
        size = min(CHUNK, n - first)
        frame = pl.DataFrame(
            {
                "order": np.arange(first, first + size),
                "item": pl.Series(rng.integers(0, 500, size)).cast(pl.String).str.zfill(3),
                "qty": 1 + rng.integers(0, 5, size),
            }
        )
        frame = frame.with_columns(item="item" + pl.col("item"))
        yield pl.DataFrame(
            {
                "timestamp": T0_MS + np.arange(first, first + size) * SPAN_MS // n,
                "key": _keys(rng.integers(0, N_KEYS, size)),
                "value": frame.select(pl.struct("order", "item", "qty").struct.json_encode()).to_series(),
            }
        )


def _numbered(rng_seed: int, n: int, keys: int, prefix: str) -> Iterator[pl.DataFrame]:
    """Frames of timestamp, key and value, which is the prefix and the record's number."""
    rng = np.random.default_rng(rng_seed)
    for first in range(0, n, CHUNK):
        numbers = np.arange(first, min(first + CHUNK, n))
        yield pl.DataFrame(
            {
                "timestamp": T0_MS + numbers * SPAN_MS // n,
                "key": _keys(rng.integers(0, keys, len(numbers))),
                "value": prefix + pl.Series(numbers).cast(pl.String),
            }
        )


def shown(n: int) -> Iterator[pl.DataFrame]:
    """One side of the stream-stream join: about one record of the other side is within 30 seconds."""
    return _numbered(46, n // 2, N_KEYS, "s")


def clicked(n: int) -> Iterator[pl.DataFrame]:
    """The other side."""
    return _numbered(47, n // 2, N_KEYS, "c")


def prices(n: int) -> Iterator[pl.DataFrame]:
    """One side of the table-table join: every key changes some ten times."""
    return _numbered(48, n // 2, N_KEYS, "p")


def stock(n: int) -> Iterator[pl.DataFrame]:
    """The other side."""
    return _numbered(49, n // 2, N_KEYS, "q")


def purchases(n: int) -> Iterator[pl.DataFrame]:
    """The left table of the foreign-key join, four of five records: the value is the foreign key and a number."""
    rng = np.random.default_rng(50)
    for frame in _numbered(51, n * 4 // 5, 2 * N_KEYS, ""):
        buyer = _keys(rng.integers(0, N_BUYERS, frame.height))
        yield frame.with_columns(value=buyer + "|" + pl.col("value"))


def buyers(n: int) -> Iterator[pl.DataFrame]:
    """Its right table; each change reaches some four purchases."""
    return _numbered(52, n // 5, N_BUYERS, "b")


def records(frame: pl.DataFrame) -> pa.RecordBatch:
    """The frame's records as the log stores them."""
    table = frame.select(
        pl.col("timestamp").cast(pl.Int64), pl.col("key").cast(pl.Binary), pl.col("value").cast(pl.Binary)
    ).to_arrow(compat_level=pl.CompatLevel.oldest())
    table = table.append_column(
        "headers", pa.nulls(len(table), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    )
    return table.combine_chunks().to_batches()[0]


if __name__ == "__main__":
    for make in (logs, sums, orders):
        print(next(iter(make(1000))).head(2).to_dicts())
    print(users().head(2).to_dicts())
