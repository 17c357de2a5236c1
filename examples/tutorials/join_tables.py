"""Join two tables with the same key: stock and price of each product.

The result is a table too: it changes whenever either side changes, and a row is deleted (`None`) when one side has
lost it. So readers always see the present state, whatever the order in which both sides come.
"""

from __future__ import annotations

from typing import Any

from penstock import StreamsBuilder, TopologyTestDriver

config = {
    "application.id": "join-tables",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "statestore.cache.max.bytes": 0,  # send every change; with caching the last one of each key and batch
}
builder = StreamsBuilder()
stock, prices = builder.table("stock"), builder.table("prices")
offers = stock.join(prices, lambda pieces, price: {"pieces": pieces, "price": price}, "offers")
offers.filter(lambda offer: offer["pieces"] > 0).to_stream().to("offers-in-stock")
topology = builder.build()

CHANGES: list[tuple[str, str, Any]] = [
    ("stock", "lamp", 3),
    ("prices", "lamp", 20.0),
    ("prices", "book", 8.5),  # no stock of it
    ("stock", "lamp", 2),
    ("prices", "lamp", 18.0),
    ("stock", "pen", 100),
    ("stock", "lamp", 0),  # sold out
    ("stock", "book", 1),
    ("prices", "pen", 1.0),
    ("prices", "pen", None),  # no longer sold
    ("stock", "lamp", 5),
    ("stock", None, 1),  # type: ignore[list-item]  # wrong: without a key, dropped and counted
]


def test_offers_follow_both_tables() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for time, (topic, key, value) in enumerate(CHANGES):
            driver.input_topic(topic).pipe(value, key, time)
        assert driver.output_topic("offers-in-stock").read_key_values_to_list() == [
            ("lamp", {"pieces": 3, "price": 20.0}),
            ("lamp", {"pieces": 2, "price": 20.0}),
            ("lamp", {"pieces": 2, "price": 18.0}),
            ("lamp", None),
            ("book", {"pieces": 1, "price": 8.5}),
            ("pen", {"pieces": 100, "price": 1.0}),
            ("pen", None),
            ("lamp", {"pieces": 5, "price": 18.0}),
        ]
        assert driver.store("offers").get("lamp").value == {"pieces": 5, "price": 18.0}
        assert driver.dropped_records == 1


if __name__ == "__main__":
    test_offers_follow_both_tables()
