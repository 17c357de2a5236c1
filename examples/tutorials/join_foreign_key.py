"""Join two tables by a field: orders with their customer, and again when the customer changes.

Many orders may have the same customer. The topics may have any number of partitions, since the tables meet by
internal topics. A left join keeps orders whose customer is missing.
"""

from __future__ import annotations

from typing import Any

from penstock import StreamsBuilder, TableJoined, TopologyTestDriver

config = {
    "application.id": "join-foreign-key",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "statestore.cache.max.bytes": 0,
}


def label(order: dict[str, Any], customer: dict[str, Any] | None) -> str:
    return f"{order['item']} to {customer['city'] if customer else '?'}"


builder = StreamsBuilder()
orders, customers = builder.table("orders"), builder.table("customers")
(
    orders.left_join(
        customers,
        label,
        "labels",
        foreign_key=lambda order: order.get("customer"),
        joined=TableJoined("orders-with-customers"),
    )
    .to_stream()
    .to("labels")
)
topology = builder.build()

CHANGES: list[tuple[str, str, Any]] = [
    ("customers", "ann", {"city": "Rome"}),
    ("customers", "bob", {"city": "Oslo"}),
    ("orders", "1", {"item": "lamp", "customer": "ann"}),
    ("orders", "2", {"item": "book", "customer": "ann"}),
    ("orders", "3", {"item": "pen", "customer": "cid"}),  # not known yet
    ("customers", "ann", {"city": "Bari"}),  # both orders of ann change
    ("customers", "cid", {"city": "Bonn"}),
    ("orders", "2", {"item": "book", "customer": "bob"}),  # another customer
    ("orders", "4", {"item": "cup"}),  # wrong: without a customer
    ("orders", "1", None),  # cancelled
    ("customers", "bob", None),
]


def test_labels_follow_orders_and_customers() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for time, (topic, key, value) in enumerate(CHANGES):
            driver.input_topic(topic).pipe(value, key, time)
        assert driver.output_topic("labels").read_key_values_to_list() == [
            ("1", "lamp to Rome"),
            ("2", "book to Rome"),
            ("3", "pen to ?"),
            ("1", "lamp to Bari"),
            ("2", "book to Bari"),
            ("3", "pen to Bonn"),
            ("2", "book to Oslo"),
            ("4", "cup to ?"),
            ("1", None),
            ("2", "book to ?"),
        ]


if __name__ == "__main__":
    test_labels_follow_orders_and_customers()
