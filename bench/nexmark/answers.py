"""The right answers, computed with Polars from the events themselves, and the comparison with what a program has written."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nexmark.events import TYPES, Events
from nexmark.queries import BANDS, CATEGORY, HIGH, HIGHEST_BIDS, LAST_AUCTIONS, LOW, TABLES

Frames = Mapping[str, pl.DataFrame]
WINDOW_MS, HOP_MS, GAP_MS = 10_000, 2_000, 10_000
BID = list(TYPES["bid"])
DAY = pl.from_epoch("dateTime", "ms").dt.strftime("%Y-%m-%d").alias("day")
START = (pl.col("dateTime") // WINDOW_MS * WINDOW_MS).alias("start")


def q0(frames: Frames) -> pl.DataFrame:
    return frames["bid"].select(BID)


def q1(frames: Frames) -> pl.DataFrame:
    return frames["bid"].select("auction", "bidder", pl.col("price") * 0.908, "dateTime", "extra")


def q2(frames: Frames) -> pl.DataFrame:
    return frames["bid"].filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q3(frames: Frames) -> pl.DataFrame:
    persons = frames["person"].filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    auctions = frames["auction"].filter(pl.col("category") == CATEGORY)
    return auctions.join(persons, left_on="seller", right_on="id").select("name", "city", "state", "id")


def _in_time(frames: Frames) -> pl.DataFrame:
    opened = frames["auction"].select("seller", "category", "expires", auction="id", opened="dateTime")
    return frames["bid"].join(opened, on="auction").filter(pl.col("dateTime").is_between("opened", "expires"))


def q4(frames: Frames) -> pl.DataFrame:
    highest = _in_time(frames).group_by("auction", "category").agg(pl.col("price").max())
    return highest.group_by("category").agg(average=pl.col("price").sum() / pl.len())


def q5(frames: Frames) -> pl.DataFrame:
    last = pl.col("dateTime") // HOP_MS * HOP_MS
    in_windows = pl.concat(
        frames["bid"].select("auction", start=last - back * HOP_MS) for back in range(WINDOW_MS // HOP_MS)
    )
    counts = in_windows.group_by("start", "auction").agg(bids=pl.len().cast(pl.Int64))
    hottest = counts.filter(pl.col("bids") == pl.col("bids").max().over("start"))
    return hottest.sort("auction").group_by("start", "bids").agg(auctions="auction").select("start", "auctions", "bids")


def q9(frames: Frames) -> pl.DataFrame:
    order = _in_time(frames).sort("price", "dateTime", "bidder", descending=[True, False, False], maintain_order=True)
    return order.unique("auction", keep="first").select("seller", "category", "expires", *BID)


def q6(frames: Frames) -> pl.DataFrame:
    last = q9(frames).sort("expires", "auction").group_by("seller", maintain_order=True).tail(LAST_AUCTIONS)
    return last.group_by("seller").agg(average=pl.col("price").sum() / pl.len())


def q7(frames: Frames) -> pl.DataFrame:
    bids = frames["bid"].select("auction", "price", "bidder", "dateTime", "extra", START)
    best = bids.filter(pl.col("price") == pl.col("price").max().over("start"))
    return best.select("start", bids=pl.struct("auction", "price", "bidder", "dateTime", "extra"))


def q8(frames: Frames) -> pl.DataFrame:
    opened = frames["auction"].select(START, id="seller").unique()
    return frames["person"].select("id", "name", START).join(opened, on=["id", "start"])


def q10(frames: Frames) -> pl.DataFrame:
    return frames["bid"].select(*BID, DAY, minute=pl.from_epoch("dateTime", "ms").dt.strftime("%H:%M"))


def q11(frames: Frames) -> pl.DataFrame:
    bids = frames["bid"].select("bidder", "dateTime").sort("bidder", "dateTime")
    begins = (pl.col("dateTime").diff() > GAP_MS).fill_null(value=True).over("bidder")
    sessions = bids.with_columns(session=begins.cum_sum().over("bidder")).group_by("bidder", "session")
    found = sessions.agg(start=pl.col("dateTime").min(), end=pl.col("dateTime").max(), bids=pl.len().cast(pl.Int64))
    return found.select(key=pl.format("{}@{}-{}", "bidder", "start", "end"), bids="bids")


def q12(frames: Frames) -> pl.DataFrame:
    """Without the windows, which are those of the clock of the run."""
    return frames["bid"].group_by("bidder").agg(bids=pl.len().cast(pl.Int64))


def q13(frames: Frames) -> pl.DataFrame:
    side = frames["side"].select("key", side="value")
    joined = frames["bid"].with_columns(key=pl.col("auction") % 10_000).join(side, on="key")
    return joined.select("auction", "bidder", "price", "dateTime", "side")


def q14(frames: Frames) -> pl.DataFrame:
    hour = pl.col("dateTime") // 3_600_000 % 24
    time = (
        pl.when((hour >= 8) & (hour <= 18)).then(pl.lit("day")).when((hour <= 6) | (hour >= 20)).then(pl.lit("night"))
    )
    priced = frames["bid"].with_columns(price=pl.col("price") * 0.908)
    return priced.filter((pl.col("price") > 1_000_000) & (pl.col("price") < 50_000_000)).select(
        "auction", "bidder", "price", time.otherwise(pl.lit("other")).alias("time"), "dateTime", "extra",
        c=(pl.col("extra").str.len_chars() - pl.col("extra").str.replace_all("c", "").str.len_chars()).cast(pl.Int64),
    )  # fmt: skip


def _banded() -> list[pl.Expr]:
    price = pl.col("price")
    return [pl.lit(value=True), price < LOW, (price >= LOW) & (price < HIGH), price >= HIGH]


def _twelve() -> list[pl.Expr]:
    numbers = []
    for at, band in enumerate(_banded()):
        numbers += [
            band.sum().cast(pl.Int64).alias(f"bids{at}") if at else pl.len().cast(pl.Int64).alias("bids0"),
            *(pl.col(f).filter(band).n_unique().cast(pl.Int64).alias(f"{f}s{at}") for f in ("bidder", "auction")),
        ]
    return numbers


def q15(frames: Frames) -> pl.DataFrame:
    return frames["bid"].group_by(DAY).agg(_twelve())


def q16(frames: Frames) -> pl.DataFrame:
    return frames["bid"].group_by("channel", DAY).agg(*_twelve(), last=pl.col("dateTime").max())


def q17(frames: Frames) -> pl.DataFrame:
    price = pl.col("price")
    counted = frames["bid"].with_columns(
        band.cast(pl.Int64).alias(name) for name, band in zip(BANDS, _banded(), strict=True)
    )
    totals = counted.group_by("auction", DAY).agg(
        *(pl.col(name).sum() for name in BANDS), smallest=price.min(), largest=price.max(), total=price.sum()
    )
    key = pl.format("{}@{}", "auction", "day")
    return totals.select(
        key.alias("key"), *BANDS, "smallest", "largest", "total", average=pl.col("total") / pl.col("n0")
    )


def q18(frames: Frames) -> pl.DataFrame:
    return frames["bid"].sort("number").unique(["bidder", "auction"], keep="last", maintain_order=True).select(BID)


def q19(frames: Frames) -> pl.DataFrame:
    """Each auction's bids by price, the earlier of equal ones first."""
    order = frames["bid"].sort("price", "number", descending=[True, False])
    best = order.group_by("auction", maintain_order=True).head(HIGHEST_BIDS)
    return best.group_by("auction", maintain_order=True).agg(bids=pl.struct(BID)).select("bids")


def q20(frames: Frames) -> pl.DataFrame:
    wanted = frames["auction"].filter(pl.col("category") == CATEGORY)
    fields = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    auctions = wanted.select(*fields, auction="id", opened="dateTime")
    return frames["bid"].join(auctions, on="auction").select(*BID, *fields, "opened")


def q21(frames: Frames) -> pl.DataFrame:
    by_name = pl.col("channel").replace_strict(
        {"Apple": "0", "Google": "1", "Facebook": "2", "Baidu": "3"}, default=None, return_dtype=pl.String
    )
    in_url = pl.col("url").str.split("&channel_id=").list.get(1, null_on_oob=True)
    found = frames["bid"].select("auction", "bidder", "price", "channel", channel_id=pl.coalesce(by_name, in_url))
    return found.filter(pl.col("channel_id").is_not_null())


def q22(frames: Frames) -> pl.DataFrame:
    folders = [
        pl.col("url").str.extract(f"^https://[^/]*/{'[^/]*/' * at}([^/]*)").alias(f"dir{at + 1}") for at in range(3)
    ]
    return frames["bid"].select("auction", "bidder", "price", "channel", *folders)


ANSWERS = {
    "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8, "q9": q9, "q10": q10, "q11": q11,
    "q12": q12, "q13": q13, "q14": q14, "q15": q15, "q16": q16, "q17": q17, "q18": q18, "q19": q19, "q20": q20, "q21": q21,
    "q22": q22,
}  # fmt: skip
KEYED = ("q11", "q17")  # the key is part of the answer
_BID = {name: pl.String if kind is str else pl.Int64 for name, kind in TYPES["bid"].items()}
# The columns of the rows that a peer without lists writes.
ROWS: dict[str, dict[str, type[pl.DataType]]] = {
    "q5": {"start": pl.Int64, "auction": pl.Int64, "bids": pl.Int64},
    "q7": {"start": pl.Int64} | {name: _BID[name] for name in ("auction", "price", "bidder", "dateTime", "extra")},
    "q19": {"place": pl.Int64} | _BID,
}
# What ties in the answer leave open.
OPEN = {"q9": ("channel", "url", "extra")}


def difference(query: str, events: Events, written: pl.DataFrame) -> tuple[int, str]:
    """How many rows the answer has, and in what the written records (key and value, texts) differ from it, if they do."""
    return compared(query, ANSWERS[query](events.frames()), written)


def compared(query: str, expected: pl.DataFrame, written: pl.DataFrame) -> tuple[int, str]:
    if query in TABLES:
        written = written.unique("key", keep="last", maintain_order=True).filter(pl.col("value").is_not_null())
    found = _read(query, expected, written)
    found, expected = (
        frame.drop(OPEN.get(query, ())).select(expected.columns if query not in OPEN else pl.all())
        for frame in (found, expected)
    )
    found, expected = (_sorted(frame.select(sorted(frame.columns))) for frame in (found, expected))
    if found.equals(expected):
        return expected.height, ""
    if found.height != expected.height:
        return expected.height, f"{found.height} rows, {expected.height} expected"
    wrong = pl.concat([found.rename(lambda name: f"found {name}"), expected], how="horizontal")
    first = next(row for row in range(found.height) if found[row].row(0) != expected[row].row(0))
    return expected.height, f"row {first} of {found.height}: {wrong.row(first, named=True)}"


def listed(query: str, written: pl.DataFrame) -> pl.DataFrame:
    """Written records of a peer that has rows where the others have lists, as those of the others."""
    if query not in ROWS:
        return written
    written = written.unique("key", keep="last", maintain_order=True) if query == "q19" else written
    rows = written.select(pl.col("value").str.json_decode(pl.Struct(ROWS[query]))).unnest("value")
    if query == "q5":
        lists = rows.group_by("start", "bids").agg(auctions=pl.col("auction").sort())
    elif query == "q7":
        lists = rows.group_by("start").agg(bids=pl.struct("auction", "price", "bidder", "dateTime", "extra"))
    else:
        lists = rows.sort("place").group_by("auction").agg(bids=pl.struct(BID))
    key = pl.col("auction" if query == "q19" else "start").cast(pl.String).alias("key")
    return lists.select(
        key, pl.struct("bids" if query == "q19" else pl.exclude("key")).struct.json_encode().alias("value")
    )


def _read(query: str, expected: pl.DataFrame, written: pl.DataFrame) -> pl.DataFrame:
    """The written records with the columns of the answer."""
    schema = dict(expected.schema)
    if query == "q7":
        schema["bids"] = pl.List(schema["bids"])
    if query == "q12":
        bids = written.select(
            bidder=pl.col("key").str.split("@").list.first().cast(pl.Int64),
            bids=pl.col("value").str.json_path_match("$.bids").cast(pl.Int64),
        )
        return bids.group_by("bidder").agg(pl.col("bids").sum())
    if query in KEYED:
        del schema["key"]
    values = written["value"].str.json_decode(pl.Struct(schema)).struct.unnest()
    if query in KEYED:
        values = values.with_columns(key=written["key"])
    return values.explode("bids") if query == "q7" else values


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    by = [
        pl.col(n).struct.json_encode()
        if d == pl.Struct
        else pl.col(n).cast(pl.List(pl.String)).list.join(",")
        if d == pl.List(pl.Int64)
        else pl.col(n).list.first().struct.json_encode()
        if isinstance(d, pl.List)
        else pl.col(n)
        for n, d in frame.schema.items()
    ]
    return frame.sort(by)
