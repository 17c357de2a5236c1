"""What an application writes whatever the order in which its threads come along: the reference for runs with faults.

Kafka Streams keeps the order of records in a partition. Which of two partitions comes first is left open, and where
records of several meet (in a repartition topic, or in an output that two tasks write) their order may be any. So some
runs without faults are made, with different threads and with partitions that lag behind others by far. Of each topic
as much is compared as is equal in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.testing.simulation.application import Layout
from penstock.testing.simulation.records import RecordTexts
from penstock.testing.simulation.run import Fields, Input, Outcome, Plan, Rows, Written, run

__all__ = ["RESULT", "Difference", "References"]

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
        self, plan: Plan, texts: RecordTexts, left_out: Collection[str] = (), *, is_of_one_task: bool = False
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
        same = {place: kept for place, kept in of_rows[0].items() if all(each.get(place) == kept for each in of_rows)}
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
        return {place: tuple((key, value[skipped[place[0]] :]) for key, value in kept) for place, kept in rows.items()}


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
