"""Go on when a record is bad, keep it with the reason, and process it again once it is repaired.

With `"continue"` a record that fails is left out; its bytes go to the topic of dead letters, with the reason in
headers. The second topology reads that topic, repairs what it can, and writes it back to the input. The rest goes to
people.
"""

from __future__ import annotations

import json
from typing import Any

from penstock import Branched, Consumed, Produced, StreamsBuilder, TopologyTestDriver

config = {
    "application.id": "dead-letters",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "deserialization.exception.handler": "continue",  # bytes that are no JSON
    "processing.exception.handler": "continue",  # a function that raises
    "production.exception.handler": "continue",  # a result that the serde cannot write
    "errors.dead.letter.queue.topic.name": "bad-orders",
}
builder = StreamsBuilder()
(
    builder.stream("orders")
    .map_values(lambda order: order["price"] * order["quantity"])
    .to("amounts", Produced(value_serde="double"))
)
topology = builder.build()


def repaired(text: str) -> Any:
    """Return the order with a price that is a number, or None if nobody but people can repair it."""
    try:
        order = json.loads(text)
        return {**order, "price": float(str(order["price"]).replace(",", "."))}
    except (ValueError, KeyError):
        return None


builder = StreamsBuilder()
letters = builder.stream("bad-orders", Consumed(key_serde="string", value_serde="string"))
(
    letters.split()
    .branch(
        lambda text: repaired(text) is not None,
        Branched(to=lambda good: good.map_values(repaired).to("orders", Produced(value_serde="json"))),
    )
    .default_branch(Branched(to=lambda bad: bad.to("orders-for-people", Produced(value_serde="string"))))
)
repair = builder.build()

ORDERS = [
    b'{"price": 2.5, "quantity": 2}',
    b'{"price": "3,50", "quantity": 1}',  # a text: the product is one too
    b'{"price": 1.0, "quantity": 1}',
    b"price=3",  # no JSON
    b'{"quantity": 4}',  # without a price
    b'{"price": 10.0, "quantity": 3}',
    b'{"price": "4.0", "quantity": 2}',
    b'{"price": 0.5, "quantity": 8}',
    b'{"price": 7.0, "quantity": 1}',
    b'{"price": 1.5, "quantity": 2}',
]


def test_bad_orders_are_kept_and_repaired() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for number, order in enumerate(ORDERS):
            driver.pipe_raw("orders", str(number).encode(), order, number, ())
        amounts = driver.output_topic("amounts").read_key_values_to_list()
        assert amounts == [("0", 5.0), ("2", 1.0), ("5", 30.0), ("7", 4.0), ("8", 7.0), ("9", 3.0)]
        dead = driver.output_topic("bad-orders", "string", "string").read_records_to_list()
        assert [record.key for record in dead] == ["1", "3", "4", "6"]
        reasons = [dict(record.headers)["__streams.errors.exception"] for record in dead]
        assert reasons[2] == b"builtins.KeyError"
    with TopologyTestDriver(repair, {"default.key.serde": "string"}) as driver:
        for record in dead:
            driver.input_topic("bad-orders").pipe(record.value, record.key, headers=list(record.headers))
        prices = [(key, order["price"]) for key, order in driver.output_topic("orders").read_key_values_to_list()]
        assert prices == [("1", 3.5), ("6", 4.0)]
        assert driver.output_topic("orders-for-people").read_values_to_list() == ["price=3", '{"quantity": 4}']


if __name__ == "__main__":
    test_bad_orders_are_kept_and_repaired()
