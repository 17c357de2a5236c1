"""Foreign-key joins through Spark: the cycle between the two sides runs within each batch."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock import Materialized, StreamsBuilder, Topology
from penstock.log.partitioner import partition_for

from .conftest import Bench

Rows = dict[str, str]
PARTITIONS = {"orders": 2, "users": 3}


def joined(*, left: bool) -> Topology:
    builder = StreamsBuilder()
    orders, users = builder.table("orders"), builder.table("users")
    join = orders.left_join if left else orders.join
    named = join(users, lambda order, user: f"{order}={user}", Materialized("named"), foreign_key=lambda v: v[:2])
    named.to_stream().to("out")
    return builder.build()


def change(bench: Bench, topic: str, now: Rows, key: str, value: str | None, time: int) -> None:
    bench.write(topic, [(key, value, time)], partition_for(key.encode(), PARTITIONS[topic]))
    now[key] = value if value is not None else ""
    if value is None:
        del now[key]


def expected(orders: Rows, users: Rows, *, left: bool) -> dict[str, str]:
    pairs = {key: (order, users.get(order[:2])) for key, order in orders.items()}
    return {key: f"{order}={user}" for key, (order, user) in pairs.items() if left or user is not None}


def newest(bench: Bench) -> dict[str | None, Any]:
    return {key: value for key, value in dict(bench.read("out")).items() if value is not None}


@pytest.mark.parametrize("left", [False, True])
def test_rows_meet_whatever_changes(bench: Bench, left: bool) -> None:
    for topic, partitions in PARTITIONS.items():
        bench.log.create_topic(topic, partitions)
    bench.log.create_topic("out", 2)
    chance = random.Random(5)
    orders: Rows = {}
    users: Rows = {}
    for run in range(2):  # the second goes on with the state of the first
        for step in range(90):
            key = f"u{chance.randrange(6)}"
            if chance.random() < 0.3:
                value = None if key in users and chance.random() < 0.3 else f"{key}.{run}{step}"
                change(bench, "users", users, key, value, step)
            else:
                order = f"o{chance.randrange(30)}"
                value = None if order in orders and chance.random() < 0.2 else f"{key}#{run}{step}"
                change(bench, "orders", orders, order, value, step)
        bench.run(joined(left=left), **{"penstock.max.records.per.batch": 50, "statestore.cache.max.bytes": 0})
        assert newest(bench) == expected(orders, users, left=left)


def test_a_table_joined_with_itself_and_then_with_another(bench: Bench) -> None:
    for topic in ("people", "offices", "out"):
        bench.log.create_topic(topic, 2)
    builder = StreamsBuilder()
    people = builder.table("people")
    with_boss = people.left_join(people, lambda me, boss: f"{me} boss={boss}", foreign_key=lambda v: v.split()[0])
    placed = with_boss.join(
        builder.table("offices"), lambda person, office: f"{person} in {office}", foreign_key=lambda v: v.split()[1]
    )
    placed.to_stream().to("out")
    topology = builder.build()
    for topic, key, value in (
        ("people", "ann", "bob paris"),
        ("people", "bob", "- rome"),
        ("offices", "paris", "FR"),
        ("offices", "rome", "IT"),
        ("people", "cem", "ann rome"),
    ):
        bench.write(topic, [(key, value, 1)], partition_for(key.encode(), 2))
    bench.run(topology)
    assert newest(bench) == {
        "ann": "bob paris boss=- rome in FR",
        "bob": "- rome boss=None in IT",
        "cem": "ann rome boss=bob paris in IT",
    }
    bench.write("people", [("ann", "bob rome", 2)], partition_for(b"ann", 2))
    bench.run(topology)
    assert newest(bench)["cem"] == "ann rome boss=bob rome in IT"
    assert newest(bench)["ann"] == "bob rome boss=- rome in IT"
