"""What mypy and pyright infer along chains of verbs: read by tests/unit/api/test_types.py, never run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, assert_type
from uuid import UUID

import polars as pl

from penstock import (
    Consumed,
    FixedKeyProcessor,
    GlobalKTable,
    JoinWindows,
    KafkaStreams,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    ValueTransformerWithKey,
    agg,
)
from penstock.api.groups.grouped import KGroupedStream
from penstock.api.stream import BranchedKStream
from penstock.query import QueryableStoreTypes, StoreQueryParameters
from penstock.query.stores import ReadOnlyKeyValueStore, ReadOnlyWindowStore
from penstock.serde import Serde, Windowed

builder = StreamsBuilder()

# Serdes carry their type.
assert_type(Serdes.string(), Serde[str])
assert_type(Serdes.double(), Serde[float])
assert_type(Serdes.uuid(), Serde[UUID])
assert_type(Serdes.list(Serdes.long()), Serde[list[int]])
assert_type(Serdes.time_windowed(Serdes.string(), 60_000), Serde[Windowed[str]])
assert_type(Serdes.session_windowed(Serdes.string()), Serde[Windowed[str]])
assert_type(Serdes.of("string"), Serde[str])
assert_type(Serdes.of("long"), Serde[int])
assert_type(Serdes.of("double"), Serde[float])
assert_type(Serdes.of("json"), Serde[Any])

assert_type(Serdes.list("long"), Serde[list[int]])
assert_type(Serdes.time_windowed("string", 60_000), Serde[Windowed[str]])
assert_type(Serdes.session_windowed("uuid"), Serde[Windowed[UUID]])

# So do the streams that are read with them.
clicks = builder.stream("clicks", Consumed(key_serde=Serdes.string(), value_serde=Serdes.long()))
assert_type(clicks, KStream[str, int])
assert_type(builder.stream("pages", Consumed(key_serde=str, value_serde=bytes)), KStream[str, bytes])
assert_type(builder.stream("half", Consumed(key_serde=Serdes.string(), value_serde="json")), KStream[str, Any])
assert_type(builder.stream("untyped"), KStream[Any, Any])


@dataclass
class Order:
    amount: float


@dataclass
class Invoice:
    total: float


def invoice(order: Order) -> Invoice:
    return Invoice(order.amount)


orders = builder.stream("orders", Consumed(key_serde="string", value_serde=Order))
assert_type(orders, KStream[str, Order])
assert_type(orders.map_values(invoice), KStream[str, Invoice])
assert_type(orders.filter(lambda order: order.amount > 1), KStream[str, Order])
assert_type(builder.table("orders", Consumed(key_serde=str, value_serde=list[Order])), KTable[str, list[Order]])
assert_type(builder.stream("named", Consumed(key_serde="string", value_serde="long")), KStream[str, int])
assert_type(builder.stream("named", Consumed(key_serde="string", value_serde="integer")), KStream[str, int])
assert_type(builder.stream("named", Consumed(key_serde=bytes, value_serde="double")), KStream[bytes, float])
assert_type(builder.stream("named", Consumed(key_serde=UUID, value_serde="boolean")), KStream[UUID, bool])
assert_type(builder.stream("named", Consumed(key_serde="long", value_serde="bytes")), KStream[int, bytes])
assert_type(builder.stream("named", Consumed(key_serde="string", value_serde=Serdes.uuid())), KStream[str, UUID])
assert_type(builder.stream("named", Consumed(key_serde=bytes, value_serde="string")), KStream[bytes, str])
assert_type(builder.stream("named", Consumed(key_serde=str, value_serde="json")), KStream[str, Any])
assert_type(builder.stream("named", Consumed("node", value_serde="float", offset_reset="latest")), KStream[Any, float])
assert_type(builder.stream("named", Consumed(key_serde="string")), KStream[str, Any])
assert_type(builder.stream("named", Consumed("other", timestamp_extractor=lambda record: 5)), KStream[Any, Any])
assert_type(builder.table("named", Consumed(key_serde="string", value_serde="double")), KTable[str, float])
assert_type(builder.global_table("named", Consumed(key_serde="string", value_serde="long")), GlobalKTable[str, int])
assert_type(builder.table("users", Consumed(key_serde=str, value_serde=float)), KTable[str, float])
assert_type(builder.global_table("items", Consumed(key_serde=str, value_serde=int)), GlobalKTable[str, int])

# Verbs hand the types on.
assert_type(clicks.filter(lambda value: value > 1), KStream[str, int])
assert_type(clicks.filter(lambda key, value: key != "" and value > 1), KStream[str, int])
assert_type(clicks.filter_not(lambda value: value > 1), KStream[str, int])
assert_type(clicks.filter(pl.col("value") > 1), KStream[str, int])
assert_type(clicks.map_values(float), KStream[str, float])
assert_type(clicks.map_values(lambda value: value / 2), KStream[str, float])
assert_type(clicks.map_values(lambda key, value: (key, value)), KStream[str, tuple[str, int]])
assert_type(clicks.map_values(pl.col("value") * 2), KStream[str, Any])
assert_type(clicks.flat_map_values(lambda value: [value / 2]), KStream[str, float])
assert_type(clicks.flat_map_values(lambda key, value: [key] * value), KStream[str, str])
assert_type(clicks.select_key(lambda value: value + 1), KStream[int, int])
assert_type(clicks.select_key(lambda key, value: f"{key}{value + 1}"), KStream[str, int])
assert_type(clicks.group_by(lambda value: value + 1), KGroupedStream[int, int])
assert_type(clicks.group_by(lambda key, value: key.upper()), KGroupedStream[str, int])
assert_type(clicks.peek(lambda value: print(value + 1)), KStream[str, int])
assert_type(clicks.peek(print), KStream[str, int])
clicks.foreach(lambda value: print(value + 1))
clicks.foreach(lambda key, value: print(key.upper(), value + 1))
assert_type(clicks.split().branch(lambda value: value > 1), BranchedKStream[str, int])
assert_type(clicks.split().branch(lambda key, value: key != "" and value > 1), BranchedKStream[str, int])


async def halved(value: int) -> float:
    return value / 2


assert_type(clicks.map_values_async(halved), KStream[str, float])
assert_type(clicks.map(lambda key, value: (value, key)), KStream[int, str])
assert_type(clicks.group_by_key(), KGroupedStream[str, int])
assert_type(clicks.to_table(), KTable[str, int])
assert_type(clicks.to_table().to_stream(), KStream[str, int])
assert_type(clicks.to_table().to_stream(lambda key, value: value), KStream[int, int])
counts = clicks.group_by_key().count()
assert_type(counts, KTable[str, int])
assert_type(counts.filter(lambda value: value > 1), KTable[str, int])
assert_type(counts.filter_not(lambda key, value: key != "" and value > 1), KTable[str, int])
assert_type(counts.map_values(lambda value: value / 2), KTable[str, float])
assert_type(counts.map_values(lambda key, value: (key, value)), KTable[str, tuple[str, int]])
assert_type(counts.join(counts, lambda left, right: left / right), KTable[str, float])
assert_type(counts.join(counts, lambda key, left, right: (key, left + right)), KTable[str, tuple[str, int]])
assert_type(counts.join(counts, pl.col("left") + pl.col("right")), KTable[str, Any])
ages = builder.table("ages", Consumed(key_serde=int, value_serde=float))
assert_type(counts.join(ages, lambda n, age: n + age, foreign_key=lambda n: n + 1), KTable[str, float])
assert_type(counts.left_join(ages, lambda n, age: age, foreign_key=lambda key, n: n + 1), KTable[str, float | None])
assert_type(counts.outer_join(counts, lambda left, right: (left, right)), KTable[str, tuple[int | None, int | None]])
assert_type(clicks.group_by_key().count().to_stream(), KStream[str, int])

# Joins of streams have the type of what the joiner returns; a side that may be missing is None there.
ages_of = builder.table("ages-of", Consumed(key_serde=str, value_serde=float))
everywhere = builder.global_table("everywhere", Consumed(key_serde=int, value_serde=float))
near = JoinWindows.of("1 minute")
views = builder.stream("views", Consumed(key_serde=str, value_serde=float))
assert_type(clicks.join(ages_of, lambda n, age: n + age), KStream[str, float])
assert_type(clicks.join(ages_of, lambda key, n, age: (key, n, age)), KStream[str, tuple[str, int, float]])
assert_type(clicks.left_join(ages_of, lambda n, age: age), KStream[str, float | None])
assert_type(clicks.join(everywhere, lambda n, age: (n, age), key=lambda n: n), KStream[str, tuple[int, float]])
assert_type(clicks.left_join(everywhere, lambda n, age: age, key=lambda key, n: n), KStream[str, float | None])
assert_type(clicks.join(views, lambda n, seen: n * seen, near), KStream[str, float])
assert_type(clicks.join(views, lambda key, n, seen: (key, seen), near), KStream[str, tuple[str, float]])
assert_type(clicks.left_join(views, lambda n, seen: (n, seen), near), KStream[str, tuple[int, float | None]])
assert_type(clicks.outer_join(views, lambda n, seen: (n, seen), near), KStream[str, tuple[int | None, float | None]])
assert_type(clicks.join(views, pl.col("left") + pl.col("right"), near), KStream[str, Any])


# Processors and transformers have the types that they forward or return.
class Halves(Processor[str, int, int, float]):
    def process(self, record: Record[str, int]) -> None:
        assert_type(record.with_value("x"), Record[str, str])
        self.context.forward(record.with_key(record.value).with_value(record.value / 2))


class Anything(Processor[str, int]):
    """Forwards what it likes."""


class Scaled(FixedKeyProcessor[str, int, float]):
    def __init__(self, by: float = 1.0) -> None:
        self.by = by

    def init(self, context: ProcessorContext[str, float]) -> None:
        super().init(context)

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value(record.value * self.by))


class Words(ValueTransformerWithKey[str, int, list[str]]):
    """Of a table's rows."""


def halves() -> Halves:
    return Halves()


def scaled() -> FixedKeyProcessor[str, int, float]:
    return Scaled(2.0)


assert_type(clicks.process(Halves), KStream[int, float])
assert_type(clicks.process(halves), KStream[int, float])
assert_type(clicks.process(partial(Halves), name="halves"), KStream[int, float])
assert_type(clicks.process(Anything), KStream[Any, Any])
assert_type(clicks.process_values(Scaled), KStream[str, float])
assert_type(clicks.process_values(lambda: Scaled(3.0)), KStream[str, float])
assert_type(clicks.process_values(scaled), KStream[str, float])
assert_type(clicks.process_values(partial(Scaled, 2.0)), KStream[str, float])
assert_type(counts.transform_values(Words), KTable[str, list[str]])
assert_type(counts.transform_values(partial(Words)), KTable[str, list[str]])


def counted(key: str, value: int, seen: dict[str, int]) -> dict[str, int]:
    return {"n": seen["n"] + value}


def added(key: str, value: int, total: float) -> float:
    return total + value


def larger(key: str, left: float, right: float) -> float:
    return max(left, right)


# Aggregates have the type that they start from.
grouped = clicks.group_by_key()
assert_type(grouped.aggregate(0.0, lambda key, value, total: total + value), KTable[str, float])
assert_type(grouped.aggregate(lambda: {"n": 0}, counted), KTable[str, dict[str, int]])
grouped.aggregate(lambda: {"n": 0}, lambda key, value, seen: {"n": seen["n"] + value}).to_stream().to("counted")
assert_type(grouped.aggregate(agg.sum()), KTable[str, Any])
minutes = grouped.windowed_by(TimeWindows.of("1 minute"))
assert_type(minutes.count(), KTable[Windowed[str], int])
assert_type(minutes.aggregate(lambda: 0.5, added), KTable[Windowed[str], float])
sessions = grouped.windowed_by(SessionWindows.of("1 minute"))
assert_type(sessions.aggregate(lambda: 0.5, added, larger), KTable[Windowed[str], float])


def queried(app: KafkaStreams) -> None:
    """A store by its name alone can be of any kind; with a type, its methods are known."""
    app.store("counts").get("k")
    app.store("by-minute").fetch("k", 0, 10)
    counts = StoreQueryParameters("counts", QueryableStoreTypes.key_value_store())
    assert_type(app.store(counts), ReadOnlyKeyValueStore)
    by_minute = StoreQueryParameters.from_name_and_type("by-minute", QueryableStoreTypes.window_store())
    assert_type(app.store(by_minute.with_partition(1).enable_stale_stores()), ReadOnlyWindowStore)
