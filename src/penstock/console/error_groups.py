"""Errors and drops in groups: one for each operator, class of exception and line of the user's code.

A group has its counts by minute of the last hour and its newest records. Groups are kept over restarts for a day; their
number, their examples and all texts are bounded, whatever records make a function raise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.engines.spark.progress import BatchProgress, counted_by
from penstock.metrics.task_counts import EXAMPLES as OF_A_TASK
from penstock.metrics.task_counts import OTHER_REASONS, Cause, Example

__all__ = ["EXAMPLES", "MINUTES", "MOST_GROUPS", "ErrorGroup", "ErrorGroups", "GroupExample"]

MOST_GROUPS = 100
EXAMPLES = 5
MINUTES = 60
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000
_MOST_CHARACTERS = 300  # of an example's text, a name or a path
_TEXTS = {"node", "kind", "function", "file", "task", "topic", "said"}  # all other values are whole numbers


@dataclass(frozen=True, slots=True)
class GroupExample:
    """A record of a group.

    Attributes:
        time_ms: When it was counted, on the clock of the driver.
        task: The task that read it.
        topic: Its topic; empty if it is not known.
        partition: Its partition.
        offset: Its offset.
        said: The text of the exception, where texts of records may be shown.
    """

    time_ms: int
    task: str
    topic: str = ""
    partition: int = -1
    offset: int = -1
    said: str = ""

    @property
    def place(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset; None if they are not known."""
        return (self.topic, self.partition, self.offset) if self.topic else None


@dataclass(slots=True)
class ErrorGroup:
    """Records that an operator has dropped or failed for, for one reason, at one line of the user's code.

    Attributes:
        node: The operator.
        kind: The class of the exception, or fixed words such as "null key".
        function: The function that raised; empty for drops without an exception.
        file: Its file.
        line: The line that raised.
        records: Their number.
        ended: How often one of them has ended the application.
        first_ms: The time of the first one.
        newest_ms: The time of the newest one.
        minutes: Minutes of the last hour (since 1970) with their records, oldest first, without those that have none.
        examples: The newest records, the newest last.
    """

    node: str
    kind: str
    function: str = ""
    file: str = ""
    line: int = 0
    records: int = 0
    ended: int = 0
    first_ms: int = 0
    newest_ms: int = 0
    minutes: list[tuple[int, int]] = field(default_factory=list)
    examples: deque[GroupExample] = field(default_factory=lambda: deque(maxlen=EXAMPLES))

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What makes it one group."""
        return self.node, self.kind, self.function, self.file, self.line

    @property
    def newest(self) -> GroupExample | None:
        """The newest record; None if none is known."""
        return self.examples[-1] if self.examples else None

    @property
    def place(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the newest record of which they are known."""
        return next((each.place for each in reversed(self.examples) if each.place), None)

    @property
    def reason(self) -> str:
        """The class, with the text of the newest error where it may be shown."""
        said = next((each.said for each in reversed(self.examples) if each.said), "")
        return f"{self.kind}: {said}" if said else self.kind

    def add(self, count: int, now_ms: int, examples: Sequence[GroupExample]) -> None:
        """Add records."""
        self.first_ms = self.first_ms or now_ms
        self.records += count
        self.newest_ms = max(self.newest_ms, now_ms)
        minute = now_ms // _MINUTE_MS
        if self.minutes and self.minutes[-1][0] >= minute:
            self.minutes[-1] = (self.minutes[-1][0], self.minutes[-1][1] + count)
        else:
            self.minutes.append((minute, count))
        self.minutes = [each for each in self.minutes if each[0] > minute - MINUTES]
        # A record that fails again is there once, with its last time.
        new = {_record_of(each): each for each in examples}
        kept = [each for each in self.examples if _record_of(each) not in new]
        self.examples = deque((*kept, *new.values()), maxlen=EXAMPLES)

    def merge(self, other: ErrorGroup) -> None:
        """Add the records of another group, of an earlier time or a kind that is not kept."""
        counts = dict(self.minutes)
        for minute, count in other.minutes:
            counts[minute] = counts.get(minute, 0) + count
        self.minutes = sorted(counts.items())[-MINUTES:]
        self.first_ms = min(self.first_ms or other.first_ms, other.first_ms)
        self.newest_ms = max(self.newest_ms, other.newest_ms)
        self.records += other.records
        self.ended += other.ended
        both = sorted((*self.examples, *other.examples), key=lambda each: each.time_ms)
        self.examples = deque(both, maxlen=EXAMPLES)

    def by_minute(self, now_ms: int) -> list[int]:
        """Return the records of each minute of the last hour, the present one last."""
        counts, last = dict(self.minutes), now_ms // _MINUTE_MS
        return [counts.get(minute, 0) for minute in range(last - MINUTES + 1, last + 1)]

    def row(self) -> dict[str, Any]:
        """Return it for JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("minutes", "examples")}
        minutes = [list(each) for each in self.minutes]
        return {**fields, "minutes": minutes, "examples": [asdict(each) for each in self.examples]}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ErrorGroup:
        """Return what `row` has written.

        >>> group = ErrorGroup("MAP", "ValueError", "parse", "app.py", 17)
        >>> group.add(3, 60_000, [GroupExample(60_000, "0_0", "in", 0, 7, "no number")])
        >>> ErrorGroup.of_row(group.row()) == group
        True
        """
        minutes = [(int(minute), int(count)) for minute, count in row["minutes"]][-MINUTES:]
        examples = deque((GroupExample(**_checked(each)) for each in row["examples"]), maxlen=EXAMPLES)
        facts = {name: value for name, value in row.items() if name not in ("minutes", "examples")}
        return cls(**_checked(facts), minutes=minutes, examples=examples)


class ErrorGroups:
    """The groups of an application.

    >>> groups = ErrorGroups()
    >>> for number in range(10_000):
    ...     cause, example = Cause("MAP", "ValueError", "parse", "app.py", 17), Example("in", 0, number, str(number))
    ...     _ = groups.add("0_0", cause, 1, [example], 0)
    >>> [(each["records"], len(each["examples"])) for each in groups.rows(0)]
    [(10000, 5)]
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str, str, int], ErrorGroup] = {}

    def add_batch(self, progress: BatchProgress, now_ms: int) -> None:
        """Add what the tasks of a batch have dropped."""
        for task in progress.tasks:
            for counts in counted_by(task):
                for *cause, count, examples in counts.get("causes", ()):
                    self.add(task["task"], Cause(*cause), count, [Example(*each) for each in examples], now_ms)

    def add(self, task: str, cause: Cause, count: int, examples: Sequence[Example], now_ms: int) -> ErrorGroup:
        """Add records of a cause; return their group."""
        cause = Cause(*map(_cut, cause))
        group = self._groups.pop(cause, None) or ErrorGroup(*cause)
        self._groups[cause] = group  # the last one is the newest
        group.add(count, now_ms, [_example(task, each, now_ms) for each in examples[-OF_A_TASK:]])
        self._bound(now_ms)
        return group

    def add_end(self, facts: Mapping[str, Any], said: str, now_ms: int) -> None:
        """Add the record that has ended the application.

        Args:
            facts: Those of the error: node, kind, the line that raised, the record.
            said: The text of the error, as far as it may be shown.
            now_ms: The time.
        """
        cause = Cause(facts["node"], facts["kind"], facts["function"], facts["file"], facts["line"])
        topic, partition, offset = facts["record"] or ("", -1, -1)
        examples = [Example(topic, partition, offset, said)] if topic or said else []
        self.add(facts["task"], cause, 1, examples, now_ms).ended += 1

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        """Return the groups of the last day for JSON."""
        return [each.row() for each in self._groups.values() if each.newest_ms > now_ms - _DAY_MS]

    def recall(self, rows: Any) -> None:
        """Go on with what `rows` has returned; what another version or hand has written is left out."""
        with suppress(KeyError, TypeError, ValueError):
            for row in rows:
                group = ErrorGroup.of_row(row)
                self._groups[group.key] = group
        self._bound(max((each.newest_ms for each in self._groups.values()), default=0))

    def _bound(self, now_ms: int) -> None:
        """Join groups beside the newest to one for each operator: silent ones, then those with the fewest records."""
        hour_ms = now_ms - _HOUR_MS
        while len(self._groups) > MOST_GROUPS:
            *old, _ = self._groups.values()
            least = min(old, key=lambda each: (each.kind == OTHER_REASONS, each.newest_ms > hour_ms, each.records))
            del self._groups[least.key]
            if least.kind == OTHER_REASONS:
                continue  # as many operators: one of them is not shown
            others = Cause(least.node, OTHER_REASONS)
            self._groups.setdefault(others, ErrorGroup(*others)).merge(least)


def _record_of(example: GroupExample) -> object:
    return example.place or example.said


def _checked(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of a document whose values have the types that they are written with."""
    for name, value in row.items():
        if not isinstance(value, str if name in _TEXTS else int):
            raise TypeError(f"{name} is {value!r}")
    return row


def _cut(value: Any) -> Any:
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value


def _example(task: str, example: Example, now_ms: int) -> GroupExample:
    return GroupExample(now_ms, task, *map(_cut, example))
