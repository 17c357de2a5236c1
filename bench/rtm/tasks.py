"""The tasks of the benchmark of Spark's real-time mode as topologies, their records and their answers.

Each record of the input has one output, in the order of its key (d: the first of a key alone).

- a: the value in base64, without state.
- b: how many records of a key came in a minute; 1,000 keys.
- c: the number of a key's records, a value of state that a processor reads and writes; 50,000 keys.
- d: records whose key was not there before; four of five are new.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from penstock import (
    Consumed,
    Grouped,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

MINUTE_MS = 60_000
KEYS = {"a": 1_000, "b": 1_000, "c": 50_000}
NEW = 0.8  # of the keys of d
STORE = "seen"
TEXTS, BINARY = Consumed(key_serde="string", value_serde="string"), Consumed(key_serde="string", value_serde="bytes")


def records(task: str, count: int, seed: int = 1) -> pl.DataFrame:
    """Keys and values, as text."""
    rng = np.random.default_rng(seed)
    if task == "d":
        new = rng.random(count) < NEW
        newest = np.maximum(np.cumsum(new) - 1, 0)
        keys = np.where(new, newest, rng.integers(0, newest + 1))
    else:
        keys = rng.integers(0, KEYS[task], count)
    return pl.DataFrame({"key": keys, "number": np.arange(count)}).select(
        pl.format("key-{}", "key").alias("key"), pl.format("value {} of the benchmark", "number").alias("value")
    )


class Numbered(Processor[str, str, str, str]):
    """Numbers the records of each key."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._seen = context.get_state_store(STORE)

    def process(self, record: Record[str, str]) -> None:
        number = (self._seen.get(record.key) or 0) + 1
        self._seen.put(record.key, number)
        self.context.forward(record.with_value(str(number)))


class First(Processor[str, str, str, str]):
    """Forwards the first record of each key."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._seen = context.get_state_store(STORE)

    def process(self, record: Record[str, str]) -> None:
        if self._seen.put_if_absent(record.key, 1) is None:
            self.context.forward(record)


def topology(task: str, source: str, out: str) -> Topology:
    builder = StreamsBuilder()
    texts = Produced(key_serde="string", value_serde="string")
    if task == "a":
        encoded = builder.stream(source, BINARY).map_values(pl.col("value").bin.encode("base64"))
        encoded.to(out, texts)
        return builder.build()
    stream = builder.stream(source, TEXTS)
    if task == "b":
        counts = (
            stream.group_by_key(Grouped(key_serde="string", value_serde="string"))
            .windowed_by(TimeWindows.of("1 minute", grace="1 minute"))
            .count(Materialized(key_serde="string", value_serde="long", caching=False))
        )
        by_text = counts.to_stream(pl.col("key").struct.field("key"))
        by_text.map_values(pl.col("value").cast(pl.String)).to(out, texts)
    else:
        builder.add_state_store(Stores.key_value(STORE, key_serde="string", value_serde=Serdes.long()))
        stream.process({"c": Numbered, "d": First}[task], [STORE]).to(out, texts)
    return builder.build()


def answered(task: str, sent: pl.DataFrame) -> pl.DataFrame:
    """The outputs of these records (key, value, and ``at``, their time), in the order of each key."""
    values: Mapping[str, pl.Expr] = {
        "a": pl.col("value").cast(pl.Binary).bin.encode("base64"),
        "b": pl.int_range(1, pl.len() + 1).over("key", pl.col("at") // MINUTE_MS).cast(pl.String),
        "c": pl.int_range(1, pl.len() + 1).over("key").cast(pl.String),
        "d": pl.col("value"),
    }
    rows = sent.unique("key", keep="first", maintain_order=True) if task == "d" else sent
    return rows.with_columns(values[task].alias("value"))


def matched(task: str, sent: pl.DataFrame, found: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return each output with the time of its record, and what is wrong with the outputs; empty: nothing.

    Each partition of both is in its order, so the outputs of a key are.
    """
    number = pl.int_range(pl.len()).over("key").alias("number")
    expected = answered(task, sent).with_columns(number)
    both = expected.join(found.with_columns(number), on=["key", "number"], how="full", coalesce=True, suffix="_out")
    wrong = both.filter(pl.col("value").ne_missing(pl.col("value_out")))
    return both, f"{wrong.height} of {expected.height}, such as {wrong.row(0, named=True)}" if wrong.height else ""


TASKS = ("a", "b", "c", "d")
