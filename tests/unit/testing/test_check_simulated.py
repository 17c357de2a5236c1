"""Each kind of mistake of a user's function is found in a simulation, and the same topology without it is right."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Consumed, Grouped, Materialized, Processor, Produced, Record, Stores, StreamsBuilder, Topology
from penstock.errors import ConfigError, SerializationError, TopologyError
from penstock.testing import check_simulated
from penstock.testing.simulation.checking import Simulation, SimulationReport

TEXT = Consumed(key_serde="string", value_serde="string")
TEXTS = Produced(key_serde="string", value_serde="string")
KEYED = Grouped(key_serde="string", value_serde="string")
KEPT = Materialized("kept", key_serde="string", value_serde="string")
RECORDS = [(f"k{number % 4}", f"v{number % 5}", 1_000 * number) for number in range(16)]


def mapped(function: Callable[[str], str]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(str.upper).map_values(function).to("out", TEXTS)
    return builder.build()


def processed(supplier: type[Processor[Any, Any, Any, Any]]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(supplier).to("out", TEXTS)
    return builder.build()


def reduced(function: Callable[[str, str], str]) -> Topology:
    builder = StreamsBuilder()
    by_value = builder.stream("in", TEXT).map(lambda key, value: (value, key)).group_by_key(KEYED)
    by_value.reduce(function, KEPT).to_stream().to("out", TEXTS)
    return builder.build()


class WithStore(Processor[str, str, str, str]):
    @classmethod
    def stores(cls) -> list[Any]:
        return [Stores.key_value("kept", key_serde="string", value_serde="string")]

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("kept")


class CountsInStore(WithStore):
    def process(self, record: Record[str, str]) -> None:
        count = int(self.store.get(record.key) or 0) + 1
        self.store.put(record.key, str(count))
        self.context.forward(Record(record.key, str(count), record.timestamp))


class CountsInAttribute(Processor[str, str, str, str]):
    def init(self, context: Any) -> None:
        super().init(context)
        self.counts: dict[str, int] = {}

    def process(self, record: Record[str, str]) -> None:
        self.counts[record.key] = self.counts.get(record.key, 0) + 1
        self.context.forward(Record(record.key, str(self.counts[record.key]), record.timestamp))


class KeepsEveryRecord(WithStore):
    def process(self, record: Record[str, str]) -> None:
        self.store.put(f"{record.key} {record.timestamp}", record.value)


class KeepsTheNewest(WithStore):
    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)


class WritesChanges(CountsInStore):
    """Writes by the wall clock how many records have come since the last time."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule("2 s", "wall_clock_time", self.flush)

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, str(int(self.store.get(record.key) or 0) + 1))

    def flush(self, at_ms: int) -> None:
        for key, count in list(self.store.all()):
            self.context.forward(Record(key, count, at_ms))
            self.store.delete(key)


class WritesTotals(WritesChanges):
    def flush(self, at_ms: int) -> None:
        for key, count in self.store.all():
            self.context.forward(Record(key, count, at_ms))


def report_of(topology: Topology, seeds: int = 2, accept: tuple[str, ...] = ()) -> SimulationReport:
    simulation = Simulation(topology, {}, accept=accept)
    simulation.records.add_many("in", RECORDS)
    return simulation.report(range(seeds))


total = [0]


def with_global(value: str) -> str:
    total[0] += 1
    return f"{value}{total[0]}"


RIGHT = {
    "pure": mapped(lambda value: value * 2),
    "in a store": processed(CountsInStore),
    "of any order": reduced(max),
    "as many rows as keys": processed(KeepsTheNewest),
    "right whenever it runs": processed(WritesTotals),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_topology_holds(name: str) -> None:
    report = report_of(RIGHT[name])
    assert not report.has_failed, str(report)
    assert (report.schedules, sorted(report.held)) == (
        2,
        ["growth", "nondeterministic", "order", "state-outside", "wall-clock"],
    )
    assert str(report).endswith("\nall held")


WRONG = [
    ("nondeterministic", "KSTREAM-MAPVALUES-0000000002", mapped(lambda value: f"{value}{random.random()}")),
    ("wall-clock", "KSTREAM-MAPVALUES-0000000002", mapped(lambda value: f"{value}{time.time() // 4_000:.0f}")),
    ("state-outside", "KSTREAM-PROCESSOR-0000000001", processed(CountsInAttribute)),
    ("state-outside", "KSTREAM-MAPVALUES-0000000002", mapped(with_global)),
    ("growth", "KSTREAM-PROCESSOR-0000000001", processed(KeepsEveryRecord)),
    ("growth", "KSTREAM-REDUCE-0000000002", reduced(lambda one, other: "".join(sorted(one + other)))),
    ("wall-clock", "KSTREAM-SINK-0000000002", processed(WritesChanges)),
    ("order", "", reduced(lambda _, newest: newest)),
    ("exception", "KSTREAM-MAPVALUES-0000000002", mapped(lambda value: value if value != "V3" else value[9])),
]


@pytest.mark.parametrize(("kind", "node", "topology"), WRONG, ids=[f"{kind} {n}" for n, (kind, *_) in enumerate(WRONG)])
def test_a_mistake_is_found_with_its_node_and_record(kind: str, node: str, topology: Topology) -> None:
    report = report_of(topology)
    (mistake,) = report.mistakes
    assert (mistake.kind, mistake.node) == (kind, node)
    assert kind not in report.held
    assert node in mistake.text or kind in ("growth", "order", "wall-clock")
    if kind in ("nondeterministic", "state-outside", "exception"):
        assert mistake.record.startswith("in:")
        assert mistake.record in mistake.text
    if kind == "exception":
        assert "IndexError" in mistake.text
        assert report.schedules == 0
    assert str(report).endswith("\nfailed")


class ReadsTheClockAndFails(Processor):
    def init(self, context):
        super().init(context)
        context.schedule(10_000, "wall_clock_time", self.tick)

    def tick(self, _):
        raise LookupError("nothing to do")

    def process(self, record):
        self.context.forward(Record(record.key, f"{time.time() // 4_000:.0f}", record.timestamp))


def test_a_punctuation_that_fails_is_a_mistake_also_beside_another_one() -> None:
    report = report_of(processed(ReadsTheClockAndFails))
    assert [each.kind for each in report.mistakes] == ["exception"]
    assert "LookupError: nothing to do" in report.mistakes[0].text


def test_topics_whose_names_functions_choose_are_compared() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).to(lambda key, _value, _context: f"out-{key}", TEXTS)
    report = report_of(builder.build())
    assert not report.has_failed, str(report)
    assert set(report.compared) == {"out-k0", "out-k1", "out-k2", "out-k3"}


def test_a_schedule_that_fails_is_made_small_and_says_which_mistake_it_shows() -> None:
    report = report_of(processed(CountsInAttribute), seeds=20)
    assert report.failure is not None
    assert len(report.failure.faults) <= 2
    assert report.cause() == "The mistake above explains it: state-outside."
    assert "FAILED: " in str(report)
    assert "the result differs: out, key 'k" in str(report)


def test_accepted_mistakes_do_not_fail() -> None:
    report = report_of(reduced(lambda _, newest: newest), accept=("order",))
    assert (report.mistakes, [each.kind for each in report.accepted], report.has_failed) == ([], ["order"], False)
    assert "accepted (order): What is written to out depends" in str(report)


def test_the_same_seeds_give_the_same_report() -> None:
    one, other = (report_of(RIGHT["in a store"], seeds=3) for _ in range(2))
    assert (str(one), one.document()) == (str(other), other.document())


def test_the_helper_raises_the_story() -> None:
    check_simulated(mapped(str.lower), {"in": RECORDS}, seeds=2)
    with pytest.raises(AssertionError, match=r"MISTAKE \(state-outside\): KSTREAM-PROCESSOR-0000000001"):
        check_simulated(processed(CountsInAttribute), {"in": RECORDS}, seeds=[3])
    check_simulated(processed(KeepsEveryRecord), {"in": RECORDS}, seeds=1, accept=["growth"])


def patterned() -> Topology:
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*"), TEXT).to("out", TEXTS)
    return builder.build()


def test_bad_input_has_clear_errors() -> None:
    topology = mapped(str.lower)
    with pytest.raises(TopologyError, match="no source reads topic 'inn'") as unknown:
        check_simulated(topology, {"inn": RECORDS})
    assert unknown.value.hint == "Did you mean in?"
    with pytest.raises(ConfigError, match="there is no record to simulate with"):
        check_simulated(topology, {})
    with pytest.raises(ConfigError, match="record 2 of in is 'x'"):
        check_simulated(topology, {"in": [("k", "v"), "x"]})  # type: ignore[list-item]
    with pytest.raises(SerializationError, match="in"):
        check_simulated(topology, {"in": [("k", 7)]})
    with pytest.raises(ConfigError, match="no kind of mistakes 'oder'") as kind:
        check_simulated(topology, {"in": RECORDS}, accept=["oder"])
    assert kind.value.hint == "Did you mean order?"
    with pytest.raises(ConfigError, match="no kind of mistakes 'exceptions'") as kind:
        check_simulated(topology, {"in": RECORDS}, accept=["exceptions"])
    assert kind.value.hint.startswith("Kinds are nondeterministic, ")
    with pytest.raises(TopologyError, match="a simulation needs their names"):
        check_simulated(patterned(), {"in-1": RECORDS})
