"""Whatever members and topics there are: every partition has one reader that wants it, and the load is fair."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError, LogError
from penstock.log.assignors import ASSIGNORS, Subscriber, agreed_assignor, assign, check_assignors
from penstock.log.base import TopicPartition

TOPICS = st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 6), min_size=1)
MEMBERS = st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from("tuvw"), min_size=1), min_size=1)
PLACES = st.builds(TopicPartition, st.sampled_from("tuvw"), st.integers(0, 7))


def subscribers(members, holds=None):
    return {name: Subscriber(name, topics, (holds or {}).get(name, frozenset())) for name, topics in members.items()}


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(ASSIGNORS)),
    MEMBERS,
    TOPICS,
    st.dictionaries(st.sampled_from("abcdef"), st.frozensets(PLACES)),
)
def test_each_partition_has_one_reader_that_wants_it(assignor, members, partitions, holds):
    given_to = assign(assignor, subscribers(members, holds), partitions)
    assert given_to.keys() == members.keys()
    owners = Counter(place for places in given_to.values() for place in places)
    wanted = {topic for topics in members.values() for topic in topics}
    assert set(owners) == {TopicPartition(t, n) for t, count in partitions.items() if t in wanted for n in range(count)}
    assert set(owners.values()) <= {1}
    assert all(place.topic in members[name] for name, places in given_to.items() for place in places)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(ASSIGNORS)), st.sets(st.sampled_from("abcdef"), min_size=1), TOPICS)
def test_equal_wishes_are_served_evenly(assignor, names, partitions):
    given_to = assign(assignor, subscribers(dict.fromkeys(names, frozenset("tuvw"))), partitions)
    loads = [len(places) for places in given_to.values()]
    assert max(loads) - min(loads) <= (len(partitions) if assignor == "range" else 1)


@settings(max_examples=100, deadline=None)
@given(st.sets(st.sampled_from("abcdef"), min_size=2), TOPICS, st.data())
def test_sticky_moves_no_more_than_it_must(names, partitions, data):
    everything = frozenset("tuvw")
    before = assign("sticky", subscribers(dict.fromkeys(names, everything)), partitions)
    gone = data.draw(st.sampled_from(sorted(names)))
    left = names - {gone}
    holds = {name: frozenset(before[name]) for name in left}
    after = assign("sticky", subscribers(dict.fromkeys(left, everything), holds), partitions)
    assert all(holds[name] <= after[name] for name in left)  # only what the lost member had moves
    back = assign(
        "sticky", subscribers(dict.fromkeys(names, everything), {n: frozenset(after[n]) for n in left}), partitions
    )
    assert all(back[name] <= after[name] for name in left)  # the new member's share moves, nothing else


def test_range_and_round_robin_as_kafka():
    members = subscribers(dict.fromkeys("ab", frozenset("tu")))
    places = {"t": 3, "u": 3}
    assert {p.partition for p in assign("range", members, places)["a"]} == {0, 1}
    assert len(assign("range", members, places)["a"]) == 4
    assert assign("roundrobin", members, places)["a"] == {
        TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)
    }  # fmt: skip


def test_the_group_agrees_on_what_all_know():
    assert agreed_assignor("g", [("range", "sticky"), ("sticky", "range"), ("sticky", "range")]) == "sticky"
    with pytest.raises(LogError, match="no assignor in common"):
        agreed_assignor("g", [("range",), ("sticky",)])
    assert check_assignors("range, roundrobin") == ("range", "roundrobin")
    with pytest.raises(ConfigError, match="no assignor"):
        check_assignors("fair")
