"""Orders with their buyers and items, counted by the hour: the purchase analysis of many Kafka Streams courses.

topic orders                       order id -> {"user", "item", "quantity", "time"}
  under the user's name, joined with the table of      user -> {"address", "gender", "age"}
  under the item's name, joined with the table of      item -> {"address", "category", "price"}
  -> only items from the buyer's own city
  -> by gender: turnover           topic turnover-by-gender
  -> by category and hour: count   topic orders-by-hour
"""

from __future__ import annotations

from typing import Any

from penstock import Consumed, Grouped, Materialized, Produced, StreamsBuilder, TimeWindows

config = {"application.id": "order-analysis", "default.key.serde": "string", "default.value.serde": "json"}
HOUR = TimeWindows.of("1 hour", grace="10 minutes")

builder = StreamsBuilder()
orders = builder.stream("orders", Consumed(timestamp_extractor=lambda record, _: int(record.value["time"])))
users = builder.table("users")
items = builder.table("items")


def with_user(order: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    return {**order, "user_address": user["address"], "gender": user["gender"]}


def with_item(order: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    amount = order["quantity"] * item["price"]
    return {**order, "item_address": item["address"], "category": item["category"], "amount": amount}


local = (
    orders.select_key(lambda order: order["user"])
    .join(users, with_user)
    .select_key(lambda order: order["item"])
    .join(items, with_item)
    .filter(lambda order: order["user_address"] == order["item_address"])
)
(
    local.group_by(lambda order: order["gender"])
    .aggregate(
        lambda: 0.0,
        lambda _, order, total: total + order["amount"],
        Materialized("turnover", key_serde="string", value_serde="double"),
    )
    .to_stream()
    .to("turnover-by-gender", Produced(value_serde="double"))
)
(
    local.group_by(lambda order: order["category"], Grouped("orders-by-category"))
    .windowed_by(HOUR)
    .count(Materialized("orders-by-hour"))
    .to_stream(lambda category, _: f"{category.key}@{category.window.start}")
    .to("orders-by-hour", Produced(key_serde="string", value_serde="long"))
)
topology = builder.build()

MINUTE = 60_000
RECORDS = [
    ("users", "alice", {"address": "Rome", "gender": "female", "age": 31}, 0),
    ("users", "bob", {"address": "Oslo", "gender": "male", "age": 40}, 0),
    ("items", "lamp", {"address": "Rome", "category": "home", "price": 20.0}, 0),
    ("items", "book", {"address": "Oslo", "category": "media", "price": 8.5}, 0),
    ("orders", "1", {"user": "alice", "item": "lamp", "quantity": 2, "time": 5 * MINUTE}),
    ("orders", "2", {"user": "bob", "item": "book", "quantity": 1, "time": 6 * MINUTE}),
    ("orders", "3", {"user": "bob", "item": "lamp", "quantity": 1, "time": 7 * MINUTE}),
    ("orders", "4", {"user": "alice", "item": "lamp", "quantity": 1, "time": 65 * MINUTE}),
    ("orders", "5", {"user": "nobody", "item": "lamp", "quantity": 1, "time": 66 * MINUTE}),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
