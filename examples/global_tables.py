"""Orders with customers and products from global tables: Confluent's GlobalKTablesExample.

A global table is everywhere whole, so a stream can be joined with it by any field, without a repartition topic.
"""

from __future__ import annotations

from typing import Any

from penstock import Consumed, Materialized, Produced, StreamsBuilder

config = {"application.id": "global-tables-example", "default.key.serde": "long", "default.value.serde": "json"}

builder = StreamsBuilder()
orders = builder.stream("order", Consumed(key_serde="long", value_serde="json"))
customers = builder.global_table("customer", materialized=Materialized("customer-store"))
products = builder.global_table("product", materialized=Materialized("product-store"))


def with_customer(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    return {"order": order, "customer": customer}


def with_product(found: dict[str, Any], product: dict[str, Any]) -> dict[str, Any]:
    return {**found, "product": product}


(
    orders.join(customers, with_customer, key=lambda _, order: order["customer_id"])
    .join(products, with_product, key=lambda _, found: found["order"]["product_id"])
    .to("enriched-order", Produced(key_serde="long", value_serde="json"))
)
topology = builder.build()

RECORDS = [
    ("customer", 7, {"name": "alice"}),
    ("product", 3, {"name": "lamp"}),
    ("order", 1, {"customer_id": 7, "product_id": 3}),
    ("order", 2, {"customer_id": 8, "product_id": 3}),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
