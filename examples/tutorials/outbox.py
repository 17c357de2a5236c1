"""Publish the outbox of a service: each row of its table becomes an event in the topic of its kind.

A service that changes its database and sends a message can crash between the two. With an outbox it writes the
message as a row, in the transaction of the change. `PostgresConnector` reads the rows from the database's log as
change events (Debezium's envelopes); this topology makes them messages. The id of a row goes along as a header, by
which readers recognise a message that comes twice.
"""

from __future__ import annotations

import json
from typing import Any

from penstock import Processor, Record, StreamsBuilder, TopologyTestDriver

config = {"application.id": "outbox", "default.key.serde": "string", "default.value.serde": "json"}
KINDS = {"order", "customer"}


class ToEvent(Processor[str, dict[str, Any]]):
    def process(self, record: Record[str, dict[str, Any]]) -> None:
        change = record.value
        if change is None or change["op"] not in ("c", "r"):  # rows are deleted after a while: that is no message
            return
        row = change["after"]
        event = Record(row["aggregate_id"], json.loads(row["payload"]), change["ts_ms"])
        self.context.forward(event.with_header("id", row["id"].encode()).with_header("kind", row["kind"].encode()))


def topic_of(_: str, __: Any, context: Any) -> str:
    kind = dict(context.headers)["kind"].decode()
    return f"{kind}-events" if kind in KINDS else "unknown-events"


builder = StreamsBuilder()
builder.stream("shop.public.outbox").process(ToEvent, name="to-event").to(topic_of)
topology = builder.build()


def inserted(row_id: str, kind: str, aggregate_id: str, payload: Any, time: int) -> dict[str, Any]:
    row = {"id": row_id, "kind": kind, "aggregate_id": aggregate_id, "payload": json.dumps(payload)}
    return {"op": "c", "before": None, "after": row, "ts_ms": time}


CHANGES = [
    inserted("e1", "customer", "ann", {"type": "joined"}, 1),
    inserted("e2", "order", "o1", {"type": "placed", "by": "ann"}, 2),
    inserted("e3", "order", "o2", {"type": "placed", "by": "bob"}, 3),
    inserted("e4", "order", "o1", {"type": "paid"}, 4),
    {"op": "d", "before": {"id": "e1"}, "after": None, "ts_ms": 5},  # cleaned up
    None,  # the tombstone that follows a deletion
    inserted("e5", "ordr", "o3", {"type": "placed"}, 6),  # wrong kind
    inserted("e6", "order", "o1", {"type": "sent"}, 7),
    inserted("e7", "customer", "bob", {"type": "moved"}, 8),
    inserted("e8", "order", "o2", {"type": "cancelled"}, 9),
]


def test_rows_become_events_of_their_kind() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for change in CHANGES:
            driver.input_topic("shop.public.outbox").pipe(change, "row")
        orders = driver.output_topic("order-events").read_records_to_list()
        assert [(event.key, event.value["type"]) for event in orders] == [
            ("o1", "placed"),
            ("o2", "placed"),
            ("o1", "paid"),
            ("o1", "sent"),
            ("o2", "cancelled"),
        ]
        assert [dict(event.headers)["id"] for event in orders] == [b"e2", b"e3", b"e4", b"e6", b"e8"]
        assert list(driver.output_topic("customer-events").read_key_values_to_map()) == ["ann", "bob"]
        assert list(driver.output_topic("unknown-events").read_key_values_to_map()) == ["o3"]


if __name__ == "__main__":
    test_rows_become_events_of_their_kind()
