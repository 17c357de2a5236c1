"""The most read articles of each industry and hour: Confluent's TopArticlesLambdaExample.

    topic PageViews                    {"user", "page", "industry", "flags"}
      -> articles only, counted by page and industry in windows of an hour
      -> the counts regrouped by industry and window: a list, the largest first
    topic TopNewsPerIndustry           industry and window -> pages, one a line

Java keeps a PriorityQueue; a sorted list of (count, page) does the same. When a count changes, the table's old entry
is removed and the new one added, so no page is there twice.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows, Windowed

config = {"application.id": "top-articles", "default.key.serde": "string", "default.value.serde": "json"}
TOP = 100
HOUR = TimeWindows.of("1 hour")
windowed = Serdes.time_windowed("string", "1 hour")

Entry = list[Any]  # of -count and page


def by_industry(article: Windowed[Any], count: int) -> tuple[Windowed[str], Entry]:
    return Windowed(article.key["industry"], article.window), [-count, article.key["page"]]


def add(_: Windowed[str], entry: Entry, ranking: list[Entry]) -> list[Entry]:
    ranking = list(ranking)
    insort(ranking, entry)
    return ranking


def remove(_: Windowed[str], entry: Entry, ranking: list[Entry]) -> list[Entry]:
    return [other for other in ranking if other != entry]


builder = StreamsBuilder()
view_counts = (
    builder.stream("PageViews", Consumed(key_serde="bytes"))
    .filter(lambda view: "ARTICLE" in (view["flags"] or ""))
    .map(lambda _, view: ({"page": view["page"], "industry": view["industry"]}, view))
    .group_by_key(Grouped(key_serde="json"))
    .windowed_by(HOUR)
    .count()
)
(
    view_counts.group_by(by_industry, Grouped(key_serde=windowed, value_serde="json"))
    .aggregate(list, add, remove, Materialized("ranking", key_serde=windowed, value_serde="json"))
    .map_values(lambda ranking: "\n".join(page for _, page in ranking[:TOP]))
    .to_stream()
    .to("TopNewsPerIndustry", Produced(key_serde=windowed, value_serde="string"))
)
topology = builder.build()


def view(page: str, industry: str, flags: str = "ARTICLE") -> dict[str, str]:
    return {"user": "someone", "page": page, "industry": industry, "flags": flags}


RECORDS = [
    ("PageViews", None, view("news-1", "eng"), 1000),
    ("PageViews", None, view("news-2", "eng"), 2000),
    ("PageViews", None, view("index", "eng", flags=""), 3000),
    ("PageViews", None, view("news-2", "eng"), 4000),
    ("PageViews", None, view("news-9", "law"), 5000),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
