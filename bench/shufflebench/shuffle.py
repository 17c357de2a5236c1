"""ShuffleBench's records, the topology, and its answers.

A record is 1,024 random bytes without a key. Its bytes 8 to 11 are a number; a rule matches where that number lies in the rule's
range, and each of the 1,000 rules has a range of its own that holds one number in 5,000. A record goes to all rules that it
matches, by their ids. A rule keeps four numbers of eight bytes: how many records it has had, the sum of their first eight bytes
(which may overflow), and the times of the first and the last. With the tenth record it emits them and begins anew.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import polars as pl

from penstock import (
    Consumed,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Repartitioned,
    Stores,
    StreamsBuilder,
    Topology,
)

RULES = [f"consumer_{number}" for number in range(1_000)]
SELECTIVITY = 0.2  # matches that a record has with all rules together
SPACE = 2**32
WIDTH = int(SPACE * SELECTIVITY / len(RULES))
STARTS = {rule: zlib.crc32(rule.encode()) for rule in RULES}
RECORD_BYTES = 1_024
EVERY = 10  # so many records of a rule make a result
PER_MS = 100  # records in a millisecond of their time
BASE_MS = 1_790_812_700_000
CHUNK = 50_000
STORE = "states"
STATE = struct.Struct(">qqqq")  # count, sum, first and last time
SCHEMA = {"count": pl.Int64, "sum": pl.Int64, "first": pl.Int64, "last": pl.Int64}


def chunks(count: int, seed: int = 1) -> Iterator[np.ndarray]:
    """The records, a row of bytes each."""
    for first in range(0, count, CHUNK):
        rng = np.random.default_rng([seed, first])
        yield rng.integers(0, 256, (min(CHUNK, count - first), RECORD_BYTES), dtype=np.uint8)


def rows(count: int, partitions: int, seed: int = 1) -> Iterator[tuple[None, bytes, int, int]]:
    """Key, value, partition and timestamp of each record."""
    number = 0
    for chunk in chunks(count, seed):
        for record in chunk:
            yield None, record.tobytes(), number % partitions, BASE_MS + number // PER_MS
            number += 1


# The topology.


def rules_of_ranges() -> tuple[list[int], list[list[str]]]:
    """The numbers at which the rules that match change, and the rules between them: one list more than numbers."""
    ends = {(start + WIDTH) % SPACE for start in STARTS.values()}
    edges = sorted({*STARTS.values(), *ends} - {0})
    return edges, [[r for r, start in STARTS.items() if (low - start) % SPACE < WIDTH] for low in (0, *edges)]


class States(Processor[str, bytes, str, bytes]):
    """Counts the records of each rule."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._states = context.get_state_store(STORE)

    def process(self, record: Record[str, bytes]) -> None:
        amount = int.from_bytes(record.value[:8], "big", signed=True)
        state = self._states.get(record.key)
        if state is None:
            count, total, first = 0, 0, record.timestamp
        else:
            count, total, first, _ = STATE.unpack(state)
        total = (total + amount + 2**63) % 2**64 - 2**63
        state = STATE.pack(count + 1, total, first, record.timestamp)
        if count + 1 < EVERY:
            self._states.put(record.key, state)
        else:
            self._states.delete(record.key)
            self.context.forward(record.with_value(state))


def topology(source: str, out: str) -> Topology:
    """Records without a match, four of five, are left out by column; a function gives the others to their rules."""
    edges, rules = rules_of_ranges()
    number = pl.col("value").bin.slice(8, 4).bin.reinterpret(dtype=pl.UInt32, endianness="big").cast(pl.Int64)
    with_rules = [at for at, some in enumerate(rules) if some]

    def to_rules(_: None, value: bytes) -> list[tuple[str, bytes]]:
        return [(rule, value) for rule in rules[bisect_right(edges, int.from_bytes(value[8:12], "big"))]]

    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value(STORE, key_serde="string", value_serde="bytes"))
    (
        builder.stream(source, Consumed(key_serde="bytes", value_serde="bytes"))
        .filter(number.bin_intervals(edges, labels=False).is_in(with_rules))
        .flat_map(to_rules)
        .repartition(Repartitioned("matches", key_serde="string", value_serde="bytes"))
        .process(States, [STORE])
        .to(out, Produced(key_serde="string", value_serde="bytes"))
    )
    return builder.build()


# The answers.


def matches(count: int, seed: int = 1) -> pl.DataFrame:
    """All matches: the rule, and of the record its number, first eight bytes and time."""
    numbers, amounts = [], []
    for chunk in chunks(count, seed):
        numbers.append(chunk[:, 8:12].copy().view(">u4").ravel().astype(np.int64))
        amounts.append(chunk[:, :8].copy().view(">i8").ravel().astype(np.int64))
    number = np.arange(count)
    records = pl.DataFrame(
        {
            "number": number,
            "at": BASE_MS + number // PER_MS,
            "word": np.concatenate(numbers),
            "sum": np.concatenate(amounts),
        }
    )
    found = [
        records.filter((pl.col("word") - start).mod(SPACE) < WIDTH).with_columns(rule=pl.lit(rule))
        for rule, start in STARTS.items()
    ]
    return pl.concat(found).sort("number", "rule")


def states(records: pl.DataFrame) -> pl.DataFrame:
    """Keys and states of records of 32 bytes."""
    values = np.frombuffer(b"".join(records["value"].to_list()), ">i8").reshape(-1, 4).astype(np.int64)
    return pl.DataFrame(values, schema=SCHEMA).with_columns(rule=records["key"].cast(pl.String))


def in_order(found: pl.DataFrame) -> pl.DataFrame:
    """The results of a program that has read the records one after the other."""
    tens = found.with_columns(ten=pl.int_range(pl.len()).over("rule") // EVERY)
    made = tens.group_by("rule", "ten", maintain_order=True).agg(
        pl.len().alias("count").cast(pl.Int64),
        pl.col("sum").sum(),
        first=pl.col("at").first(),
        last=pl.col("at").last(),
    )
    return made.filter(pl.col("count") == EVERY).select(*SCHEMA, "rule")


def compared(found: pl.DataFrame, written: pl.DataFrame, changelog: pl.DataFrame) -> tuple[int, str]:
    """Compare what a program has written, in whatever order it took the partitions, with the matches.

    Which ten records make a result depends on that order, but results and states together hold each match once.
    """
    results = states(written)
    kept = changelog.unique("key", keep="last", maintain_order=True).filter(pl.col("value").is_not_null())
    if (wrong := results.filter(pl.col("count") != EVERY).height) > 0:
        return results.height, f"{wrong} results of other than {EVERY} records"
    times = found.select("rule", "at").unique()
    for name in ("first", "last"):
        if (wrong := results.join(times, left_on=["rule", name], right_on=["rule", "at"], how="anti").height) > 0:
            return results.height, f"{wrong} results with a time ({name}) of no record that matches"
    totals = [pl.col("count").sum(), pl.col("sum").sum()]
    have = pl.concat([results, states(kept)]).group_by("rule").agg(totals).sort("rule")
    want = found.group_by("rule").agg(pl.len().alias("count").cast(pl.Int64), pl.col("sum").sum()).sort("rule")
    if have.equals(want.select(have.columns)):
        return results.height, ""
    both = have.join(want, on="rule", how="full", coalesce=True, suffix="_expected")
    differ = both.filter(pl.any_horizontal(pl.col(n).ne_missing(pl.col(f"{n}_expected")) for n in ("count", "sum")))
    return results.height, f"{differ.height} of {want.height} rules differ, such as {differ.row(0, named=True)}"
