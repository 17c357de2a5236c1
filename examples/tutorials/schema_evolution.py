"""Read old and new records of a topic by one schema, and keep readers of the old one running.

Avro with a schema registry: each record carries the id of the schema that it was written with, and a reader turns it
into its own. A new field needs a default, which old records then have. It needs `pip install "penstock[schemas]"`.
"""

from __future__ import annotations

from typing import Any

from penstock import Consumed, Produced, Serdes, StreamsBuilder, TopologyTestDriver


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


ITEM, AMOUNT = {"name": "item", "type": "string"}, {"name": "amount", "type": "double"}
OLD = schema(ITEM, AMOUNT)
NEW = schema(ITEM, AMOUNT, {"name": "currency", "type": "string", "default": "EUR"})

config = {"application.id": "schema-evolution", "default.key.serde": "string"}


def topology_of(reader: dict[str, Any]) -> Any:
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(value_serde=Serdes.avro(reader)))
    orders.map_values(lambda order: order | {"amount": order["amount"] + 0.5}).to(
        "orders-with-fee", Produced(value_serde=Serdes.avro(reader))
    )
    return builder.build()


WRITTEN = [
    (OLD, {"item": "lamp", "amount": 20.0}),
    (OLD, {"item": "book", "amount": 8.0}),
    (NEW, {"item": "desk", "amount": 90.0, "currency": "USD"}),
    (OLD, {"item": "pen", "amount": 1.0}),  # a writer that has not been updated yet
    (NEW, {"item": "cup", "amount": 4.0, "currency": "EUR"}),
    (NEW, {"item": "rug", "amount": 50.0, "currency": "CHF"}),
    (OLD, {"item": "bag", "amount": 30.0}),
    (NEW, {"item": "vase", "amount": 15.0, "currency": "EUR"}),
    (OLD, {"item": "sofa", "amount": 400.0}),
    (NEW, {"item": "bed", "amount": 300.0, "currency": "EUR"}),
]


def read_by(reader: dict[str, Any], registry: str) -> list[Any]:
    settings = {**config, "schema.registry.url": registry}
    with TopologyTestDriver(topology_of(reader), settings) as driver:
        for writer, order in WRITTEN:
            serde: Any = Serdes.avro(writer, registry=registry)
            value = serde.for_topic("orders", "value").serialize(order)
            driver.pipe_raw("orders", b"1", value, 0, ())
        return driver.output_topic("orders-with-fee").read_values_to_list()


def test_both_readers_read_all_records() -> None:
    orders = read_by(NEW, "mock://new")
    assert orders[0] == {"item": "lamp", "amount": 20.5, "currency": "EUR"}
    assert [order["currency"] for order in orders].count("EUR") == 8
    assert read_by(OLD, "mock://old")[2] == {"item": "desk", "amount": 90.5}


if __name__ == "__main__":
    test_both_readers_read_all_records()
