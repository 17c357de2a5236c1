"""Turn the changes of a database into a table that is always up to date, and count by a column of it.

A change event has an operation and the row before and after it (Debezium's envelope, as `PostgresConnector` writes
it). The row after the change is the new value of the key, and a deletion is a null. `to_table` keeps the latest row;
what is counted from the table follows updates and deletions, since the old value is taken out before the new one is
added.
"""

from __future__ import annotations

from typing import Any

from penstock import Grouped, Materialized, StreamsBuilder, TopologyTestDriver

config = {
    "application.id": "cdc-to-table",
    "default.key.serde": "string",
    "default.value.serde": "json",
    "statestore.cache.max.bytes": 0,
}


def row_after(change: dict[str, Any]) -> dict[str, Any] | None:
    return None if change["op"] == "d" else change["after"]


def by_country(key: str, row: Any) -> tuple[str, str]:
    return row["country"], key


builder = StreamsBuilder()
customers = (
    builder.stream("shop.public.customers")
    .filter(lambda change: change is not None)  # the tombstone behind a deletion, which says nothing new
    .filter(lambda change: change["op"] in ("c", "r", "u", "d"))  # not: truncations, messages
    .map_values(row_after)
    .to_table(Materialized("customers", value_serde="json"))
)
(
    customers.group_by(by_country, Grouped("by-country", value_serde="string"))
    .count("customers-by-country")
    .to_stream()
    .to("customers-by-country")
)
topology = builder.build()


def change(op: str, country: str | None = None) -> dict[str, Any]:
    return {"op": op, "after": {"country": country} if country else None}


CHANGES: list[tuple[str, Any]] = [
    ("1", change("r", "IT")),  # r: the row was there when reading began
    ("2", change("r", "NO")),
    ("3", change("c", "IT")),
    ("1", change("u", "FR")),  # moved
    ("2", change("u", "NO")),  # another column has changed
    ("4", change("c", "FR")),
    ("3", change("d")),
    ("3", None),
    ("5", change("m")),  # a message in the database's log: no change of a row
    ("4", change("u", "FR")),
]


def test_the_table_and_its_counts_follow_the_database() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for time, (key, event) in enumerate(CHANGES):
            driver.input_topic("shop.public.customers").pipe(event, key, time)
        rows = {key: row.value["country"] for key, row in driver.store("customers").all()}
        assert rows == {"1": "FR", "2": "NO", "4": "FR"}
        counts = driver.output_topic("customers-by-country", value_serde="long").read_key_values_to_map()
        assert counts == {"IT": 0, "NO": 1, "FR": 2}


if __name__ == "__main__":
    test_the_table_and_its_counts_follow_the_database()
