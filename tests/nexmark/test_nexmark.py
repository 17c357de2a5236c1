"""Nexmark's queries through the test driver, each compared with an answer that Polars computes from the events."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from penstock import Topology, TopologyTestDriver

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from nexmark import answers, queries, statements
from nexmark.events import FIRST_ID, Events, records

MIDNIGHT = Events(20_000, rate=100)  # 200 seconds, two days
MORNING = Events(20_000, rate=100, base_ms=1_790_812_700_000 + 8 * 3_600_000)  # from 7:58 on
BATCHES = 1_900  # several, of which none ends with a block of events
TOPICS = {name: name for name in ("person", "auction", "bid", "side", "out")}


@cache
def frames_of(events: Events) -> dict[str, pl.DataFrame]:
    frames = events.frames()
    auctions = frames["auction"]["id"].max() + 100
    return frames | {
        "side": frames["side"].filter(pl.col("key").is_between(FIRST_ID, auctions))
    }  # the others match nothing


@cache
def records_of(events: Events, topic: str) -> pl.DataFrame:
    frame = frames_of(events)[topic]
    return records(topic, frame).with_columns(topic=pl.lit(topic), number=frame["number"])


def written(query: str, events: Events, topology: Topology | None = None) -> pl.DataFrame:
    """What the query, or a topology of it, makes of the events in their order; keys that are no text are shown."""
    topology = topology or queries.topology(query, TOPICS, events.longest_auction_ms)
    in_order = pl.concat(records_of(events, topic) for topic in queries.TOPICS[query]).sort("number")
    rows: list[tuple[str | None, str | None]] = []
    with TopologyTestDriver(topology, batch_size=BATCHES) as driver:
        for key, value, timestamp, topic, _ in in_order.iter_rows():
            driver.pipe_raw(topic, key.encode(), value.encode(), timestamp)
        driver.flush()
        while (record := driver.read_raw("out")) is not None:
            key, value = (None if part is None else part.decode(errors="backslashreplace") for part in record[3:5])
            rows.append((key, value))
    return pl.DataFrame(rows, schema={"key": pl.String, "value": pl.String}, orient="row")


@pytest.mark.parametrize("query", queries.QUERIES)
def test_the_answer_of_each_query_is_that_of_polars(query):
    rows, difference = answers.compared(query, answers.ANSWERS[query](frames_of(MIDNIGHT)), written(query, MIDNIGHT))
    assert not difference
    assert rows >= 2


@pytest.mark.parametrize("query", statements.QUERIES)
def test_the_answer_of_each_query_in_sql_is_the_same(query):
    found = written(query, MIDNIGHT, statements.topology(query, TOPICS, MIDNIGHT.longest_auction_ms))
    if query in queries.TABLES:
        found = found.unique("key", keep="last", maintain_order=True)
    part = {
        name: pl.col("value").str.json_path_match(f"$.{name}") for name in ("bidder", "start", "end", "auction", "day")
    }
    if query == "q9":  # a list of one
        found = found.with_columns(value=pl.col("value").str.json_path_match("$.best[0]"))
    if query == "q11":  # there the key is that of a window, and the value has its parts
        found = found.with_columns(key=pl.format("{}@{}-{}", part["bidder"], part["start"], part["end"]))
    if query == "q17":
        found = found.with_columns(key=pl.format("{}@{}", part["auction"], part["day"]))
    assert not answers.compared(query, answers.ANSWERS[query](frames_of(MIDNIGHT)), found)[1]


def test_the_times_of_the_day_are_those_of_polars():
    expected = answers.q14(frames_of(MORNING))
    assert set(expected["time"]) == {"other", "day"}
    assert set(answers.q14(frames_of(MIDNIGHT))["time"]) == {"night"}
    assert answers.compared("q14", expected, written("q14", MORNING))[1] == ""


def test_events_are_those_of_their_seed_in_the_proportions_of_the_benchmark():
    frames = frames_of(MIDNIGHT)
    assert [frames[topic].height for topic in ("person", "auction", "bid")] == [400, 1_200, 18_400]
    assert frames["bid"].equals(Events(20_000, rate=100).frames()["bid"])
    assert not frames["bid"].equals(Events(20_000, seed=2, rate=100).frames()["bid"])
    lasts = frames["auction"]["expires"] - frames["auction"]["dateTime"]
    assert lasts.min() >= 1
    assert lasts.max() <= MIDNIGHT.longest_auction_ms


def test_a_wrong_answer_is_noticed():
    right = written("q2", MIDNIGHT)
    expected = answers.q2(frames_of(MIDNIGHT))
    assert answers.compared("q2", expected, right[1:])[1] == f"{right.height - 1} rows, {right.height} expected"
    changed = right.with_columns(pl.col("value").str.replace('"price":', '"price":1'))
    assert answers.compared("q2", expected, changed)[1].startswith("row ")


def test_rows_of_a_peer_that_writes_no_lists_are_compared_as_lists():
    frames = frames_of(MIDNIGHT)
    best = answers.q19(frames).with_columns(place=pl.int_ranges(1, pl.col("bids").list.len() + 1))
    rows_of = {
        "q5": answers.q5(frames).explode("auctions").rename({"auctions": "auction"}),
        "q7": answers.q7(frames).unnest("bids"),
        "q19": best.explode("bids", "place").unnest("bids"),
    }
    for query, rows in rows_of.items():
        key = pl.format("{}|{}", "auction", "place") if query == "q19" else pl.col("start").cast(pl.String)
        one_by_one = rows.select(key.alias("key"), pl.struct(pl.all()).struct.json_encode().alias("value"))
        expected = answers.ANSWERS[query](frames)
        assert answers.compared(query, expected, answers.listed(query, one_by_one))[1] == ""
        assert answers.compared(query, expected, answers.listed(query, one_by_one[1:]))[1]
