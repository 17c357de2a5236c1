"""Let each customer send so many requests in a time, and set the others aside.

A token bucket: each customer has at most 3 tokens, a request costs one, and one comes back every 10 seconds. The
clock is that of the records, so the same input has the same result whenever it is processed, after a crash too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Branched, FixedKeyProcessor, ProcessorContext, Record, Stores, StreamsBuilder, TopologyTestDriver

BURST, REFILL_MS = 3, 10_000
config = {"application.id": "rate-limit", "default.key.serde": "string", "default.value.serde": "json"}


class TokenBucket(FixedKeyProcessor[str, dict[str, Any]]):
    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("buckets", key_serde="string", value_serde="json", ttl="1 hour")]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.buckets: Any = context.get_state_store("buckets")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        bucket = self.buckets.get(record.key) or {"tokens": BURST, "at": record.timestamp}
        at = max(record.timestamp, bucket["at"])  # a late record does not turn the clock back
        tokens = min(BURST, bucket["tokens"] + (at - bucket["at"]) / REFILL_MS)
        allowed = tokens >= 1
        self.buckets.put(record.key, {"tokens": tokens - allowed, "at": at})
        self.context.forward(record.with_value({**record.value, "allowed": allowed}))


builder = StreamsBuilder()
(
    builder.stream("requests")
    .process_values(TokenBucket, name="token-bucket")
    .split()
    .branch(lambda request: request["allowed"], Branched(to=lambda stream: stream.to("allowed")))
    .default_branch(Branched(to=lambda stream: stream.to("refused")))
)
topology = builder.build()

REQUESTS = [
    ("ann", "/1", 0),
    ("ann", "/2", 100),
    ("bob", "/1", 150),
    ("ann", "/3", 200),
    ("ann", "/4", 300),  # the fourth at once
    ("ann", "/5", 5_000),  # half a token
    ("ann", "/6", 12_000),  # one has come back
    ("ann", "/7", 11_000),  # late, and there is none
    ("bob", "/2", 13_000),
    ("ann", "/8", 60_000),
]


def test_a_customer_has_three_at_once_and_one_every_ten_seconds() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for customer, path, time in REQUESTS:
            driver.input_topic("requests").pipe({"path": path}, customer, time)
        refused = [(k, v["path"]) for k, v in driver.output_topic("refused").read_key_values_to_list()]
        assert refused == [("ann", "/4"), ("ann", "/5"), ("ann", "/7")]
        assert len(driver.output_topic("allowed").read_values_to_list()) == 7


if __name__ == "__main__":
    test_a_customer_has_three_at_once_and_one_every_ten_seconds()
