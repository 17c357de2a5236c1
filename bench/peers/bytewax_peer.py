"""Bytewax: python -m bytewax.run bytewax_peer; settings.py says what the environment holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, count_window

from settings import ENV, OUT, TAIL, WORKLOAD, begin, group_of, mark, parse, shown

BROKERS = [ENV["BOOTSTRAP"]]
Waiting = tuple[str | None, list[str]]


def source(name: str, topic: str) -> Any:
    return kop.input(name, flow, brokers=BROKERS, topics=[ENV[topic]], tail=TAIL).oks


def hit_at(message: Any) -> tuple[dict[str, Any], int] | None:
    hit = parse(message.value.decode())
    return None if hit is None else (hit, message.timestamp[1])


def keyed(message: Any) -> tuple[str, Any]:
    begin()
    return message.key.decode(), json.loads(message.value)


def running_sum(total: int | None, amount: int) -> tuple[int, int]:
    total = (total or 0) + amount
    return total, total


def with_city(state: Waiting | None, event: tuple[str, Any]) -> tuple[Waiting, list[str]]:
    """The join of orders with their user; sources are not read by time, so orders wait for a user who comes later."""
    city, waiting = state or (None, [])
    kind, value = event
    if kind == "user":
        city = value["city"]
        return (city, []), [city for _ in waiting]
    if city is None:
        return (None, [*waiting, value["item"]]), []
    return (city, waiting), [city]


def as_record(row: tuple[str, int]) -> KafkaSinkMessage:
    return KafkaSinkMessage(row[0].encode(), str(row[1]).encode())


def errors() -> Any:
    found = op.filter_map("parse", source("logs", "TOPIC_LOGS"), hit_at)
    failed = op.filter("errors", found, lambda hit: hit[0]["status"] >= 400)
    return op.map(
        "record", failed, lambda hit: KafkaSinkMessage(hit[0]["ip"].encode(), json.dumps(shown(hit[0])).encode())
    )


def window_counts() -> Any:
    found = op.filter_map("parse", source("logs", "TOPIC_LOGS"), hit_at)
    hits = op.map("group", found, lambda hit: (group_of(hit[0]), hit[1]))
    clock = EventClock(
        ts_getter=lambda hit: datetime.fromtimestamp(hit[1] / 1000, UTC),
        wait_for_system_duration=timedelta(minutes=15),
        to_system_utc=lambda _: None,  # windows close by the records' time alone, as elsewhere
    )
    windower = TumblingWindower(length=timedelta(minutes=1), align_to=datetime(1970, 1, 1, tzinfo=UTC))
    counts = count_window("count", hits, clock, windower, lambda hit: hit[0])
    return op.map("record", counts.down, lambda row: as_record((f"{row[0]}@{row[1][0] * 60_000}", row[1][1])))


def sums() -> Any:
    amounts = op.map("keyed", source("sums", "TOPIC_SUMS"), keyed)
    return op.map("record", op.stateful_map("sum", amounts, running_sum), as_record)


def cities() -> Any:
    users = op.map("user", source("users", "TOPIC_USERS"), lambda m: (m.key.decode(), ("user", json.loads(m.value))))
    orders = op.map_value("order", op.map("keyed", source("orders", "TOPIC_ORDERS"), keyed), lambda v: ("order", v))
    joined = op.stateful_flat_map("join", op.merge("both", users, orders), with_city)
    by_city = op.map("city", joined, lambda row: (row[1], 1))
    return op.map("record", op.stateful_map("count", by_city, running_sum), as_record)


flow = Dataflow("peer")
result = {"w1": errors, "w2a": window_counts, "w2b": window_counts, "w3": sums, "w4": cities}[WORKLOAD]()
kop.output("out", result, brokers=BROKERS, topic=OUT)
mark("RUNNING")
