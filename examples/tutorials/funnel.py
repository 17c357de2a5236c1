"""Find visitors who go through the steps of a shop in order, and carts that are left behind.

The steps are view, cart and pay, in this order and within half an hour. Other events may come in between. A store
keeps how far each visitor has come. A punctuation looks at it once a minute of stream time, and reports carts that
were not paid for in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Processor, ProcessorContext, Record, Stores, StreamsBuilder, TopologyTestDriver

STEPS = ["view", "cart", "pay"]
MINUTE = 60_000
LIMIT = 30 * MINUTE
config = {"application.id": "funnel", "default.key.serde": "string", "default.value.serde": "string"}


class Funnel(Processor[str, str]):
    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("progress", key_serde="string", value_serde="json")]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.progress: Any = context.get_state_store("progress")
        context.schedule("1 minute", "stream_time", self.look_for_carts)

    def process(self, record: Record[str, str]) -> None:
        done, since = self.progress.get(record.key) or (0, record.timestamp)
        if done and record.timestamp - since > LIMIT:
            done, since = 0, record.timestamp
        if record.value != STEPS[done]:
            return
        if done + 1 < len(STEPS):
            self.progress.put(record.key, [done + 1, since if done else record.timestamp])
            return
        self.progress.delete(record.key)
        self.context.forward(record.with_value(f"bought after {(record.timestamp - since) // MINUTE} minutes"))

    def look_for_carts(self, now_ms: int) -> None:
        for visitor, (done, since) in list(self.progress.all()):
            if now_ms - since > LIMIT:
                self.progress.delete(visitor)
                if STEPS[done - 1] == "cart":
                    self.context.forward(Record(visitor, "left the cart", now_ms))


builder = StreamsBuilder()
builder.stream("events").process(Funnel, name="funnel").to("funnel-results")
topology = builder.build()

EVENTS = [
    ("ann", "view", 0),
    ("bob", "cart", 1),  # a cart without a view: not the sequence
    ("bob", "view", 2),
    ("ann", "cart", 5),
    ("cid", "view", 6),
    ("cid", "cart", 7),
    ("ann", "search", 8),  # another event in between
    ("ann", "pay", 12),
    ("ann", "pay", 13),  # nothing is open
    ("bob", "pay", 20),  # a step is missing
    ("dan", "view", 25),
    ("cid", "pay", 45),  # too late: 39 minutes after the view
    ("dan", "cart", 46),
    ("dan", "pay", 50),
]


def test_the_steps_count_only_in_order_and_in_time() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for visitor, event, minute in EVENTS:
            driver.input_topic("events").pipe(event, visitor, minute * MINUTE)
        assert driver.output_topic("funnel-results").read_key_values_to_list() == [
            ("ann", "bought after 12 minutes"),
            ("cid", "left the cart"),
            ("dan", "bought after 25 minutes"),
        ]


if __name__ == "__main__":
    test_the_steps_count_only_in_order_and_in_time()
