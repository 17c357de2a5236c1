"""Drop events that come twice.

A client that gets no answer sends its payment again, so some payments are in the topic two or three times. Each has
an id. A store with a time to live remembers the ids of the last hour; older ones are forgotten, so that the store
does not grow for ever.

Events that are the same must have the same key, because a key is in one partition and a partition has one store. If
yours have not, put `select_key(lambda event: event["id"]).repartition()` in front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Processor, ProcessorContext, Record, Stores, StreamsBuilder, TopologyTestDriver

config = {"application.id": "deduplicate", "default.key.serde": "string", "default.value.serde": "json"}


class Deduplicate(Processor[str, dict[str, Any]]):
    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("seen", key_serde="string", value_serde="long", ttl="1 hour")]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen: Any = context.get_state_store("seen")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        event_id = record.value.get("id")
        if event_id is None or self.seen.put_if_absent(event_id, record.timestamp) is None:
            self.context.forward(record)  # without an id it cannot be compared: better twice than lost


builder = StreamsBuilder()
builder.stream("payments").process(Deduplicate, name="deduplicate").to("unique-payments")
topology = builder.build()

MINUTE = 60_000
PAYMENTS = [
    ("ann", {"id": "p1", "amount": 10}, 0),
    ("bob", {"id": "p2", "amount": 25}, 1 * MINUTE),
    ("ann", {"id": "p1", "amount": 10}, 2 * MINUTE),  # sent again
    ("ann", {"id": "p3", "amount": 10}, 3 * MINUTE),  # the same amount, another payment
    ("cid", {"amount": 7}, 4 * MINUTE),  # without an id
    ("bob", {"id": "p2", "amount": 25}, 30 * MINUTE),
    ("bob", {"id": "p4", "amount": 5}, 40 * MINUTE),
    ("ann", {"id": "p3", "amount": 10}, 20 * MINUTE),  # late, and again
    ("cid", {"amount": 7}, 50 * MINUTE),
    ("bob", {"id": "p2", "amount": 25}, 70 * MINUTE),  # 69 minutes after the first: forgotten
]


def test_each_payment_comes_once() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for customer, payment, time in PAYMENTS:
            driver.input_topic("payments").pipe(payment, customer, time)
        unique = driver.output_topic("unique-payments").read_values_to_list()
        assert [payment.get("id") for payment in unique] == ["p1", "p2", "p3", None, "p4", None, "p2"]


if __name__ == "__main__":
    test_each_payment_comes_once()
