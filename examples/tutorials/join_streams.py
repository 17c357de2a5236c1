"""Join two streams: orders with their payments, and orders that nobody pays.

A stream has no latest value, so a join of two streams needs a window: a payment belongs to an order if it comes at
most ten minutes later. `left_join` also sends the orders without a payment, once their time and the grace have
passed.
"""

from __future__ import annotations

from typing import Any

from penstock import JoinWindows, StreamsBuilder, TopologyTestDriver

config = {"application.id": "join-streams", "default.key.serde": "string", "default.value.serde": "json"}
PAID_WITHIN = JoinWindows.of(0, grace="1 minute").after("10 minutes")


def with_payment(order: dict[str, Any], payment: dict[str, Any] | None) -> dict[str, Any]:
    if payment is None:
        return {**order, "state": "not paid"}
    return {**order, "state": "paid" if payment["amount"] == order["amount"] else "wrong amount"}


builder = StreamsBuilder()
orders, payments = builder.stream("orders"), builder.stream("payments")  # both by the number of the order
orders.left_join(payments, with_payment, PAID_WITHIN).to("orders-with-state")
topology = builder.build()

MINUTE = 60_000
RECORDS: list[tuple[str, str, Any, int]] = [
    ("orders", "o1", {"amount": 10}, 0),
    ("orders", "o2", {"amount": 25}, 1),
    ("payments", "o1", {"amount": 10}, 3),
    ("orders", "o3", {"amount": 7}, 4),
    ("payments", "o9", {"amount": 99}, 5),  # of no order
    ("payments", "o2", {"amount": 20}, 8),  # too little
    ("orders", "o4", {"amount": 50}, 9),
    ("payments", "o3", {"amount": 7}, 20),  # too late: the join has nothing for it
    ("orders", "o5", None, 20),  # wrong: without a value, dropped and counted
    ("payments", "o4", {"amount": 50}, 19),  # late, but within the ten minutes of its order
    ("orders", "o6", {"amount": 1}, 30),
]


def test_each_order_gets_its_state() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for topic, key, value, minute in RECORDS:
            driver.advance_wall_clock_time("1 second")  # unmatched orders are looked for once a second
            driver.input_topic(topic).pipe(value, key, minute * MINUTE)
        states = driver.output_topic("orders-with-state").read_key_values_to_list()
        assert [(key, order["state"]) for key, order in states] == [
            ("o1", "paid"),
            ("o2", "wrong amount"),
            ("o3", "not paid"),
            ("o4", "paid"),
        ]
        assert driver.dropped_records == 1


if __name__ == "__main__":
    test_each_order_gets_its_state()
