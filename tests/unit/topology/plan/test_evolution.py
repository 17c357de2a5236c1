"""Upgrades: what of a checkpoint a changed topology can go on with, and what it is told otherwise."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from penstock import Consumed, Materialized, Repartitioned, StreamsBuilder
from penstock.errors import CheckpointMismatchError
from penstock.serde import Serdes
from penstock.topology.plan.evolution import Evolution, compare, plan_after, require_compatible
from penstock.topology.plan.plan_json import StoredPlan, document_of, fingerprint_of
from penstock.topology.topology import Topology

STRINGS = Consumed(key_serde=Serdes.string(), value_serde=Serdes.string())


def counted(
    *,
    store: str = "counts",
    fn: Any = lambda _, value: value,
    partitions: int | None = None,
    more: tuple[str, ...] = (),
) -> Topology:
    """Counts by a new key; ``more`` are stores of other topics, in front in the code."""
    builder = StreamsBuilder()
    for name in more:
        builder.stream(f"{name}-in", STRINGS).group_by_key().count(Materialized(name))
    stream = builder.stream("words", STRINGS).select_key(fn)
    if partitions is not None:
        stream = stream.repartition(Repartitioned(name="by-word", partitions=partitions))
    stream.group_by_key().count(Materialized(store)).to_stream().to("counts")
    return builder.build()


def by_key(*stores: str, topic: str = "words") -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(topic, STRINGS)
    for store in stores:
        stream.group_by_key().count(Materialized(store))
    return builder.build()


def known(topology: Topology, counts: Mapping[str, int]) -> dict[str, int]:
    return {topic: 2 for node in topology.sources for topic in node.topics if not node.internal} | dict(counts)


def after(
    stored: StoredPlan | None,
    topology: Topology,
    drop: tuple[str, ...] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
    **counts: int,
) -> tuple[Evolution, StoredPlan]:
    """What a start says, and what the checkpoint notes then."""
    document = document_of(plan_after(stored, topology, "app", known(topology, counts)), topology, settings)
    document = json.loads(json.dumps(document))
    fingerprint = fingerprint_of(document)
    if stored is None:
        return Evolution(), StoredPlan.first(document, fingerprint)
    noted = stored.followed_by(document, fingerprint)
    return compare(stored, document, drop), StoredPlan.of(json.loads(json.dumps(noted.facts())))


def first(topology: Topology, **counts: int) -> StoredPlan:
    return after(None, topology, **counts)[1]


def homes(stored: StoredPlan) -> dict[str, int]:
    return {name: home.subtopology for name, home in stored.homes().items()}


def document(topology: Topology, **counts: int) -> dict[str, Any]:
    return dict(first(topology, **counts).plan)


def test_a_changed_function_body_changes_nothing() -> None:
    change, noted = after(first(counted()), counted(fn=lambda _, value: value.upper()))
    assert change.verdict == "same"
    assert len(noted.fingerprints) == 1


@pytest.mark.parametrize(
    ("topology", "counts", "reasons"),
    [
        (counted(store="other"), {}, ["store 'counts' is gone", "name it in penstock.state.drop"]),
        (counted(partitions=4), {}, ["internal topic 'by-word-repartition' had 2 partitions and now has 4"]),
    ],
)
def test_what_is_refused(topology: Topology, counts: dict[str, int], reasons: list[str]) -> None:
    stored = first(counted(partitions=2))
    new = document_of(plan_after(stored, topology, "app", known(topology, counts)), topology)
    with pytest.raises(CheckpointMismatchError, match="cannot be continued") as caught:
        require_compatible(stored, new, "/checkpoint")
    assert all(reason in caught.value.message for reason in reasons)
    assert "penstock app plan" in str(caught.value.hint)


def test_another_serde_or_kind_of_a_store_is_refused() -> None:
    stored = first(counted())
    for fact, value in (("value_serde", "json"), ("kind", "window")):
        new = copy.deepcopy(dict(stored.plan))
        new["stores"]["counts"][fact] = value
        assert compare(stored, new).verdict == "refuse"


def test_a_first_time_to_live_is_refused_because_the_rows_get_another_form() -> None:
    stored = first(counted())
    new = copy.deepcopy(dict(stored.plan))
    new["stores"]["counts"]["ttl_ms"] = 1000
    (reason,) = compare(stored, new).reasons
    assert "its ttl ms was 0 and now is 1000" in reason
    assert compare(written_before(untyped()), document(untyped())).verdict == "same"  # early plans do not note it


def test_a_store_that_was_taken_out_and_lost_is_not_put_back() -> None:
    new, old = by_key("counts", "more"), by_key("counts")
    _, stored = after(first(new), old, ("more",))
    lost = stored.losing({"more": ["0_1"]}).losing({"more": ["0_0"]})
    (reason,) = after(lost, new)[0].reasons
    assert "'more' cannot be put back: after it was taken out, the segments of task 0_0, 0_1 were lost" in reason
    assert after(lost, old)[0].verdict == "same"


def test_retention_that_falls_is_a_migration() -> None:
    def kept_for(retention_ms: int) -> dict[str, Any]:
        new = copy.deepcopy(document(counted()))
        new["stores"]["counts"]["retention_ms"] = retention_ms
        return new

    short, long = (StoredPlan.first(kept_for(ms), "") for ms in (10, 20))
    assert compare(short, long.plan).verdict == "safe"
    assert compare(long, short.plan).verdict == "migrate"


def test_another_application_is_refused() -> None:
    stored = first(counted())
    with pytest.raises(CheckpointMismatchError, match="is of application 'app', not of 'b'"):
        require_compatible(stored, {**stored.plan, "application": "b"}, "/checkpoint")


def test_a_store_that_was_added_is_taken_out_on_purpose_and_put_back() -> None:
    old, new = by_key("counts"), by_key("counts", "more")
    change, stored = after(first(old), new)
    assert change.verdict == "safe"
    assert after(stored, old)[0].verdict == "refuse"
    change, stored = after(stored, old, ("more",))
    assert change.verdict == "migrate"
    assert "'more' is taken out: its rows and its changelog topic are kept" in change.migrations[0]
    assert after(stored, old)[0].verdict == "same"  # the setting is needed once
    assert "put back, with what it held" in after(stored, new)[0].migrations[0]
    builder = StreamsBuilder()
    stream = builder.stream("words", STRINGS)
    stream.group_by_key().count(Materialized("counts"))
    stream.group_by_key().reduce(max, Materialized("more"))
    assert "its value serde was" in after(stored, builder.build())[0].reasons[0]


def test_subtopologies_that_are_put_in_front_keep_the_ids_of_those_behind() -> None:
    stored = first(counted())
    assert homes(stored) == {"counts": 1}
    change, grown = after(stored, counted(more=("a", "b")))
    assert change.verdict == "safe"
    assert homes(grown) == {"counts": 1, "a": 2, "b": 3}
    change, shrunk = after(grown, counted(more=("b",)), ("a",))
    assert change.verdict == "migrate"
    assert homes(shrunk) == {"counts": 1, "a": 2, "b": 3}
    change, again = after(shrunk, counted(more=("c", "b")))
    assert (change.verdict, homes(again)) == ("safe", {"counts": 1, "a": 2, "b": 3, "c": 4})


def test_a_repartition_that_is_put_in_front_of_a_store_leaves_the_store_its_id() -> None:
    builder = StreamsBuilder()
    serdes = {"key_serde": Serdes.string(), "value_serde": Serdes.string()}
    stream = builder.stream("words", STRINGS).repartition(Repartitioned("by-word", **serdes))
    stream.group_by_key().count(Materialized("counts"))
    change, stored = after(first(by_key("counts")), builder.build())
    assert change.verdict == "safe"
    assert homes(stored) == {"counts": 0}
    assert stored.plan["subtopologies"]["1"]["topics"] == ["words"]


def test_an_id_is_never_used_for_something_else() -> None:
    """Segments of a sub-topology without stores that is gone stay where they are."""

    def passes(*topics: str) -> Topology:
        builder = StreamsBuilder()
        for topic in topics:
            builder.stream(topic, STRINGS).to(f"{topic}-out")
        return builder.build()

    _, stored = after(first(passes("a", "b")), passes("a"))
    _, stored = after(stored, passes("c", "a"))
    assert {number: sub["topics"] for number, sub in stored.plan["subtopologies"].items()} == {"2": ["c"], "0": ["a"]}


def test_stores_that_come_together_or_part_move_to_a_sub_topology_with_a_new_id() -> None:
    def counts(joined: bool) -> Topology:
        builder = StreamsBuilder()
        one = builder.table("one", STRINGS, Materialized("first"))
        two = builder.table("two", STRINGS, Materialized("second"))
        if joined:
            one.join(two, lambda left, right: left + right)
        return builder.build()

    apart, together = counts(False), counts(True)
    change, stored = after(first(apart), together)
    assert change.verdict == "migrate"
    assert [text.split(":")[0] for text in change.migrations] == [
        "store 'first' moves from sub-topology 0 to 2",
        "store 'second' moves from sub-topology 1 to 2",
    ]
    change, again = after(stored, apart)
    assert [text.split(":")[0] for text in change.migrations] == ["store 'second' moves from sub-topology 2 to 3"]
    assert homes(again) == {"first": 2, "second": 3}
    assert homes(after(again, together)[1]) == {"first": 4, "second": 4}
    (reason,) = after(first(together, one=2, two=2), apart, one=2, two=4)[0].reasons
    assert "store 'second' moves from sub-topology 0, with 2 tasks, to 1, with 4: its rows lie by partition" in reason


def test_a_topic_with_more_partitions_in_front_of_a_repartition_is_taken_up() -> None:
    stored = first(counted(), words=4)
    change, noted = after(stored, counted(), words=6)
    assert change.verdict == "safe"
    assert "sub-topology 0 had 4 tasks and now has 6; it has no state" in change.notes
    assert list(noted.plan["internal_topics"].values()) == [4]


def test_a_topic_with_more_partitions_in_front_of_state_is_refused_by_its_name() -> None:
    (reason,) = after(first(by_key("counts"), words=4), by_key("counts"), words=6)[0].reasons
    assert reason.startswith("input topic 'words' had 4 partitions and now has 6: the state of sub-topology 0")
    assert "penstock app reset" in reason
    assert "repartition()" in reason


def test_a_table_that_grew_beside_a_repartition_is_named_too() -> None:
    builder = StreamsBuilder()
    names = builder.table("names", STRINGS, Materialized("names"))
    builder.stream("words", STRINGS).select_key(lambda _, word: word).join(names, lambda word, name: word + name).to(
        "out"
    )
    topology = builder.build()
    (reason,) = after(first(topology, names=2), topology, names=6, words=2)[0].reasons
    assert "input topic 'names'" in reason
    assert "had 2 partitions and now has 6" in reason


TEXTS = {"default.key.serde": "string", "default.value.serde": "string"}


def untyped(value_serde: str | None = None) -> Topology:
    """A store whose values nobody types, and a foreign-key join whose subscriptions hold hashes of such values."""
    builder = StreamsBuilder()
    lengths = builder.stream("words", STRINGS).map_values(len).group_by_key()
    lengths.aggregate(int, lambda key, value, sum_: sum_ + value, Materialized("sums", value_serde=value_serde))
    right = builder.table("right", STRINGS, Materialized("right"))
    left = builder.table("left", STRINGS, Materialized("left")).map_values(str.upper)
    left.join(right, lambda x, y: x + y, Materialized("joined", value_serde="string"), foreign_key=str, name="fk")
    return builder.build()


def written_before(topology: Topology) -> StoredPlan:
    """As plans were before stores took the defaults: ``auto`` where no type is named, and nothing of hashes."""
    plan = copy.deepcopy(document(topology))
    for facts in plan["stores"].values():
        for later in ("untyped", "hash_serde", "ttl_ms", "persistent", "time_ordered"):
            facts.pop(later, None)
    assert plan["stores"]["sums"]["value_serde"] == "auto"
    return StoredPlan.first(plan, fingerprint_of(plan))


def test_state_that_auto_has_written_is_not_read_by_the_default() -> None:
    stored = written_before(untyped())
    change, _ = after(stored, untyped(), settings=TEXTS)
    told = {text.split("'")[1]: text for text in change.reasons}
    assert set(told) == {"sums", "fk-subscription-store"}
    assert "no value serde, so it was auto, and now is default.value.serde" in told["sums"]
    assert "no hash serde" in told["fk-subscription-store"]
    assert all("set penstock.untyped.stores=auto" in text for text in change.reasons)
    kept, noted = after(stored, untyped(), settings={**TEXTS, "penstock.untyped.stores": "auto"})
    assert kept.verdict == "same"
    assert after(noted, untyped(), settings=TEXTS)[0].verdict == "refuse"


def test_without_a_default_stores_without_a_type_are_as_they_were() -> None:
    assert after(written_before(untyped()), untyped())[0].verdict == "same"


def test_a_default_that_has_written_state_is_kept() -> None:
    noted = after(None, untyped(), settings=TEXTS)[1]
    assert after(noted, untyped(), settings=TEXTS)[0].verdict == "same"
    kafka = {**TEXTS, "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde"}
    assert after(noted, untyped(), settings=kafka)[0].verdict == "same"
    change, _ = after(noted, untyped(), settings={**TEXTS, "default.value.serde": "json"})
    assert len(change.reasons) == 1
    assert "default.value.serde was string and now is json" in change.reasons[0]
    typed = {**TEXTS, "default.value.serde": "json"}
    assert after(first(counted()), counted(), settings=typed)[0].verdict == "same"


def test_a_class_of_ours_that_was_in_another_module_is_the_same() -> None:
    _, stored = after(None, by_key("counts"))
    facts = {"plan": json.loads(json.dumps(stored.plan)), "fingerprints": ["of another version"]}
    store = facts["plan"]["stores"]["counts"]
    store["key_serde"] = "<class 'penstock.serde.some_module.OwnSerde'>"
    first = StoredPlan.of(facts)
    store["key_serde"] = "<class 'penstock.serde.another_module.OwnSerde'>"
    second = StoredPlan.of(facts)
    assert first.plan == second.plan
    store["key_serde"] = "<class 'penstock.serde.some_module.AnotherSerde'>"
    assert StoredPlan.of(facts).plan != second.plan
