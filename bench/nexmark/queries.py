"""Nexmark's queries as topologies. Each reads the topics person, auction, bid and side, and writes one.

A result is a record of the topic, or the last value of each key (`TABLES`); docs/benchmarks.md has the queries in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from nexmark.events import TYPES
from penstock import (
    Consumed,
    Grouped,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
    agg,
)

GRACE = "1 hour"  # a backlog is read faster than in the order of time between topics
TEN_SECONDS = TimeWindows.of("10 seconds", grace=GRACE)
DAY = TimeWindows.of("1 day", grace=GRACE)
LOW, HIGH = 10_000, 1_000_000  # where the bands of prices end
CATEGORY = 10
LAST_AUCTIONS, HIGHEST_BIDS = 10, 10
BID = Serdes.json(TYPES["bid"])
PRICE = Serdes.json({"price": int})
JSON = Serdes.json()
JSON_ROWS = Grouped(key_serde="string", value_serde=JSON)
WRITTEN = Produced(key_serde="string", value_serde=JSON)

FIELDS = {name: tuple(fields) for name, fields in TYPES.items()}
KEY, WINDOW_START = pl.col("key").struct.field("key"), pl.col("key").struct.field("start")
START = WINDOW_START.cast(pl.String)
AT_START = pl.format("{}@{}", KEY, START)
AS_DAY = pl.from_epoch(WINDOW_START, "ms").dt.strftime("%Y-%m-%d")


class Auctions:
    """The topics of a topology, under the names that they have this time."""

    def __init__(self, topics: Mapping[str, str], longest_auction_ms: int) -> None:
        self.builder = StreamsBuilder()
        self.topics = topics
        self.longest_auction_ms = longest_auction_ms

    def stream(self, name: str, **more: Any) -> KStream[str, Any]:
        options = Consumed(key_serde="string", value_serde=Serdes.json(TYPES[name]), **more)
        return self.builder.stream(self.topics[name], options)

    def bids(self) -> KStream[str, Any]:
        return self.stream("bid")

    def bids_in_time(self) -> KStream[str, Any]:
        """Bids with their auction's seller, category and end, none after the end, by auction."""
        auctions = self.stream("auction").map_values(pl.struct("seller", "category", "expires"))
        return auctions.join(
            self.bids(),
            pl.struct("seller", "category", "expires", *FIELDS["bid"]),
            JoinWindows.of(0, grace=GRACE).after(self.longest_auction_ms),
            StreamJoined(
                key_serde="string",
                value_serde=Serdes.json({"seller": int, "category": int, "expires": int}),
                other_value_serde=BID,
            ),
        ).filter(pl.col("dateTime") <= pl.col("expires"))


def q0(of: Auctions) -> KStream[str, Any]:
    """Bids as they are."""
    return of.bids()


def q1(of: Auctions) -> KStream[str, Any]:
    """Prices in another currency."""
    return of.bids().map_values(
        pl.struct("auction", "bidder", (pl.col("price") * 0.908).alias("price"), "dateTime", "extra")
    )


def q2(of: Auctions) -> KStream[str, Any]:
    """Prices of some auctions."""
    return of.bids().filter(pl.col("auction") % 123 == 0).map_values(pl.struct("auction", "price"))


def q3(of: Auctions) -> KStream[str, Any]:
    """Who in three states sells in a category: a join of tables by a foreign key."""
    persons = of.stream("person").filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    auctions = of.stream("auction").filter(pl.col("category") == CATEGORY)
    sellers = persons.map_values(pl.struct("name", "city", "state")).to_table(
        Materialized("sellers", key_serde="string", value_serde=Serdes.json({"name": str, "city": str, "state": str}))
    )
    sold = auctions.map_values(pl.struct("id", "seller")).to_table(
        Materialized("sold", key_serde="string", value_serde=Serdes.json({"id": int, "seller": int}))
    )
    return sold.join(
        sellers, pl.struct("name", "city", "state", "id"), foreign_key=pl.col("seller").cast(pl.String)
    ).to_stream()


def q4(of: Auctions) -> KStream[str, Any]:
    """The average by category of the auctions' highest prices."""
    highest = (
        of.bids_in_time()
        .map_values(pl.struct("category", "price"))
        .group_by_key(Grouped(key_serde="string", value_serde=Serdes.json({"category": int, "price": int})))
        .aggregate(
            agg.struct(category=agg.last("category"), price=agg.max("price")),
            materialized=Materialized(key_serde="string", value_serde=Serdes.json({"category": int, "price": int})),
        )
    )
    by_category = highest.group_by(
        pl.struct(pl.col("category").cast(pl.String).alias("key"), pl.col("price").alias("value")),
        Grouped(key_serde="string", value_serde="long"),
    )
    totals = by_category.aggregate(
        lambda: {"sum": 0, "count": 0},
        lambda _, price, total: {"sum": total["sum"] + price, "count": total["count"] + 1},
        lambda _, price, total: {"sum": total["sum"] - price, "count": total["count"] - 1},
        Materialized(key_serde="string", value_serde=Serdes.json({"sum": int, "count": int})),
    )
    return totals.to_stream().map_values(
        pl.struct(pl.col("key").cast(pl.Int64).alias("category"), (pl.col("sum") / pl.col("count")).alias("average"))
    )


def most(field: str) -> Callable[[Any, Any, Any], list[Any]]:
    """The values whose field is the largest, all of them."""

    def add(_: Any, value: dict[str, Any], best: list[Any]) -> list[Any]:
        if not best or value[field] > best[0][field]:
            return [value]
        return [*best, value] if value[field] == best[0][field] else best

    return add


def q5(of: Auctions) -> KStream[str, Any]:
    """The auctions with most bids in windows of ten seconds every two."""
    counts = (
        of.bids()
        .map_values(pl.lit(1, pl.Int32))
        .group_by_key(Grouped(key_serde="string", value_serde="integer"))
        .windowed_by(TimeWindows.of("10 seconds", advance="2 seconds", grace=GRACE))
        .count(Materialized(key_serde="string", value_serde="long"))
    )
    in_window = counts.to_stream().map(
        pl.struct(
            START.alias("key"),
            pl.struct(KEY.cast(pl.Int64).alias("auction"), pl.col("value").alias("bids")).alias("value"),
        )
    )
    row = {"auction": int, "bids": int}
    hottest = in_window.group_by_key(Grouped(key_serde="string", value_serde=Serdes.json(row))).aggregate(
        list, most("bids"), Materialized(key_serde="string", value_serde=JSON)
    )
    return hottest.to_stream().map_values(
        lambda start, best: {
            "start": int(start),
            "auctions": sorted(b["auction"] for b in best),
            "bids": best[0]["bids"],
        }
    )


def winners(of: Auctions) -> KTable[str, Any]:
    """The highest bid in time of each auction, the earliest of equal ones."""

    def better(won: dict[str, Any], bid: dict[str, Any]) -> dict[str, Any]:
        if bid["price"] != won["price"]:
            return bid if bid["price"] > won["price"] else won
        return min(won, bid, key=lambda each: (each["dateTime"], each["bidder"]))

    row = Serdes.json({"seller": int, "category": int, "expires": int} | TYPES["bid"])
    return (
        of.bids_in_time()
        .group_by_key(Grouped(key_serde="string", value_serde=row))
        .reduce(better, Materialized(key_serde="string", value_serde=row))
    )


def q6(of: Auctions) -> KStream[str, Any]:
    """The average of the final prices of a seller's last ten auctions that had a bid."""

    def without(_: str, sold: list[int], last: list[list[int]]) -> list[list[int]]:
        return [each for each in last if each[1] != sold[1]]

    def with_it(_: str, sold: list[int], last: list[list[int]]) -> list[list[int]]:
        return sorted([*last, sold])[-LAST_AUCTIONS:]

    by_seller = winners(of).group_by(
        lambda _, won: (str(won["seller"]), [won["expires"], won["auction"], won["price"]]), JSON_ROWS
    )
    last = by_seller.aggregate(list, with_it, without, Materialized(key_serde="string", value_serde=JSON))
    return last.to_stream().map_values(
        lambda seller, sold: {"seller": int(seller), "average": sum(each[2] for each in sold) / len(sold)}
    )


def q7(of: Auctions) -> KStream[str, Any]:
    """The bids of the highest price in each ten seconds: first by auction, then of all."""
    kept = of.bids().map_values(pl.struct("auction", "price", "bidder", "dateTime", "extra"))
    row = Serdes.json({"auction": int, "price": int, "bidder": int, "dateTime": int, "extra": str})
    of_auction = (
        kept.group_by_key(Grouped(key_serde="string", value_serde=row))
        .windowed_by(TEN_SECONDS)
        .aggregate(list, most("price"), Materialized(key_serde="string", value_serde=JSON))
    )

    def higher(_: str, bids: list[Any], best: list[Any]) -> list[Any]:
        if not best or bids[0]["price"] > best[0]["price"]:
            return bids
        others = [bid for bid in best if bid["auction"] != bids[0]["auction"]]  # it sends all of its own again
        return [*others, *bids] if bids[0]["price"] == best[0]["price"] else best

    best = (
        of_auction.to_stream(START)
        .group_by_key(JSON_ROWS)
        .aggregate(list, higher, Materialized(key_serde="string", value_serde=JSON))
    )
    return best.to_stream().map_values(lambda start, bids: {"start": int(start), "bids": bids})


def q8(of: Auctions) -> KStream[str, Any]:
    """Who came and opened an auction in the same ten seconds."""
    persons = of.stream("person").map_values(pl.struct("id", "name", "dateTime"))
    auctions = of.stream("auction").select_key(pl.col("seller").cast(pl.String)).map_values(pl.struct("dateTime"))
    window = pl.col("dateTime") // 10_000 * 10_000
    both = persons.join(
        auctions,
        pl.struct("id", "name", start=window, same=window == pl.col("dateTime_right") // 10_000 * 10_000),
        JoinWindows.of("10 seconds", grace=GRACE),
        StreamJoined(
            key_serde="string",
            value_serde=Serdes.json({"id": int, "name": str, "dateTime": int}),
            other_value_serde=Serdes.json({"dateTime": int}),
        ),
    )
    return both.filter(pl.col("same")).map_values(pl.struct("id", "name", "start"))


def q9(of: Auctions) -> KStream[str, Any]:
    """The winning bid of each auction."""
    return winners(of).to_stream()


def q10(of: Auctions) -> KStream[str, Any]:
    """Bids with the day and the minute of the folder that they go to."""
    at = pl.from_epoch("dateTime", "ms")
    folder = (at.dt.strftime("%Y-%m-%d").alias("day"), at.dt.strftime("%H:%M").alias("minute"))
    return of.bids().map_values(pl.struct(*FIELDS["bid"], *folder))


def q11(of: Auctions) -> KStream[str, Any]:
    """The bids of a bidder in each session."""
    counts = (
        bids_by_bidder(of)
        .windowed_by(SessionWindows.of("10 seconds", grace=GRACE))
        .count(Materialized(key_serde="string"))
    )
    whole = pl.format("{}@{}-{}", KEY, START, pl.col("key").struct.field("end"))
    return counts.to_stream(whole).map_values(pl.when(pl.col("value").is_not_null()).then(pl.struct(bids="value")))


def bids_by_bidder(of: Auctions) -> Any:
    return of.bids().map(pl.struct(pl.col("bidder").cast(pl.String).alias("key"), pl.lit(1, pl.Int32).alias("value"))).group_by_key(
        Grouped(key_serde="string", value_serde="integer")
    )  # fmt: skip


def q12(of: Auctions) -> KStream[str, Any]:
    """The bids of a bidder in each ten seconds of the clock."""
    counts = (
        of.stream("bid", timestamp_extractor="WallclockTimestampExtractor")
        .map(pl.struct(pl.col("bidder").cast(pl.String).alias("key"), pl.lit(1, pl.Int32).alias("value")))
        .group_by_key(Grouped(key_serde="string", value_serde="integer"))
        .windowed_by(TEN_SECONDS)
        .count(Materialized(key_serde="string"))
    )
    return counts.to_stream(AT_START).map_values(pl.struct(bids="value"))


def q13(of: Auctions) -> KStream[str, Any]:
    """Bids with the row of a bounded table."""
    side = of.builder.global_table(
        of.topics["side"], Consumed(key_serde="string", value_serde=Serdes.json(TYPES["side"]))
    )
    return of.bids().join(
        side,
        pl.struct("auction", "bidder", "price", "dateTime", pl.col("right").struct.field("value").alias("side")),
        key=(pl.col("auction") % 10_000).cast(pl.String),
    )


def q14(of: Auctions) -> KStream[str, Any]:
    """Bids of a range of prices, with the time of the day and how many c are in a text."""
    price, hour = pl.col("price") * 0.908, pl.from_epoch("dateTime", "ms").dt.hour()
    time = pl.when(hour.is_between(8, 18)).then(pl.lit("day")).when((hour <= 6) | (hour >= 20)).then(pl.lit("night"))
    return (
        of.bids()
        .filter((price > 1_000_000) & (price < 50_000_000))
        .map_values(
            pl.struct(
                "auction", "bidder", price.alias("price"), time.otherwise(pl.lit("other")).alias("time"), "dateTime", "extra",
                pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int64).alias("c"),
            )
        )
    )  # fmt: skip


def in_bands() -> list[pl.Expr]:
    """1 or 0 for all prices and for each band."""
    price = pl.col("price")
    bands = (pl.lit(value=True), price < LOW, (price >= LOW) & (price < HIGH), price >= HIGH)
    return [band.cast(pl.Int64).alias(f"n{at}") for at, band in enumerate(bands)]


BANDS = ("n0", "n1", "n2", "n3")
TWELVE = tuple(f"{what}{at}" for at in range(4) for what in ("bids", "auctions", "bidders"))


def sums(keys: str, *, last: bool) -> tuple[dict[str, type], Callable[[], Any], Callable[[int], Callable[..., Any]]]:
    """The sums of counts of keys, the first ones, and what adds the counts of one key (1), or takes them away (-1).

    Of auctions there are the bids and how many auctions have any, of bidders the latter only.
    """
    bids = {f"bids{at}": band for at, band in enumerate(BANDS)} if keys == "auctions" else {}
    having = {f"{keys}{at}": band for at, band in enumerate(BANDS)}
    names = (*bids, *having, *(["last"] if last else []))

    def signed(sign: int) -> Callable[[Any, Any, Any], dict[str, Any]]:
        def add(_: Any, counts: dict[str, int], total: dict[str, int]) -> dict[str, int]:
            changed = {name: total[name] + sign * counts[band] for name, band in bids.items()}
            for name, band in having.items():
                changed[name] = total[name] + sign if counts[band] else total[name]
            if last:
                changed["last"] = max(total["last"], counts["last"])
            return changed

        return add

    return dict.fromkeys(names, int), lambda: dict.fromkeys(names, 0), signed


def by_group(counts: KTable[Any, Any], group: pl.Expr, keys: str, *, last: bool = False) -> KTable[str, Any]:
    """Counts of keys and days added up by group."""
    fields = (*BANDS, *(["last"] if last else []))
    row = pl.struct(pl.col("value").struct.field(name) for name in fields)
    schema, start, signed = sums(keys, last=last)
    return counts.group_by(
        pl.struct(group.alias("key"), row.alias("value")),
        Grouped(key_serde="string", value_serde=Serdes.json(dict.fromkeys(fields, int))),
    ).aggregate(start, signed(1), signed(-1), Materialized(key_serde="string", value_serde=Serdes.json(schema)))


def distinct(rows: KStream[str, Any], **more: Any) -> KTable[Any, Any]:
    """The bids of each key and day, in all and in each band; where they are many, few of them are sent on."""
    row = Serdes.json(dict.fromkeys((*BANDS, *more), int))
    return (
        rows.group_by_key(Grouped(key_serde="string", value_serde=row))
        .windowed_by(DAY)
        .aggregate(
            agg.struct(**{name: agg.sum(name) for name in BANDS}, **more),
            materialized=Materialized(key_serde="string", value_serde=row),
        )
    )


def q15(of: Auctions) -> KStream[str, Any]:
    """Bids, bidders and auctions by day, in all and in three bands of prices."""
    auctions = distinct(of.bids().map_values(pl.struct(*in_bands())))
    bidders = distinct(
        of.bids().map(pl.struct(pl.col("bidder").cast(pl.String).alias("key"), pl.struct(*in_bands()).alias("value")))
    )
    return (
        by_group(auctions, AS_DAY, "auctions")
        .join(by_group(bidders, AS_DAY, "bidders"), pl.struct(*TWELVE))
        .to_stream()
        .map_values(pl.struct(pl.col("key").alias("day"), *TWELVE))
    )


def q16(of: Auctions) -> KStream[str, Any]:
    """The same by channel and day, and the minute of the last bid."""

    def by(field: str, *more: Any) -> KStream[str, Any]:
        key = pl.format("{}|{}", "channel", field).alias("key")
        return of.bids().map(pl.struct(key, pl.struct(*in_bands(), *more).alias("value")))

    group = pl.format("{}|{}", KEY.str.split("|").list.first(), AS_DAY)
    auctions = distinct(by("auction", pl.col("dateTime").alias("last")), last=agg.max("last"))
    of_auctions = by_group(auctions, group, "auctions", last=True)
    of_bidders = by_group(distinct(by("bidder")), group, "bidders")
    parts = pl.col("key").str.split("|")
    return (
        of_auctions.join(of_bidders, pl.struct(*TWELVE, "last"))
        .to_stream()
        .map_values(pl.struct(parts.list.first().alias("channel"), parts.list.last().alias("day"), *TWELVE, "last"))
    )


def q17(of: Auctions) -> KStream[str, Any]:
    """Bids by band, and the smallest, largest, mean and sum of the prices, by auction and day."""
    row = Serdes.json(dict.fromkeys((*BANDS, "price"), int))
    numbers = {name: agg.sum(name) for name in BANDS} | {
        "smallest": agg.min("price"), "largest": agg.max("price"), "total": agg.sum("price"),
    }  # fmt: skip
    counts = (
        of.bids()
        .map_values(pl.struct(*in_bands(), "price"))
        .group_by_key(Grouped(key_serde="string", value_serde=row))
        .windowed_by(DAY)
        .aggregate(
            agg.struct(**numbers),
            materialized=Materialized(key_serde="string", value_serde=Serdes.json(dict.fromkeys(numbers, int))),
        )
    )
    at_day = pl.format("{}@{}", KEY, AS_DAY)
    return counts.to_stream(at_day).map_values(
        pl.struct(*BANDS, "smallest", "largest", "total", (pl.col("total") / pl.col("n0")).alias("average"))
    )


def q18(of: Auctions) -> KStream[str, Any]:
    """The last bid of each bidder and auction."""
    return (
        of.bids()
        .select_key(pl.format("{}|{}", "bidder", "auction"))
        .group_by_key(Grouped(key_serde="string", value_serde=BID))
        .reduce(lambda _, bid: bid, Materialized(key_serde="string", value_serde=BID))
        .to_stream()
    )


def q19(of: Auctions) -> KStream[str, Any]:
    """The highest bids of each auction."""
    return (
        of.bids()
        .group_by_key(Grouped(key_serde="string", value_serde=BID))
        .aggregate(agg.top(HIGHEST_BIDS, "price"), materialized=Materialized(key_serde="string", value_serde=JSON))
        .to_stream()
        .map_values(lambda bids: {"bids": bids})
    )


def q20(of: Auctions) -> KStream[str, Any]:
    """Bids with their auction, of one category; a bid may come before its auction."""
    auctions = of.stream("auction").filter(pl.col("category") == CATEGORY)
    of_auction = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    return of.bids().join(
        auctions,
        pl.struct(*FIELDS["bid"], *of_auction, opened="dateTime_right"),
        JoinWindows.of("1 day", grace=GRACE),
        StreamJoined(key_serde="string", value_serde=BID, other_value_serde=Serdes.json(TYPES["auction"])),
    )


def q21(of: Auctions) -> KStream[str, Any]:
    """Bids with the number of their channel, of a few by name, of the others from the address."""
    channel = pl.col("channel").str.to_lowercase()
    number = pl.coalesce(
        *(
            pl.when(channel == name).then(pl.lit(str(at)))
            for at, name in enumerate(("apple", "google", "facebook", "baidu"))
        ),
        pl.col("url").str.extract("(?:&|^)channel_id=([^&]*)"),
    )
    row = pl.struct("auction", "bidder", "price", "channel", number.alias("channel_id"))
    return of.bids().map_values(row).filter(pl.col("channel_id").is_not_null())


def q22(of: Auctions) -> KStream[str, Any]:
    """Bids with the folders of their address."""
    parts = pl.col("url").str.split("/")
    folders = [parts.list.get(at, null_on_oob=True).alias(f"dir{at - 2}") for at in (3, 4, 5)]
    return of.bids().map_values(pl.struct("auction", "bidder", "price", "channel", *folders))


QUERIES = {
    "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8, "q9": q9, "q10": q10, "q11": q11,
    "q12": q12, "q13": q13, "q14": q14, "q15": q15, "q16": q16, "q17": q17, "q18": q18, "q19": q19, "q20": q20, "q21": q21,
    "q22": q22,
}  # fmt: skip
# Of these the last value of each key is the result, of the others each record.
TABLES = frozenset({"q3", "q4", "q5", "q6", "q7", "q8", "q9", "q11", "q12", "q15", "q16", "q17", "q18", "q19"})
TOPICS = dict.fromkeys(QUERIES, ("bid",)) | {
    "q3": ("person", "auction"), "q4": ("auction", "bid"), "q6": ("auction", "bid"), "q8": ("person", "auction"),
    "q9": ("auction", "bid"), "q13": ("side", "bid"), "q20": ("auction", "bid"),
}  # fmt: skip


def topology(query: str, topics: Mapping[str, str], longest_auction_ms: int) -> Topology:
    """The query over topics of these names; `topics` has the one of the results as "out"."""
    of = Auctions(topics, longest_auction_ms)
    QUERIES[query](of).to(topics["out"], WRITTEN)
    return of.builder.build()
