"""Puts the benchmark's records into a log, into Parquet files for plain PySpark, and keeps the frames for the answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

import datasets
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.partitioner import partitions_for

PARQUET_ROWS = 50_000  # ten files are one batch
LOGS = {"users": "orders", "clicked": "shown", "stock": "prices", "buyers": "purchases"}  # topics in the log of another


def frames(topic: str, n: int) -> Iterator[pl.DataFrame]:
    if topic == "users":
        return iter([datasets.users()])
    return getattr(datasets, topic)(n)


def log_url(root: Path, topic: str) -> str:
    """Topics that are read together share a log file."""
    return f"sqlite:///{root / LOGS.get(topic, topic)}.db"


def load(root: Path, topic: str, n: int) -> None:
    """Writes the topic, root/topic/*.parquet (timestamp, key, value) and root/topic.parquet (all columns)."""
    files = root / topic
    files.mkdir()
    kept = []
    number = 0
    with open_log(log_url(root, topic)) as log:
        log.create_topic(topic, datasets.PARTITIONS)
        for frame in frames(topic, n):
            append_frame(log, topic, frame)
            for part in frame.select("timestamp", pl.col("key", "value").cast(pl.Binary)).iter_slices(PARQUET_ROWS):
                part.write_parquet(files / f"{number:05}.parquet", compression="lz4")
                number += 1
            kept.append(frame)
    pl.concat(kept).write_parquet(root / f"{topic}.parquet", compression="lz4")


def append_frame(log: EmbeddedLog, topic: str, frame: pl.DataFrame) -> None:
    if "partition" not in frame.columns:
        records = datasets.records(frame)
        frame = frame.with_columns(partition=pl.Series(partitions_for(records.column("key"), datasets.PARTITIONS)))
    for (partition,), part in frame.partition_by("partition", as_dict=True, maintain_order=True).items():
        log.append(topic, int(partition), datasets.records(part))
