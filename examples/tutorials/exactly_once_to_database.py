"""Write results to a database so that each row is there once, whatever crashes.

The application is exactly once up to its output topic. The sink goes on from there: it writes rows and the offsets
behind them in one transaction of the database, and after a crash continues from those offsets, not from the ones in
Kafka. Never write to a database in `foreach` or `map_values`: what runs again after a crash would write again. It
needs `pip install "penstock[connect]"`. In production `penstock connect worker` or `penstock connect run` runs the
sink.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from penstock import Produced, StreamsBuilder, TopologyTestDriver
from penstock.connect.testing import ConnectTestDriver, Step

config = {
    "application.id": "exactly-once",
    "default.key.serde": "string",
    "default.value.serde": "long",
    "statestore.cache.max.bytes": 0,
}
builder = StreamsBuilder()
(
    builder.stream("payments")
    .filter(lambda amount: amount is not None and amount > 0)
    .group_by_key()
    .reduce(lambda total, amount: total + amount, "totals")
    .to_stream()
    .map_values(lambda customer, total: {"customer": customer, "total": total})
    .to("totals", Produced(value_serde="json"))
)
topology = builder.build()

SINK = {
    "topics": "totals",
    "table.name.format": "totals",
    "insert.mode": "insert",  # one row for each result; with upsert, one for each customer
    "value.converter.schemas.enable": "true",
}
PAYMENTS = [("ann", 10), ("bob", 5), ("ann", 7), ("cid", -3), ("bob", 1), ("ann", 2), ("cid", 4), ("bob", 9)]
PAYMENTS += [("ann", 1), ("cid", 6)]
SCHEMA = {
    "type": "struct",
    "fields": [{"field": "customer", "type": "string"}, {"field": "total", "type": "int64"}],
}


def test_each_result_is_one_row_after_crashes() -> None:
    with TopologyTestDriver(topology, config) as driver:
        driver.input_topic("payments").pipe_many(PAYMENTS)
        totals = driver.output_topic("totals").read_values_to_list()
    assert len(totals) == len(PAYMENTS) - 1  # the negative amount is left out
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "shop.db"
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE totals (customer TEXT, total BIGINT)")
        sink = ConnectTestDriver(
            "io.confluent.connect.jdbc.JdbcSinkConnector", {**SINK, "connection.url": f"sqlite:///{database}"}
        )
        for number, total in enumerate(totals):
            sink.produce("totals", total)
            sink.put(crash=[None, Step.PUT, Step.FLUSHED][number % 3])
        sink.put_all()
        sink.stop()
        with sqlite3.connect(database) as connection:
            rows = connection.execute("SELECT customer, total FROM totals").fetchall()
        assert rows == [(total["customer"], total["total"]) for total in totals]


if __name__ == "__main__":
    test_each_result_is_one_row_after_crashes()
