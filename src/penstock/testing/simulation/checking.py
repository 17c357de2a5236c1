"""The check of a user's topology: mistakes of its functions, then runs with faults whose results must not differ.

What an application writes whatever the order in which its threads come along: the reference for runs with faults.

Kafka Streams keeps the order of records in a partition. Which of two partitions comes first is left open, and where
records of several meet (in a repartition topic, or in an output that two tasks write) their order may be any. So some
runs without faults are made, with different threads and with partitions that lag behind others by far. Of each topic
as much is compared as is equal in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import counted
from penstock.engines.spark.topology_bytes import AppCopies
from penstock.engines.threads.app import ThreadApp
from penstock.errors import ConfigError, TopologyError
from penstock.testing.simulation.application import Layout
from penstock.testing.simulation.faults import draw
from penstock.testing.simulation.records import Given, RecordTexts, SourceRecords
from penstock.testing.simulation.run import Fields, Input, Outcome, Rows, SimulationPlan, Written, run
from penstock.testing.simulation.simulate import Failure, layout_of, simulate, simulate_seed
from penstock.testing.simulation.undisturbed import KINDS, Mistake, UndisturbedRuns
from penstock.topology.configured import with_settings
from penstock.topology.topology import Topology, require_topology

__all__ = ["MOST_RECORDS", "PARTITIONS", "RESULT", "References", "Simulation", "SimulationReport", "check_simulated"]

RESULT = "the result differs: "  # so begins what is wrong with a result, and not with the way to it

_FAR = 1 << 60
_TIMESTAMP_BYTES = 8  # before the value in rows of tables
_NATURAL = (Layout(1, 1), Layout(2, 1), Layout(3, 2))

Content = Mapping[Any, Hashable]
Summary = Callable[[Sequence[Sequence[Fields]]], Content]


def _by_key(parts: Sequence[Sequence[Fields]]) -> dict[Any, list[Fields]]:
    rows: dict[Any, list[Fields]] = {}
    for part in parts:
        for row in part:
            rows.setdefault(row[0], []).append(row)
    return rows


def _in_order(parts: Sequence[Sequence[Fields]]) -> Content:
    return {key: _list(key, rows, lambda row: row[1:]) for key, rows in _by_key(parts).items()}


def _values_in_order(parts: Sequence[Sequence[Fields]]) -> Content:
    return {key: _list(key, rows, lambda row: row[1]) for key, rows in _by_key(parts).items()}


def _all(parts: Sequence[Sequence[Fields]]) -> Content:
    return {key: frozenset(Counter(row[1:] for row in rows).items()) for key, rows in _by_key(parts).items()}


def _last(parts: Sequence[Sequence[Fields]]) -> Content:
    return {
        key: frozenset(Counter(row[1] for row in rows).items()) if key is None else rows[-1][1]
        for key, rows in _by_key(parts).items()
    }


def _list(key: Any, rows: Sequence[Fields], part: Callable[[Fields], Any]) -> Hashable:
    """Return the parts of the rows of a key; those without a key have no order."""
    return frozenset(Counter(map(part, rows)).items()) if key is None else tuple(map(part, rows))


# From the strictest on: what it says, and what it compares.
_SUMMARIES: tuple[tuple[str, Summary], ...] = (
    ("all records of each key in order", _in_order),
    ("all values of each key in order", _values_in_order),
    ("all records of each key in any order", _all),
    ("the last value of each key", _last),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two runs without faults over the same records, in other orders."""

    topic: str
    key: str
    one: str
    other: str


@dataclass(slots=True)
class _Reference:
    """The common results of all runs without faults over some records."""

    contents: dict[str, tuple[int, Content]]  # by topic: the summary that all share, and its content
    rows: dict[tuple[str, str], Hashable]  # by store and task
    differences: list[Difference]
    failure: Outcome | None  # a run without faults that is wrong by itself


class References:
    """The references of a plan, by the records.

    Args:
        plan: The application.
        texts: Shows what it writes.
        left_out: Topics and stores that are not compared.
        is_of_one_task: Whether the reference is what one task makes of all records: of functions with mistakes, which
            need no other order to differ.
    """

    def __init__(
        self, plan: SimulationPlan, texts: RecordTexts, left_out: Collection[str] = (), *, is_of_one_task: bool = False
    ) -> None:
        self._plan = plan
        self._left_out = left_out
        self._is_of_one_task = is_of_one_task
        self._texts = texts
        self._by_inputs: dict[tuple[Input, ...], _Reference] = {}

    def judge(self, inputs: Sequence[Input], written: Written, rows: Rows) -> list[str]:
        """Return in what a run differs from those without faults."""
        reference = self._of(inputs)
        wrong = []
        for topic, (number, expected) in reference.contents.items():
            got = _SUMMARIES[number][1](written[topic])
            keys = [key for key in {**expected, **got} if expected.get(key) != got.get(key)]
            wrong += [
                f"{RESULT}{topic}, key {self._texts.key(topic, key)}: {self._content(topic, got.get(key))} in place of "
                f"{self._content(topic, expected.get(key))}"
                for key in sorted(keys, key=repr)[:1]
            ]
        stores = self._summary_of_rows(rows)
        return wrong + [
            f"{RESULT}store {store} of task {task} has other rows"
            for (store, task), kept in reference.rows.items()
            if stores.get((store, task)) != kept
        ]

    def differences(self, inputs: Sequence[Input]) -> list[Difference]:
        """Return where the result depends on the order in which partitions come."""
        return self._of(inputs).differences

    def failure(self, inputs: Sequence[Input]) -> Outcome | None:
        """Return a run that was wrong although there was no fault."""
        return self._of(inputs).failure

    def compared(self, inputs: Sequence[Input]) -> dict[str, str]:
        """Return by topic what is compared."""
        return {topic: _SUMMARIES[number][0] for topic, (number, _) in sorted(self._of(inputs).contents.items())}

    def _of(self, inputs: Sequence[Input]) -> _Reference:
        key = tuple(inputs)
        if key not in self._by_inputs:
            self._by_inputs[key] = self._of_one_task(key) if self._is_of_one_task else self._made(key)
        return self._by_inputs[key]

    def _of_one_task(self, inputs: tuple[Input, ...]) -> _Reference:
        written, _ = replace(self._plan, topology=self._plan.app_of_process().topology).undisturbed(inputs)
        number = [summary for _, summary in _SUMMARIES].index(_values_in_order)
        fields = {topic: [[(each.key, each.value, each.timestamp) for each in of]] for topic, of in written.items()}
        contents = {topic: (number, _values_in_order(rows)) for topic, rows in fields.items()}
        return _Reference({name: each for name, each in contents.items() if name not in self._left_out}, {}, [], None)

    def _made(self, inputs: tuple[Input, ...]) -> _Reference:
        seen: list[tuple[Written, Rows]] = []

        def note(_: Sequence[Input], written: Written, rows: Rows) -> list[str]:
            seen.append((written, rows))
            return []

        observed = replace(self._plan, judge=note)
        failure = None
        for seed, (layout, arranged) in enumerate(_variants(inputs)):
            outcome = run(observed, arranged, -1 - seed, (), layout)
            if outcome.violations:
                failure = outcome
                break
        if failure is not None:
            return _Reference({}, {}, [], failure)
        contents: dict[str, tuple[int, Content]] = {}
        differences: list[Difference] = []
        for topic in sorted(set(self._plan.sinks).difference(self._left_out)):
            for number, (_, summary) in enumerate(_SUMMARIES):
                summaries = [summary(written[topic]) for written, _ in seen]
                if all(each == summaries[0] for each in summaries):
                    contents[topic] = (number, summaries[0])
                    break
            else:
                differences.append(self._difference(topic, [_last(written[topic]) for written, _ in seen]))
        of_rows = [self._summary_of_rows(rows) for _, rows in seen]
        same = {
            store_of_task: kept
            for store_of_task, kept in of_rows[0].items()
            if all(each.get(store_of_task) == kept for each in of_rows)
        }
        return _Reference(contents, same, differences, None)

    def _difference(self, topic: str, contents: Sequence[Content]) -> Difference:
        one = contents[0]
        other = next(each for each in contents if each != one)
        key = min((key for key in {**one, **other} if one.get(key) != other.get(key)), key=repr)
        texts = (self._content(topic, each.get(key)) for each in (one, other))
        return Difference(topic, self._texts.key(topic, key), *texts)

    def _content(self, topic: str, content: Hashable) -> str:
        if content is None or isinstance(content, bytes):
            return self._texts.value(topic, content)
        rows = sorted(content, key=repr) if isinstance(content, frozenset) else content
        assert isinstance(rows, tuple | list)  # noqa: S101 - what the summaries make
        return f"[{', '.join(self._entry(topic, row) for row in rows)}]"

    def _entry(self, topic: str, row: Any) -> str:
        if isinstance(row, tuple) and isinstance(row[0], tuple):  # with its number
            return self._entry(topic, row[0]) + (f" ({row[1]} times)" if row[1] > 1 else "")
        if isinstance(row, tuple):
            return f"{self._texts.value(topic, row[0])} at {row[1]}"
        return self._texts.value(topic, row)

    def _summary_of_rows(self, rows: Rows) -> dict[tuple[str, str], Hashable]:
        stores = self._plan.app.topology.stores
        skipped = {name: _TIMESTAMP_BYTES if spec.kind == "timestamped" else 0 for name, spec in stores.items()}
        return {
            (store, task): tuple((key, value[skipped[store] :]) for key, value in kept)
            for (store, task), kept in rows.items()
        }


def _variants(inputs: tuple[Input, ...]) -> Iterator[tuple[Layout, tuple[Input, ...]]]:
    """Yield runs without faults: several orders of threads, and partitions that come one after the other."""
    for layout in _NATURAL:
        yield layout, inputs
    partitions = sorted({each.partition for each in inputs if each.arrives is None})
    if len(partitions) > 1:
        for order in (partitions, partitions[::-1]):
            ranks = {partition: rank for rank, partition in enumerate(order)}
            late = tuple(
                replace(each, arrives=ranks[each.partition] * _FAR // len(ranks) + each.timestamp)
                if each.arrives is None
                else each
                for each in inputs
            )
            yield Layout(2, 1), late


PARTITIONS = 3
MOST_RECORDS = 100  # of a run with faults, which come soon
_SHRINKING = 40  # runs to make a failure small, some of which need references of their own
_OF_ONE_TASK = {"nondeterministic", "state-outside"}  # mistakes that every schedule may show
_NOT_OURS = ("application.", "spark.", "consumer.", "producer.", "admin.", "client.", "penstock.", "state.", "num.")
_OF_THE_ENGINE = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "cache.max.bytes.buffering",
        "commit.interval.ms",
        "max.poll.records",
        "processing.guarantee",
        "processing.mode",
        "repartition.purge.interval.ms",
        "statestore.cache.max.bytes",
    }
)


def check_simulated(
    topology: Topology,
    inputs: Mapping[str, Iterable[Given]],
    seeds: int | Iterable[int] = 100,
    *,
    config: Mapping[str, Any] | None = None,
    partitions: int = PARTITIONS,
    accept: Collection[str] = (),
) -> None:
    """Check a topology in a simulation with crashes and other faults, for tests: `penstock simulate` as a function.

    Args:
        topology: The topology.
        inputs: Topic -> its records: (key, value), (key, value, timestamp) or (key, value, timestamp, headers).
        seeds: How many runs with faults, or their seeds.
        config: The application's settings.
        partitions: The number of partitions of each topic.
        accept: Kinds of mistakes that are none here: "nondeterministic", "wall-clock", "state-outside", "order" or
            "growth".

    Raises:
        AssertionError: The topology has a mistake, or the results of a run differ; with the story.

    >>> from penstock import StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> builder.stream("words").group_by_key().count().to_stream().to("counts")
    >>> settings = {"default.key.serde": "string", "default.value.serde": "string"}
    >>> records = [(f"word{number % 3}", "x") for number in range(12)]
    >>> check_simulated(builder.build(), {"words": records}, seeds=3, config=settings)
    """
    simulation = Simulation(topology, config or {}, partitions=partitions, accept=accept)
    for topic, records in inputs.items():
        simulation.records.add_many(topic, records)
    report = simulation.report(range(seeds) if isinstance(seeds, int) else seeds)
    if report.has_failed:
        raise AssertionError(str(report))


@dataclass(eq=False)
class _UsersPlan(SimulationPlan):
    """A plan whose processes share nothing."""

    copies: AppCopies | None = None
    dynamic_topics: Collection[str] = ()

    @cached_property
    def sinks(self) -> list[str]:
        """The topics that are compared, with those whose names functions choose."""
        return sorted({*super().sinks, *self.dynamic_topics})

    def app_of_process(self) -> ThreadApp:
        assert self.copies is not None, "made with it"  # noqa: S101
        topology, config = self.copies.copy()
        return replace(self.app, topology=topology, config=config)


@dataclass
class SimulationReport:
    """The result of a check.

    Attributes:
        records: How many records there were.
        partitions: The partitions of each topic.
        mistakes: The mistakes of the user's functions.
        accepted: Those that count as none.
        held: The kinds of mistakes that were looked for in vain.
        notes: What a reader should know.
        compared: Topic -> what of it is compared.
        planned: How many runs with faults there should be.
        schedules: How many there were.
        points: At how many points something could have happened.
        faults: How many faults of each kind have happened.
        failure: The first seed that has failed, made small.
        was_stopped: Whether the user has stopped it.
    """

    records: int = 0
    partitions: int = PARTITIONS
    mistakes: list[Mistake] = field(default_factory=list)
    accepted: list[Mistake] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: dict[str, str] = field(default_factory=dict)
    planned: int = 0
    schedules: int = 0
    points: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    was_stopped: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether there is a mistake or a seed that has failed."""
        return bool(self.mistakes) or self.failure is not None

    def cause(self) -> str:
        """Say what kind of mistake a seed that has failed shows."""
        if self.failure is None:
            return ""
        violations = self.failure.outcome.violations
        if any(" raised " in each for each in violations):
            return "exception: a function of the topology has raised an error."
        if not all(each.startswith(RESULT) for each in violations):
            return "This is a fault of Penstock: please report it, with this story."
        if self.mistakes or self.accepted:
            kinds = ", ".join(dict.fromkeys(each.kind for each in (*self.mistakes, *self.accepted)))
            return f"The mistake above explains it: {kinds}."
        if all(fault.kind in ("pause", "late", "cut", "clock") for fault in self.failure.faults):
            return (
                "order: nothing has crashed, only the order of threads is another. The result depends on which of two "
                "partitions comes first."
            )
        return (
            "No mistake of the topology was found that explains it. If the result may depend on the order in which "
            "partitions come, that is it; else it is a fault of Penstock: please report it, with this story."
        )

    def __str__(self) -> str:
        lines = [f"{counted(self.records, 'record')}, {self.partitions} partitions a topic"]
        lines += [f"note: {note}" for note in self.notes]
        for mistake in self.mistakes:
            lines += ["", f"MISTAKE ({mistake.kind}): {mistake.text}"]
        for mistake in self.accepted:
            lines += ["", f"accepted ({mistake.kind}): {mistake.text}"]
        lines.append("")
        lines += [f"held: {text}" for kind, text in _HELD.items() if kind in self.held]
        if self.schedules:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())) or "none"
            schedules = f"{counted(self.schedules, 'schedule')} of {self.planned}"
            lines.append(f"{schedules} with {self.points:,} points at which something could happen; faults: {kinds}")
            if self.failure is None:
                lines += [f"held: {topic} has {what}, whatever happens" for topic, what in self.compared.items()]
                lines.append("held: stores, changelogs and replicas are equal; no offset moves back; all ends")
        elif self.planned:
            lines.append(f"no schedule of {self.planned} was run")
        if self.was_stopped:
            lines.append("stopped before the end")
        if self.failure is not None:
            lines += ["", f"FAILED: {self.cause()}", self.failure.story()]
        lines += ["", "failed" if self.has_failed else "all held" + (" as far as it went" if self.was_stopped else "")]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        failure = self.failure
        return {
            "failed": self.has_failed,
            "stopped": self.was_stopped,
            "records": self.records,
            "partitions": self.partitions,
            "mistakes": [_facts(each) for each in self.mistakes],
            "accepted": [_facts(each) for each in self.accepted],
            "held": self.held,
            "notes": self.notes,
            "compared": self.compared,
            "schedules": {"planned": self.planned, "run": self.schedules, "points": self.points},
            "faults": dict(sorted(self.faults.items())),
            "failure": None
            if failure is None
            else {
                "seed": failure.seed,
                "cause": self.cause(),
                "faults": [str(each) for each in failure.faults],
                "records": len(failure.inputs),
                "violations": failure.outcome.violations,
                "story": failure.story().splitlines(),
            },
        }


_HELD = {
    "nondeterministic": "the same records give the same results",
    "wall-clock": "no result depends on the wall clock",
    "state-outside": "no result depends on what a process remembers outside of its stores",
    "order": "no result depends on the order in which partitions come",
    "growth": "no store grows without end",
}


class Simulation:
    """The simulation of a user's topology.

    Args:
        topology: The topology.
        config: The application's settings; those of the machine, the log and Spark do not matter.
        partitions: The number of partitions of each topic.
        accept: Kinds of mistakes that count as none.
        most_records: How many records runs with faults have, the first by their times.

    Attributes:
        records: The records of the source topics, to be added before the rest.

    Raises:
        TopologyError: The topology cannot be simulated.
        ConfigError: A kind of mistakes does not exist, or a setting is wrong.
    """

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any],
        *,
        partitions: int = PARTITIONS,
        accept: Collection[str] = (),
        most_records: int = MOST_RECORDS,
    ) -> None:
        require_topology(topology, "the simulation")
        kinds = [each for each in KINDS if each != "exception"]
        for kind in accept:
            if kind not in kinds:
                raise ConfigError(
                    f"there is no kind of mistakes {kind!r} to accept",
                    hint=did_you_mean(kind, kinds) or f"Kinds are {', '.join(kinds)}.",
                )
        _require_simulated(topology)
        self._accept = frozenset(accept)
        self._settings = _settings_of(config)
        self._guarantee = str(config.get("processing.guarantee", "exactly_once_v2"))
        self._config = SimulationPlan(topology, {}, self._settings).config
        self._topology = topology
        self._most_records = most_records
        self.records = SourceRecords(topology, self._config, partitions)

    def report(
        self,
        seeds: Iterable[int],
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        on_run: Callable[[int], None] = lambda _: None,
    ) -> SimulationReport:
        """Look for mistakes, then run the schedules until one fails.

        Args:
            seeds: The seeds of the schedules.
            is_stopped: Asked before each schedule.
            on_run: Called with the number of schedules after each.
        """
        seeds = list(seeds)
        report, plan = self._looked_for(len(seeds))
        if plan is None:
            return report
        first = self._first
        for seed in seeds:
            if is_stopped():
                report.was_stopped = True
                break
            of_seed = simulate(plan, first, [seed], most_tries=_SHRINKING)
            report.schedules += 1
            report.points += of_seed.points
            for kind, count in of_seed.kinds.items():
                report.faults[kind] = report.faults.get(kind, 0) + count
            on_run(report.schedules)
            if of_seed.failures:
                report.failure = of_seed.failures[0]
                break
        return report

    def run(self, seed: int) -> Failure | SimulationReport:
        """Run the schedule of one seed; return it with its story, or the report if no schedule can be run."""
        report, plan = self._looked_for(0)
        if plan is None:
            return report
        outcome = simulate_seed(plan, self._first, seed)
        return Failure(seed, layout_of(seed), tuple(draw(seed)), self._first, outcome)

    @property
    def _first(self) -> tuple[Input, ...]:
        return self.records.inputs()[: self._most_records]

    def _looked_for(self, planned: int) -> tuple[SimulationReport, SimulationPlan | None]:
        """Look for mistakes; return the report so far, and the plan of the schedules if they can be run."""
        inputs = self.records.inputs()
        report = SimulationReport(len(inputs), self.records.partitions, planned=planned)
        undisturbed = UndisturbedRuns(self._topology, self._config, inputs)
        self._sort(report, undisturbed.mistakes())
        report.held = undisturbed.held
        report.notes += self._notes(inputs)
        kinds = {each.kind for each in report.mistakes}
        if "exception" in kinds:
            return report, None
        is_of_one_task = bool(kinds & _OF_ONE_TASK)
        left_out = set() if is_of_one_task else undisturbed.by_the_clock()
        plan, references = self._planned(undisturbed.dynamic_topics(), left_out, is_of_one_task=is_of_one_task)
        if clocked := sorted(left_out.intersection(plan.sinks)):
            report.notes.append(f"not compared: {', '.join(clocked)}, which the wall clock decides when to write")
        first = self._first
        if (wrong := references.failure(first)) is not None:
            report.failure = Failure(-1, layout_of(0), (), first, wrong)
            return report, None
        report.compared = references.compared(first)
        if not kinds - {"growth"} and not any(each.kind != "growth" for each in report.accepted):
            of_order = [_of_order(each) for each in references.differences(first)[:1]]
            self._sort(report, of_order)
            report.held += [] if of_order else ["order"]
        return report, plan

    def _planned(
        self, dynamic_topics: Collection[str], left_out: Collection[str], *, is_of_one_task: bool
    ) -> tuple[SimulationPlan, References]:
        partitions = self.records.partitions
        sinks = {node.topic for node in self._topology.sinks if node.topic is not None and not node.internal}
        topics = dict.fromkeys(sorted({*self.records.topics, *sinks, *dynamic_topics}), partitions)
        plan = _UsersPlan(self._topology, topics, self._settings, has_one_state=False, dynamic_topics=dynamic_topics)
        plan.copies = AppCopies(plan.app.topology, plan.config)
        references = References(plan, RecordTexts(plan.app.topology), left_out, is_of_one_task=is_of_one_task)
        plan.judge = references.judge
        return plan, references

    def _sort(self, report: SimulationReport, mistakes: Iterable[Mistake]) -> None:
        for each in mistakes:
            (report.accepted if each.kind in self._accept else report.mistakes).append(each)

    def _notes(self, inputs: Sequence[Input]) -> list[str]:
        notes = []
        if len(inputs) > self._most_records:
            notes.append(f"schedules process the first {self._most_records} records, all other checks all of them")
        if without := sorted(set(self.records.topics) - {each.topic for each in inputs}):
            notes.append(f"there is no record of {', '.join(without)}")
        if self._guarantee == "at_least_once":
            notes.append("simulated with exactly_once_v2, not with at_least_once, which may write records twice")
        stores = with_settings(self._topology, self._config).stores
        if unlogged := [name for name, spec in stores.items() if not spec.is_restorable]:
            notes.append(f"no changelog restores {', '.join(unlogged)}: after a crash it is empty")
        return notes


def _of_order(difference: Any) -> Mistake:
    return Mistake(
        "order",
        f"What is written to {difference.topic} depends on which of two partitions comes first: the last value of key "
        f"{difference.key} is {difference.one} in one order, {difference.other} in another. Records of several "
        "partitions meet in a repartition topic, or in an output that several tasks write, in any order; some may come "
        "too late for a window. Key the records so that those that belong together are in one partition from the "
        "start, or combine them by what does not depend on the order (sums, or the newest by time).",
    )


def _require_simulated(topology: Topology) -> None:
    if topology.dataframes:
        raise TopologyError(
            f"the topology reads the DataFrame {', '.join(sorted(topology.dataframes))}, which only Spark has",
            hint="Simulate a topology that reads the records from a topic, with the same verbs.",
        )
    for node in topology.sources:
        if node.pattern is not None:
            raise TopologyError(
                f"{node.name} reads all topics that match {node.pattern!r}; a simulation needs their names",
                hint="Build the topology with stream([...]), the names of the topics.",
                node=node.name,
            )
    if not topology.sources:
        raise TopologyError("the topology reads no topic", hint="Begin it with stream() or table().")


def _settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that say what functions compute, and not how and where an application runs."""
    return {name: value for name, value in config.items() if not (name.startswith(_NOT_OURS) or name in _OF_THE_ENGINE)}


def _facts(mistake: Mistake) -> dict[str, str]:
    return {"kind": mistake.kind, "node": mistake.node, "record": mistake.record, "text": mistake.text}
