"""The events of an auction house, made by column from a seed: persons, auctions and bids.

Blocks of 50 events have 1 person, 3 auctions and 46 bids. Event n happens at ``base_ms + n * 1000 / rate``; ids begin at 1000.
All programs read them as JSON from topics: the key is the id of the person or auction, or of the bid's auction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

FIRST_ID = 1_000
BLOCK, AUCTIONS, BIDS = 50, 3, 46
HOT_BLOCK = 100  # the first of so many is the hot one
IN_FLIGHT = 100  # auctions that run at a time
ACTIVE = 1_000  # persons that bid and sell
LEAD = 10  # auctions that get bids before they are there
CHANNELS = 10_000
SIDE_ROWS = 10_000  # of the table that q13 joins with
CHUNK = 250_000
BASE_MS = 1_790_812_700_000  # 23:58:20 UTC: a whole ten seconds, and with 200 seconds of events two days

TYPES: dict[str, dict[str, type]] = {
    "person": {
        "id": int, "name": str, "emailAddress": str, "creditCard": str, "city": str, "state": str, "dateTime": int, "extra": str,
    },
    "auction": {
        "id": int, "itemName": str, "description": str, "initialBid": int, "reserve": int, "dateTime": int, "expires": int,
        "seller": int, "category": int, "extra": str,
    },
    "bid": {"auction": int, "bidder": int, "price": int, "channel": str, "url": str, "dateTime": int, "extra": str},
    "side": {"key": int, "value": str},
}  # fmt: skip
KEYS = {"person": "id", "auction": "id", "bid": "auction", "side": "key"}

_FIRST = pl.Series(["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jana", "Kurt"])
_LAST = pl.Series(["Abel", "Berg", "Costa", "Dahl", "Ekman", "Falk", "Grau", "Holm", "Ibsen"])
_CITIES = pl.Series(
    ["Phoenix", "Portland", "Boise", "Seattle", "Bend", "Redmond", "Kent", "Cheyenne", "Eugene", "Fresno"]
)
_STATES = pl.Series(["AZ", "CA", "ID", "OR", "WA", "WY"])
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]


@dataclass(frozen=True, slots=True)
class Events:
    """So many events of a seed, ``rate`` a second of event time."""

    count: int
    seed: int = 1
    rate: int = 10_000
    base_ms: int = BASE_MS

    @property
    def longest_auction_ms(self) -> int:
        """The time from the beginning of an auction to its end, at most: twice what those in flight take."""
        return 2 * IN_FLIGHT * BLOCK * 1_000 // (AUCTIONS * self.rate) + 1

    def chunks(self) -> Iterator[dict[str, pl.DataFrame]]:
        """Frames of person, auction and bid; ``number`` is that of the event."""
        channels = _channels(self.seed)
        for first in range(0, self.count, CHUNK):
            numbers = np.arange(first, min(first + CHUNK, self.count))
            rng = np.random.default_rng([self.seed, first])
            place = numbers % BLOCK
            yield {
                "person": self._persons(rng, numbers[place == 0]),
                "auction": self._auctions(rng, numbers[(place > 0) & (place <= AUCTIONS)]),
                "bid": self._bids(rng, numbers[place > AUCTIONS], channels),
            }

    def frames(self) -> dict[str, pl.DataFrame]:
        """All events, and the side table."""
        chunks = list(self.chunks())
        return {name: pl.concat(chunk[name] for chunk in chunks) for name in ("person", "auction", "bid")} | {
            "side": side()
        }

    def _times(self, numbers: np.ndarray) -> np.ndarray:
        return self.base_ms + numbers * 1_000 // self.rate

    def _persons(self, rng: np.random.Generator, numbers: np.ndarray) -> pl.DataFrame:
        n = len(numbers)
        first, last = _FIRST.gather(rng.integers(0, len(_FIRST), n)), _LAST.gather(rng.integers(0, len(_LAST), n))
        cards = [pl.Series(rng.integers(0, 10_000, n)).cast(pl.String).str.zfill(4) for _ in range(4)]
        frame = pl.DataFrame({
            "number": numbers, "id": FIRST_ID + numbers // BLOCK, "first": first, "last": last,
            "city": _CITIES.gather(rng.integers(0, len(_CITIES), n)), "state": _STATES.gather(rng.integers(0, len(_STATES), n)),
            "dateTime": self._times(numbers), "extra": _letters(rng, n, 20, 60),
        } | {f"card{at}": card for at, card in enumerate(cards)})  # fmt: skip
        return frame.select(
            "number", "id", pl.format("{} {}", "first", "last").alias("name"),
            pl.format("{}.{}@example.com", pl.col("first").str.to_lowercase(), "id").alias("emailAddress"),
            pl.format("{} {} {} {}", *(f"card{at}" for at in range(4))).alias("creditCard"),
            "city", "state", "dateTime", "extra",
        )  # fmt: skip

    def _auctions(self, rng: np.random.Generator, numbers: np.ndarray) -> pl.DataFrame:
        n, block = len(numbers), numbers // BLOCK
        times, first = self._times(numbers), _prices(rng, n)
        return pl.DataFrame({
            "number": numbers, "id": FIRST_ID + block * AUCTIONS + numbers % BLOCK - 1, "itemName": _letters(rng, n, 5, 20),
            "description": _letters(rng, n, 50, 100), "initialBid": first, "reserve": first + _prices(rng, n),
            "dateTime": times, "expires": times + 1 + rng.integers(0, self.longest_auction_ms - 1, n),
            "seller": FIRST_ID + _hot_or_recent(rng, block, ACTIVE, hot=0.75), "category": 10 + rng.integers(0, 5, n),
            "extra": _letters(rng, n, 150, 250),
        })  # fmt: skip

    def _bids(self, rng: np.random.Generator, numbers: np.ndarray, channels: pl.DataFrame) -> pl.DataFrame:
        n, block = len(numbers), numbers // BLOCK
        hot = rng.random(n) < 0.5
        channel = channels[
            np.where(hot, rng.integers(0, len(HOT_CHANNELS), n), len(HOT_CHANNELS) + rng.integers(0, CHANNELS, n))
        ]
        return pl.DataFrame({
            "number": numbers,
            "auction": FIRST_ID + _hot_or_recent(rng, block * AUCTIONS + AUCTIONS - 1, IN_FLIGHT, hot=0.5, lead=LEAD),
            "bidder": FIRST_ID + _hot_or_recent(rng, block, ACTIVE, hot=0.75), "price": _prices(rng, n),
            "channel": channel["channel"], "url": channel["url"], "dateTime": self._times(numbers),
            "extra": _letters(rng, n, 10, 30),
        })  # fmt: skip


def side() -> pl.DataFrame:
    """The bounded table that q13 joins with."""
    return pl.DataFrame({"key": np.arange(SIDE_ROWS)}).with_columns(
        value=pl.format("side {}", "key"), dateTime=pl.lit(0, pl.Int64), number=pl.lit(-1, pl.Int64)
    )


def records(topic: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Key, value (JSON) and timestamp of the records of a topic."""
    return frame.select(
        pl.col(KEYS[topic]).cast(pl.String).alias("key"),
        pl.struct(*TYPES[topic]).struct.json_encode().alias("value"),
        pl.col("dateTime").alias("timestamp"),
    )


def _prices(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.round(100 * 10 ** (6 * rng.random(n))).astype(np.int64)


def _hot_or_recent(rng: np.random.Generator, last: np.ndarray, recent: int, *, hot: float, lead: int = 0) -> np.ndarray:
    """The first of the last block of 100, or one of those that came last."""
    oldest = np.maximum(last - recent + 1, 0)
    one = oldest + np.floor(rng.random(len(last)) * (last + 1 + lead - oldest)).astype(np.int64)
    return np.where(rng.random(len(last)) < hot, last // HOT_BLOCK * HOT_BLOCK, one)


def _letters(rng: np.random.Generator, n: int, shortest: int, longest: int) -> pl.Series:
    """Texts of small letters of a length between these."""
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(rng.integers(shortest, longest + 1, n), out=offsets[1:])
    letters = rng.integers(97, 123, offsets[-1], dtype=np.uint8)
    array = pa.LargeStringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters))
    return pl.Series(pl.from_arrow(array))


def _channels(seed: int) -> pl.DataFrame:
    """The name and the address of each channel, the four large ones first; one address of ten has no channel_id."""
    n = len(HOT_CHANNELS) + CHANNELS
    rng = np.random.default_rng([seed, 1 << 40])
    folders = [_letters(rng, n, 3, 8) for _ in range(3)]
    numbers = np.arange(n)
    frame = pl.DataFrame(
        {"number": numbers, "named": rng.random(n) < 0.9} | {f"f{at}": f for at, f in enumerate(folders)}
    )
    address = pl.format("https://auctions.example.com/{}/{}/{}/item.htm?query=1", "f0", "f1", "f2")
    named = pl.format("{}&channel_id={}", address, pl.col("number") * 7_919 + 104_729)
    return frame.select(
        channel=pl.concat([pl.Series(HOT_CHANNELS), "channel-" + pl.Series(numbers[:CHANNELS]).cast(pl.String)]),
        url=pl.when("named").then(named).otherwise(address),
    )
