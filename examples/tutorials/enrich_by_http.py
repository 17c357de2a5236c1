"""Ask a service about each record: many requests at once, with retries, and dead letters for those that fail.

`map_values_async` awaits a coroutine function for each record; 50 requests of a task are under way at once, and
results keep their order. A batch that is processed again after a crash asks again: the service should only be read,
or know a repeated request by its id. In production `country_of` would be a call of an HTTP client, such as `(await
client.get(url)).json()`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Retry, StreamsBuilder, TopologyTestDriver

config = {
    "application.id": "enrich-by-http",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "processing.exception.handler": "continue",
    "errors.dead.letter.queue.topic.name": "orders-not-enriched",
}
COUNTRIES = {"10.0.0.1": "de", "10.0.0.2": "fr", "10.0.0.3": "it"}
asked: list[str] = []


async def country_of(address: str) -> str:
    """Stand for the service: it is busy at the first request for 10.0.0.2, and does not know every address."""
    await asyncio.sleep(0)
    asked.append(address)
    if address == "10.0.0.2" and asked.count(address) == 1:
        raise ConnectionError("503: busy")
    return COUNTRIES[address]


async def with_country(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "country": await country_of(order["ip"])}


builder = StreamsBuilder()
(
    builder.stream("orders")
    .map_values_async(
        with_country, limit=50, timeout="2 seconds", retry=Retry(3, backoff="1 ms", on=(ConnectionError, TimeoutError))
    )
    .to("orders-with-country")
)
topology = builder.build()

ORDERS = [
    ("1", {"item": "lamp", "ip": "10.0.0.1"}),
    ("2", {"item": "book", "ip": "10.0.0.2"}),  # busy, then answered
    ("3", {"item": "pen", "ip": "10.9.9.9"}),  # unknown: no retry
    ("4", {"item": "cup", "ip": "10.0.0.3"}),
    ("5", {"item": "bag"}),  # wrong: without an address
    ("6", {"item": "lamp", "ip": "10.0.0.1"}),
    ("7", {"item": "desk", "ip": "10.0.0.3"}),
    ("8", {"item": "sofa", "ip": "10.0.0.2"}),
    ("9", {"item": "rug", "ip": "10.0.0.1"}),
    ("10", {"item": "vase", "ip": "10.0.0.3"}),
]


def test_orders_get_their_country_or_go_to_the_dead_letters() -> None:
    asked.clear()
    with TopologyTestDriver(topology, config, batch_size=100) as driver:
        driver.input_topic("orders").pipe_many(ORDERS)
        driver.flush()
        enriched = driver.output_topic("orders-with-country").read_key_values_to_list()
        assert [(key, order["country"]) for key, order in enriched] == [
            ("1", "de"),
            ("2", "fr"),
            ("4", "it"),
            ("6", "de"),
            ("7", "it"),
            ("8", "fr"),
            ("9", "de"),
            ("10", "it"),
        ]
        dead = driver.output_topic("orders-not-enriched").read_records_to_list()
        assert [record.key for record in dead] == ["3", "5"]
        assert asked.count("10.9.9.9") == 1


if __name__ == "__main__":
    test_orders_get_their_country_or_go_to_the_dead_letters()
