"""Sums of a stream and of a table: Confluent's SumLambdaExample, and the same over a KTable.

A stream's sum takes in every record. A table's sum takes in the newest value of each key: when a value changes, the
old one is subtracted.
"""

from __future__ import annotations

import operator

from penstock import Consumed, Grouped, Produced, StreamsBuilder

config = {
    "application.id": "sum-example",
    "default.key.serde": "integer",
    "default.value.serde": "integer",
    "statestore.cache.max.bytes": 0,
}

builder = StreamsBuilder()
sum_of_odd_numbers = (
    builder.stream("numbers-topic")
    .filter(lambda number: number % 2 != 0)
    # One sum of all numbers, so all get one key; which one does not matter.
    .select_key(lambda _: 1)
    .group_by_key()
    .reduce(operator.add)
)
sum_of_odd_numbers.to_stream().to("sum-of-odd-numbers-topic")

stock = builder.table("stock-topic", Consumed(key_serde="string", value_serde="integer"))
sum_of_stock = stock.group_by(lambda _, pieces: ("all", pieces), Grouped(key_serde="string")).reduce(
    operator.add, operator.sub
)
sum_of_stock.to_stream().to("sum-of-stock-topic", Produced(key_serde="string", value_serde="integer"))
topology = builder.build()

RECORDS: list[tuple[str, str | None, int]] = [("numbers-topic", None, number) for number in range(1, 8)]
RECORDS += [("stock-topic", "apples", 10), ("stock-topic", "pears", 5), ("stock-topic", "apples", 7)]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
