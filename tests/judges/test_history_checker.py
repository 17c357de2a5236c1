"""The checker of histories finds what it is there for: losses, doubles, wrong orders, broken chains, wrong state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import pytest

from history_checker import by_key, check_chains, check_deliveries, check_state, replayed
from judge_topologies import BUCKETS, EMPTY_CHAIN, bucket_of, history, next_link
from penstock import TopologyTestDriver

KEYS = 2 * BUCKETS
SENT = {f"k{key}": [f"k{key}:{number}" for number in range(4)] for key in range(KEYS)}
History = dict[str, list[str]]


def in_turn(histories: History) -> list[tuple[str, str]]:
    """All appends, one of each key after the other."""
    return [
        (key, value) for row in zip(*histories.values(), strict=True) for key, value in zip(histories, row, strict=True)
    ]


def chains_of(records: list[tuple[str, str]], group_of: Callable[[str], str] = lambda key: key) -> History:
    grouped = by_key((group_of(key), value) for key, value in records)
    return {group: list(accumulate(values, next_link, initial=EMPTY_CHAIN))[1:] for group, values in grouped.items()}


def changed(**keys: list[str]) -> History:
    return {**{key: list(values) for key, values in SENT.items()}, **keys}


def without_a_key() -> History:
    seen = changed()
    del seen["k3"]
    return seen


DELIVERIES = {
    "one lost": (changed(k1=["k1:0", "k1:2", "k1:3"]), "k1: 1 appends are lost: ['k1:1']"),
    "the last lost": (changed(k1=["k1:0", "k1:1", "k1:2"]), "k1: 1 appends are lost: ['k1:3']"),
    "a key lost": (without_a_key(), "k3: 4 appends are lost: ['k3:0', 'k3:1', 'k3:2']"),
    "one double": (changed(k1=["k1:0", "k1:1", "k1:1", "k1:2", "k1:3"]), "k1: 1 appends are double: ['k1:1']"),
    "a repeated tail": (changed(k1=[*SENT["k1"], "k1:2", "k1:3"]), "k1: 2 appends are double: ['k1:2', 'k1:3']"),
    "another order": (
        changed(k1=["k1:0", "k1:2", "k1:1", "k1:3"]),
        "k1: the order differs from append 1 on: k1:2, not k1:1",
    ),
    "unknown": (changed(k1=[*SENT["k1"], "k2:0"]), "k1: 1 appends are unknown: ['k2:0']"),
    "an unknown key": (changed(k99=["k99:0"]), "k99: 1 appends are unknown: ['k99:0']"),
}


@pytest.mark.parametrize(("seen", "problem"), DELIVERIES.values(), ids=DELIVERIES)
def test_a_fault_of_deliveries_is_found(seen: History, problem: str) -> None:
    assert check_deliveries(SENT, seen) == [problem]


def test_right_deliveries_have_no_problem() -> None:
    assert check_deliveries(SENT, changed()) == []


GROUPS = {"by key": lambda key: key, "by bucket": bucket_of}


@pytest.mark.parametrize("group_of", GROUPS.values(), ids=GROUPS)
def test_right_chains_have_no_problem(group_of: Callable[[str], str]) -> None:
    chains = chains_of(in_turn(SENT), group_of)
    assert check_chains(SENT, chains, next_link, EMPTY_CHAIN, group_of) == []


def lost_in_state(records: list[tuple[str, str]]) -> History:
    """The output of an append is there, but the next aggregate begins from the one before it."""
    chains = chains_of(records, bucket_of)
    links = chains["bucket1"]
    links[3] = next_link(links[1], links[3].rpartition("|")[2])
    return chains


def output_lost(records: list[tuple[str, str]]) -> History:
    chains = chains_of(records, bucket_of)
    del chains["bucket1"][2]
    return chains


def output_double(records: list[tuple[str, str]]) -> History:
    chains = chains_of(records, bucket_of)
    chains["bucket1"].insert(3, chains["bucket1"][2])
    return chains


def counted_double(records: list[tuple[str, str]]) -> History:
    """A well-formed chain, which holds an append twice."""
    return chains_of([*records, records[-1]], bucket_of)


def not_counted(records: list[tuple[str, str]]) -> History:
    return chains_of(records[:-1], bucket_of)


def in_another_order(records: list[tuple[str, str]]) -> History:
    """Well-formed, but two appends of a key are exchanged."""
    return chains_of([*records[KEYS:], *records[:KEYS]], bucket_of)


def in_another_bucket(records: list[tuple[str, str]]) -> History:
    return chains_of(records, lambda key: "bucket0")


CHAINS = {
    "an update lost in state": (lost_in_state, "does not follow"),
    "an output lost": (output_lost, "does not follow"),
    "an output double": (output_double, "does not follow"),
    "counted double": (counted_double, "k9: 1 appends are double: ['k9:3']"),
    "not counted": (not_counted, "k9: 1 appends are lost: ['k9:3']"),
    "another order": (in_another_order, "the order differs from append 0 on"),
    "another bucket": (in_another_bucket, "which was never appended there"),
}


@pytest.mark.parametrize(("broken", "problem"), CHAINS.values(), ids=CHAINS)
def test_a_broken_chain_is_found(broken: Callable[[list[tuple[str, str]]], History], problem: str) -> None:
    found = check_chains(SENT, broken(in_turn(SENT)), next_link, EMPTY_CHAIN, bucket_of)
    assert any(problem in each for each in found), found


def test_state_that_differs_is_found() -> None:
    outputs = {"a": ["1", "2"], "b": ["1"]}
    right = {"a": "2", "b": "1"}
    assert check_state("s", right, right, outputs) == []
    (found,) = check_state("s", right, {"a": "2"}, outputs)
    assert found == "store s: 1 keys differ from its changelog, such as b: '1', not None"
    (found,) = check_state("s", {"a": "1", "b": "1"}, {"a": "1", "b": "1"}, outputs)
    assert found == "store s: 1 keys differ from its newest outputs, such as a: '1', not '2'"
    assert len(check_state("s", {"a": "1"}, right, outputs)) == 2


def test_the_topology_makes_the_histories_that_the_checker_expects() -> None:
    with TopologyTestDriver(history(), {"statestore.cache.max.bytes": 0}) as driver:
        for key, value in in_turn(SENT):
            driver.pipe_raw("appends", key.encode(), value.encode(), 0)
        written = {topic: [] for topic in ("echo", "chains", "buckets")}
        for topic, rows in written.items():
            while (record := driver.read_raw(topic)) is not None:
                rows.append((record.key.decode(), record.value.decode()))
        stores = {store: driver.get_state_store(store).all() for store in ("chains", "buckets")}
        state = {store: {key: timed.value for key, timed in rows} for store, rows in stores.items()}
    assert check_deliveries(SENT, by_key(written["echo"])) == []
    for store, group_of in (("chains", lambda key: key), ("buckets", bucket_of)):
        outputs = by_key(written[store])
        assert check_chains(SENT, outputs, next_link, EMPTY_CHAIN, group_of) == []
        assert check_state(store, state[store], replayed(written[store]), outputs) == []
