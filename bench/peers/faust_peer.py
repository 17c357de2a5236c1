"""Faust: python -m faust -A faust_peer worker; settings.py says what the environment holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import faust

from settings import ENV, EXACTLY_ONCE, OUT, WORKLOAD, begin, group_of, mark, parse, shown

PARTITIONS = 4

app = faust.App(
    ENV["APP_ID"],
    broker="kafka://" + ENV["BOOTSTRAP"],
    store="rocksdb://",
    datadir=ENV["STATE_DIR"],
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    web_enabled=False,
    processing_guarantee="exactly_once" if EXACTLY_ONCE else "at_least_once",
)
out = app.topic(OUT, key_type=str, key_serializer="raw", value_serializer="json")


def keyed(name: str) -> Any:
    return app.topic(name, key_type=str, key_serializer="raw", value_serializer="json")


def between(name: str) -> Any:
    """A topic of the application's own, for records with new keys."""
    return app.topic(
        f"{ENV['APP_ID']}-{name}", key_type=str, key_serializer="raw", value_serializer="json", partitions=PARTITIONS,
        internal=True,
    )  # fmt: skip


def errors() -> None:
    @app.agent(app.topic(ENV["TOPIC_LOGS"], value_type=bytes, value_serializer="raw"))
    async def filtered(stream):
        async for line in stream:
            hit = parse(line.decode())
            if hit is not None and hit["status"] >= 400:
                await out.send(key=hit["ip"], value=shown(hit))


def window_counts() -> None:
    hits = between("hits")
    table = app.Table("counts", default=int, partitions=PARTITIONS)
    counts = table.tumbling(timedelta(minutes=1), expires=timedelta(minutes=15)).relative_to_stream()

    @app.agent(app.topic(ENV["TOPIC_LOGS"], value_type=bytes, value_serializer="raw"))
    async def grouped(stream):
        async for event in stream.events():
            hit = parse(event.value.decode())
            if hit is not None:
                await hits.send(key=group_of(hit), value=1, timestamp=event.message.timestamp)

    @app.agent(hits)
    async def counted(stream):
        async for event in stream.events():
            counts[event.key] += 1
            start = int(event.message.timestamp // 60) * 60_000
            await out.send(key=f"{event.key}@{start}", value=counts[event.key].current())


def sums() -> None:
    totals = app.Table("totals", default=int, partitions=PARTITIONS)

    @app.agent(keyed(ENV["TOPIC_SUMS"]))
    async def summed(stream):
        async for key, amount in stream.items():
            begin()
            totals[key] += amount
            await out.send(key=key, value=totals[key])


def cities() -> None:
    users = app.Table("users", partitions=PARTITIONS)
    counts = app.Table("city_counts", default=int, partitions=PARTITIONS)
    joined = between("cities")

    @app.agent(keyed(ENV["TOPIC_USERS"]))
    async def known(stream):
        async for key, user in stream.items():
            users[key] = user

    @app.agent(keyed(ENV["TOPIC_ORDERS"]))
    async def ordered(stream):
        async for key, order in stream.items():
            begin()
            user = users.get(key)  # topics are not read by time: a user who comes later is missed
            await joined.send(key=user["city"] if user else "missed", value=order["item"])

    @app.agent(joined)
    async def counted(stream):
        async for key, _ in stream.items():  # noqa: PERF102 - a stream, not a dict
            counts[key] += 1
            await out.send(key=key, value=counts[key])


{"w1": errors, "w2a": window_counts, "w2b": window_counts, "w3": sums, "w4": cities}[WORKLOAD]()


@app.on_worker_init.connect
def running(*_: Any, **__: Any) -> None:
    mark("RUNNING")
