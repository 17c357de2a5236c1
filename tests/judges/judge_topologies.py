"""The applications that are judged: those of Apache Kafka's system tests, written anew, and two of our own.

The names of topics, stores and applications are those that Kafka's verifiers read.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import (
    BufferConfig,
    Consumed,
    Grouped,
    KTable,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.serde import BaseSerde

__all__ = ["APPLICATIONS", "BUCKETS", "EMPTY_CHAIN", "JudgedApplication", "bucket_of", "next_link"]

INTEGER = Serdes.integer()
LONG = Serdes.long()
TEXT = Serdes.string()
END = 2**31 - 1  # SmokeTestUtil.END: no data
LEAST, MOST = -(2**31), 2**31 - 1


def smoke() -> Topology:
    """The topology of ``SmokeTestClient``."""
    builder = StreamsBuilder()
    source = builder.stream("data", Consumed(key_serde=TEXT, value_serde=INTEGER))
    source.filter_not(is_flush).to("echo", Produced(key_serde=TEXT, value_serde=INTEGER))
    data = source.filter(lambda _, value: value is None or value != END)
    grouped = data.group_by_key(Grouped(key_serde=TEXT, value_serde=INTEGER))

    of_a_day = TimeWindows.of("1 day", grace="1 minute")
    smallest = grouped.windowed_by(of_a_day).aggregate(
        lambda: MOST, lambda _, value, least: min(value, least),
        Materialized("uwin-min", value_serde=INTEGER, retention="25 hours"),
    )  # fmt: skip
    until_closed = Suppressed.until_window_closes(BufferConfig.unbounded())
    windows_to(smallest, "min-raw")
    windows_to(smallest.suppress(until_closed), "min-suppressed")
    unwindowed_to(smallest, "min", INTEGER)

    sliding = TimeWindows.of("2 seconds", grace="30 seconds").advance_by("1 second")
    sums_of_seconds = grouped.windowed_by(sliding).reduce(lambda one, other: one + other)
    windows_to(sums_of_seconds, "sws-raw")
    windows_to(sums_of_seconds.suppress(until_closed), "sws-suppressed")

    of_two_days = grouped.windowed_by(TimeWindows.of("2 days"))
    largest = of_two_days.aggregate(
        lambda: LEAST, lambda _, value, most: max(value, most), Materialized("uwin-max", value_serde=INTEGER)
    )
    unwindowed_to(largest, "max", INTEGER)
    total = of_two_days.aggregate(
        lambda: 0, lambda _, value, total: total + value, Materialized("win-sum", value_serde=LONG)
    )
    unwindowed_to(total, "sum", LONG)
    unwindowed_to(of_two_days.count(Materialized("uwin-cnt")), "cnt", LONG)

    integers, longs = Consumed(key_serde=TEXT, value_serde=INTEGER), Consumed(key_serde=TEXT, value_serde=LONG)
    minima = builder.table("min", integers, Materialized("minStoreName"))
    maxima = builder.table("max", integers, Materialized("maxStoreName"))
    sums = builder.table("sum", longs)
    counts = builder.table("cnt", longs, Materialized("cntStoreName"))
    differences = maxima.join(minima, lambda most, least: most - least).to_stream().filter_not(is_flush)
    differences.to("dif", Produced(key_serde=TEXT, value_serde=INTEGER))
    averages = sums.join(counts, lambda total, count: total / count).to_stream().filter_not(is_flush)
    averages.to("avg", Produced(key_serde=TEXT, value_serde=Serdes.double()))
    (
        counts.group_by(lambda _, count: (str(count), 1), Grouped(key_serde=TEXT, value_serde=LONG))
        .aggregate(
            lambda: 0, lambda _, value, total: total + value, lambda _, value, total: total - value,
            Materialized("cntByCnt", key_serde=TEXT, value_serde=LONG, store_type="in_memory"),
        )
        .to_stream()
        .to("tagg", Produced(key_serde=TEXT, value_serde=LONG))
    )  # fmt: skip
    return builder.build()


def is_flush(key: str, _: object) -> bool:
    """Whether it is one of the records that only close windows."""
    return key == "flush"


def windows_to(table: KTable, topic: str) -> None:
    """Write a windowed table with the text of its windows as keys, as Java's ``Windowed.toString()`` has it."""
    (
        table.to_stream()
        .filter_not(lambda windowed, _: windowed.key == "flush")
        .map(lambda windowed, value: (f"[{windowed.key}@{windowed.window.start}/{windowed.window.end}]", value))
        .to(topic, Produced(key_serde=TEXT, value_serde=INTEGER))
    )


def unwindowed_to(table: KTable, topic: str, serde: object) -> None:
    keys = table.to_stream(lambda windowed, _: windowed.key)
    keys.filter_not(is_flush).to(topic, Produced(key_serde=TEXT, value_serde=serde))


def eos() -> Topology:
    """The topology of ``EosTestClient`` with repartitioning."""
    builder = StreamsBuilder()
    integers = Produced(key_serde=TEXT, value_serde=INTEGER)
    data = builder.stream("data", Consumed(key_serde=TEXT, value_serde=INTEGER))
    data.to("echo", integers)
    grouped = data.group_by_key(Grouped(key_serde=TEXT, value_serde=INTEGER))
    least = grouped.aggregate(
        lambda: MOST, lambda _, value, least: min(value, least), Materialized(value_serde=INTEGER)
    )
    least.to_stream().to("min", integers)
    total = grouped.aggregate(lambda: 0, lambda _, value, total: total + value, Materialized(value_serde=LONG))
    total.to_stream().to("sum", Produced(key_serde=TEXT, value_serde=LONG))

    data.to("repartition", integers)
    again = builder.stream("repartition", Consumed(key_serde=TEXT, value_serde=INTEGER))
    regrouped = again.group_by_key(Grouped(key_serde=TEXT, value_serde=INTEGER))
    most = regrouped.aggregate(
        lambda: LEAST, lambda _, value, most: max(value, most), Materialized(value_serde=INTEGER)
    )
    most.to_stream().to("max", integers)
    regrouped.count().to_stream().to("cnt", Produced(key_serde=TEXT, value_serde=LONG))
    return builder.build()


class Article(NamedTuple):
    key: int
    timestamp: int
    text: str


class Comment(NamedTuple):
    key: int
    timestamp: int
    text: str
    article: int


class AugmentedArticle(NamedTuple):
    article: Article
    comments: int


class AugmentedComment(NamedTuple):
    comment: Comment
    prefix: str


class ArticleSerde(BaseSerde):
    """Key, timestamp, and the text behind its length."""

    def serialize(self, value: Article | None) -> bytes | None:
        return None if value is None else struct.pack(">iq", value.key, value.timestamp) + text_bytes(value.text)

    def deserialize(self, data: bytes | None) -> Article | None:
        return None if data is None else Article(*struct.unpack_from(">iq", data), text_at(data, 12)[0])


class CommentSerde(BaseSerde):
    """The same, and the article's key."""

    def serialize(self, value: Comment | None) -> bytes | None:
        if value is None:
            return None
        head = struct.pack(">iq", value.key, value.timestamp)
        return head + text_bytes(value.text) + struct.pack(">i", value.article)

    def deserialize(self, data: bytes | None) -> Comment | None:
        if data is None:
            return None
        key, timestamp = struct.unpack_from(">iq", data)
        text, end = text_at(data, 12)
        return Comment(key, timestamp, text, *struct.unpack_from(">i", data, end))


class AugmentedArticleSerde(BaseSerde):
    """An article and the number of its comments."""

    def serialize(self, value: AugmentedArticle | None) -> bytes | None:
        if value is None:
            return None
        return (ArticleSerde().serialize(value.article) or b"") + struct.pack(">q", value.comments)

    def deserialize(self, data: bytes | None) -> AugmentedArticle | None:
        if data is None:
            return None
        article = ArticleSerde().deserialize(data[:-8])
        assert article is not None
        return AugmentedArticle(article, *struct.unpack(">q", data[-8:]))


class AugmentedCommentSerde(BaseSerde):
    """A comment and the beginning of its article."""

    def serialize(self, value: AugmentedComment | None) -> bytes | None:
        return None if value is None else (CommentSerde().serialize(value.comment) or b"") + text_bytes(value.prefix)

    def deserialize(self, data: bytes | None) -> AugmentedComment | None:
        if data is None:
            return None
        end = text_at(data, 12)[1] + 4
        comment = CommentSerde().deserialize(data[:end])
        assert comment is not None
        return AugmentedComment(comment, text_at(data, end)[0])


def text_bytes(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">i", len(encoded)) + encoded


def text_at(data: bytes, place: int) -> tuple[str, int]:
    """Return the text at a place, and where it ends."""
    (length,) = struct.unpack_from(">i", data, place)
    end = place + 4 + length
    return data[place + 4 : end].decode(), end


def relational() -> Topology:
    """The topology of ``RelationalSmokeTest``: articles with the number of their comments, comments with their article."""
    builder = StreamsBuilder()
    articles = builder.table("in-article", Consumed(key_serde=INTEGER, value_serde=ArticleSerde()))
    comments = builder.table("in-comment", Consumed(key_serde=INTEGER, value_serde=CommentSerde()))
    by_article = Grouped(key_serde=INTEGER, value_serde=Serdes.short())
    counts = comments.group_by(lambda _, comment: (comment.article, 1), by_article).count()
    counted = articles.left_join(
        counts, lambda article, count: AugmentedArticle(article, count or 0),
        Materialized(value_serde=AugmentedArticleSerde()),
    )  # fmt: skip
    counted.to_stream().to("out-augmented-article", Produced(key_serde=INTEGER, value_serde=AugmentedArticleSerde()))
    joined = comments.join(
        articles, lambda comment, article: AugmentedComment(comment, article.text[:10]),
        Materialized(value_serde=AugmentedCommentSerde()), foreign_key=lambda comment: comment.article,
    )  # fmt: skip
    joined.to_stream().to("out-augmented-comment", Produced(key_serde=INTEGER, value_serde=AugmentedCommentSerde()))
    return builder.build()


BUCKETS = 5
EMPTY_CHAIN = "0|"


def bucket_of(key: str) -> str:
    """The bucket that a key's appends are collected in, behind a repartition topic."""
    return f"bucket{int(key[1:]) % BUCKETS}"


def next_link(chain: str, value: str) -> str:
    """The aggregate that follows another: how many appends it holds, a digest of all of them, and the newest."""
    count, before = chain.split("|")[:2]
    digest = hashlib.blake2b(f"{before}|{value}".encode(), digest_size=8).hexdigest()
    return f"{int(count) + 1}|{digest}|{value}"


def history() -> Topology:
    """Appends are echoed, chained by key, and chained by bucket through a repartition topic."""
    builder = StreamsBuilder()
    texts = Produced(key_serde=TEXT, value_serde=TEXT)
    appends = builder.stream("appends", Consumed(key_serde=TEXT, value_serde=TEXT))
    appends.to("echo", texts)
    stored = {"key_serde": TEXT, "value_serde": TEXT}
    chains = appends.group_by_key(Grouped(**stored)).aggregate(
        lambda: EMPTY_CHAIN, lambda _, value, chain: next_link(chain, value), Materialized("chains", **stored)
    )
    chains.to_stream().to("chains", texts)
    buckets = appends.group_by(lambda key, _: bucket_of(key), Grouped("by-bucket", **stored)).aggregate(
        lambda: EMPTY_CHAIN, lambda _, value, chain: next_link(chain, value), Materialized("buckets", **stored)
    )
    buckets.to_stream().to("buckets", texts)
    return builder.build()


def clients() -> Topology:
    """Every request is answered under its key and with its headers; those with a key are counted."""
    builder = StreamsBuilder()
    requests = builder.stream("requests", Consumed(key_serde=TEXT, value_serde=TEXT))
    answers = requests.map_values(lambda value: None if value is None else f"answer to {value}")
    answers.to("answers", Produced(key_serde=TEXT, value_serde=TEXT))
    counts = requests.filter(lambda key, value: key is not None and value is not None)
    counts.group_by_key(Grouped(key_serde=TEXT, value_serde=TEXT)).count(Materialized("counts")).to_stream().to(
        "counts", Produced(key_serde=TEXT, value_serde=LONG)
    )
    return builder.build()


@dataclass(frozen=True, slots=True)
class JudgedApplication:
    """An application, and what it reads and writes.

    Attributes:
        name: The ``application.id``.
        topology: Makes its topology.
        inputs: The topics that a judge writes to.
        outputs: The other topics that it needs, which others may read too.
        settings: What it needs beside the settings of all.
    """

    name: str
    topology: Callable[[], Topology]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, object] = field(default_factory=dict)


APPLICATIONS = {
    "smoke": JudgedApplication(
        "SmokeTest",
        smoke,
        ("data",),
        ("fk", "echo", "min", "min-raw", "min-suppressed", "max", "dif", "sum", "sws-raw", "sws-suppressed", "cnt", "avg",
         "tagg"),
    ),
    "eos": JudgedApplication("EosTest", eos, ("data",), ("echo", "min", "sum", "repartition", "max", "cnt")),
    "relational": JudgedApplication(
        "relational", relational, ("in-article", "in-comment"), ("out-augmented-article", "out-augmented-comment")
    ),
    "history": JudgedApplication("history", history, ("appends",), ("echo", "chains", "buckets")),
    "clients": JudgedApplication("clients", clients, ("requests",), ("answers", "counts")),
}  # fmt: skip
