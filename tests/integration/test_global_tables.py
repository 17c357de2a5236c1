"""Global tables on Spark: read in full before the first record, refreshed with each batch, gone on from after a stop."""

from __future__ import annotations

import pytest

from penstock import Processor, StreamsBuilder
from penstock.api.stores import Stores
from penstock.errors import ProcessingError

from .conftest import Bench


def priced(*, left: bool = False):
    builder = StreamsBuilder()
    prices = builder.global_table("prices")
    orders = builder.stream("orders")
    join = orders.left_join if left else orders.join
    join(prices, lambda order, price: f"{order}@{price}", key=lambda value: value).to("priced")
    return builder.build()


def topics(bench: Bench) -> None:
    bench.log.create_topic("prices", 3)
    bench.log.create_topic("orders", 2)
    bench.log.create_topic("priced", 2)


def test_every_task_sees_all_partitions_and_a_restart_reads_on(bench: Bench) -> None:
    topics(bench)
    for partition in range(3):
        bench.write("prices", [(f"item-{partition}", str(partition), 0)], partition)
    for partition in range(2):
        bench.write("orders", [("o", f"item-{i}", i) for i in range(4)], partition)
    bench.run(priced())
    assert sorted(bench.read("priced")) == sorted([("o", f"item-{i}@{i}") for i in range(3)] * 2)
    bench.write("prices", [("item-0", None, 10), ("item-3", "new", 11)], 1)
    bench.write("orders", [("p", "item-0", 12), ("p", "item-1", 12), ("p", "item-3", 12)])
    bench.run(priced())
    assert sorted(v for k, v in bench.read("priced") if k == "p") == ["item-1@1", "item-3@new"]
    bench.write("prices", [("item-4", "4", 13)], 2)
    bench.run(priced())  # a batch for the table alone
    bench.write("orders", [("q", "item-4", 14)])
    bench.run(priced())
    assert [v for k, v in bench.read("priced") if k == "q"] == ["item-4@4"]
    assert len(list((bench.root / "state").rglob("global-*/slot-*"))) == 1  # one copy for all tasks


def test_a_store_of_its_own_processor_read_behind_a_repartition_topic(bench: Bench) -> None:
    topics(bench)

    class Keep(Processor):
        def process(self, record):
            if record.key is not None:
                self.context.get_state_store("known").put(record.key, record.value.upper())

    class Look(Processor):
        def process(self, record):
            found = self.context.get_state_store("known").get(record.key)
            self.context.forward(record.with_value(found))

    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value("known", key_serde="string", value_serde="string"), "prices", Keep)
    builder.stream("orders").select_key(lambda value: value).repartition().process(Look).to("priced")
    bench.write("prices", [("a", "x", 0)], 2)
    bench.write("orders", [("1", "a", 1), ("2", "b", 2)])
    bench.run(builder.build())
    assert sorted(bench.read("priced")) == [("a", "X"), ("b", None)]


def test_a_global_store_is_read_only(bench: Bench) -> None:
    topics(bench)

    class Write(Processor):
        def process(self, record):
            self.context.get_state_store("known").put("k", "v", 0)

    builder = StreamsBuilder()
    builder.global_table("prices", materialized="known")
    builder.stream("orders").process(Write).to("priced")
    bench.write("orders", [("1", "a", 1)])
    with pytest.raises(ProcessingError, match="only written by the processor of its topic"):
        bench.run(builder.build())
