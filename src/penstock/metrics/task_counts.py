"""What a task counts: the records that its batches have read, written, dropped and emitted, and times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EXAMPLES", "FLUSH", "OTHER_ERRORS", "OTHER_REASONS", "Cause", "Example", "Spread", "TaskCounts"]

OTHER_REASONS = "other reasons"  # in place of those of an operator that would be too many
OTHER_ERRORS = "other errors"  # in place of their classes
EXAMPLES = 3  # of a cause: the newest ones
FLUSH = "flush"  # the call whose numbers are flushes, rows, bytes and seconds

_SPREADS = ("seconds", "lateness_ms", "punctuations")
_BY_TOPIC = ("consumed", "produced")
_BY_NODE = ("emitted", "emit_seconds", "e2e_latency_ms")
_NUMBERS = ("read", "reasons", "reported", "errors")
_LISTS = (*_BY_TOPIC, "nodes", "stores")


@dataclass(slots=True)
class Spread:
    """The number, sum, minimum and maximum of measured values."""

    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def document(self) -> list[float | None] | None:
        """Return it for JSON; None without values."""
        if not self.count:
            return None
        return [self.count, self.total, *(None if math.isinf(edge) else edge for edge in (self.low, self.high))]

    @classmethod
    def of_document(cls, document: list[Any] | None) -> Spread:
        """Return what `document` has written."""
        if document is None:
            return cls()
        count, total, low, high = document
        return cls(int(count), total, math.inf if low is None else low, -math.inf if high is None else high)

    def add(self, total: float, count: int, low: float, high: float) -> None:
        """Add values by their sum, number, minimum and maximum."""
        if count:
            self.count += count
            self.total += total
            self.low = min(self.low, low)
            self.high = max(self.high, high)

    def add_one(self, value: float) -> None:
        """Add one value."""
        self.count += 1
        self.total += value
        if value < self.low:  # noqa: PLR1730 - min() and max() are calls
            self.low = value
        if value > self.high:  # noqa: PLR1730
            self.high = value

    def merge(self, other: Spread) -> None:
        """Add the values of another one."""
        self.add(other.total, other.count, other.low, other.high)

    def since(self, before: Spread) -> Spread:
        """Return the number and sum since an earlier state of this one, with the present extremes."""
        return Spread(self.count - before.count, self.total - before.total, self.low, self.high)

    def add_all(self, values: NDArray[np.int64]) -> None:
        """Add the values of an array."""
        if len(values) == 1:
            self.add_one(float(values[0]))
        elif len(values):
            self.add(float(values.sum()), len(values), float(values.min()), float(values.max()))


class Cause(NamedTuple):
    """The reason of drops: an operator, a class of exception and a line of the user's code.

    Attributes:
        node: The operator.
        reason: The class of the exception, or fixed words such as "null key"; never the text of an error.
        function: The function that raised; empty for drops without an exception.
        file: Its file.
        line: The line that raised.
    """

    node: str
    reason: str
    function: str = ""
    file: str = ""
    line: int = 0


class Example(NamedTuple):
    """A record of a cause.

    Attributes:
        topic: Its topic; empty if it is not known.
        partition: Its partition.
        offset: Its offset.
        said: The text of the exception, where texts of records may be shown.
    """

    topic: str
    partition: int
    offset: int
    said: str = ""


@dataclass(slots=True)
class TaskCounts:
    """The counts of a task since they were last taken.

    Attributes:
        processed: The records that it has processed.
        seconds: The time of its batches a record, as means of the batches.
        dropped: The dropped records.
        lateness_ms: How far records were behind stream time.
        punctuations: The seconds of each punctuation.
        read: Source node -> records that it has decoded.
        consumed: (source node, topic) -> records, bytes.
        produced: (sink node, topic) -> records, bytes.
        emitted: Node -> records that a suppression or closed windows have sent.
        emit_seconds: Node -> seconds of each look for closed windows.
        e2e_latency_ms: Source or last node -> age of records when it was done with them.
        reasons: (node, reason) -> dropped records.
        causes: Cause -> dropped records; the same as the reasons, by the line of code as well.
        examples: Cause -> its newest records, at most `EXAMPLES`.
        reported: Function or column -> errors that were reported and not raised.
        errors: (node, class of the exception, what its handler said) -> errors.
        nodes: Operator -> rows in, rows out, its own seconds.
        stores: (store, call such as ``get``) -> its keys and seconds; of `FLUSH` flushes, rows, bytes, seconds.
    """

    processed: int = 0
    seconds: Spread = field(default_factory=Spread)
    dropped: int = 0
    lateness_ms: Spread = field(default_factory=Spread)
    punctuations: Spread = field(default_factory=Spread)
    read: dict[str, int] = field(default_factory=dict)
    consumed: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    produced: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    emitted: dict[str, Spread] = field(default_factory=dict)
    emit_seconds: dict[str, Spread] = field(default_factory=dict)
    e2e_latency_ms: dict[str, Spread] = field(default_factory=dict)
    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    causes: dict[Cause, int] = field(default_factory=dict)
    examples: dict[Cause, list[Example]] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    errors: dict[tuple[str, str, str], int] = field(default_factory=dict)
    nodes: dict[str, list[float]] = field(default_factory=dict)
    stores: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add_cause(self, cause: Cause, count: int, examples: Sequence[Example]) -> None:
        """Add dropped records of a cause, and its newest ones."""
        self.causes[cause] = self.causes.get(cause, 0) + count
        if examples:
            self.examples[cause] = [*self.examples.get(cause, ()), *examples][-EXAMPLES:]

    def merge(self, other: TaskCounts) -> None:
        """Add the counts of another one."""
        self.processed += other.processed
        self.dropped += other.dropped
        for cause, count in other.causes.items():
            self.add_cause(cause, count, other.examples.get(cause, ()))
        for name in _SPREADS:
            getattr(self, name).merge(getattr(other, name))
        for name in _BY_NODE:
            mine = getattr(self, name)
            for node, spread in getattr(other, name).items():
                mine.setdefault(node, Spread()).merge(spread)
        for name in _NUMBERS:
            mine = getattr(self, name)
            for at, count in getattr(other, name).items():
                mine[at] = mine.get(at, 0) + count
        for name in _LISTS:
            mine = getattr(self, name)
            for at, counts in getattr(other, name).items():
                mine[at] = [a + b for a, b in zip(mine.get(at) or [0] * len(counts), counts, strict=True)]

    def since(self, before: TaskCounts) -> TaskCounts:
        """Return what has been counted since an earlier state of these counts."""
        new = TaskCounts(self.processed - before.processed, dropped=self.dropped - before.dropped)
        for name in _SPREADS:
            setattr(new, name, getattr(self, name).since(getattr(before, name)))
        for name in _BY_NODE:
            was = getattr(before, name)
            setattr(new, name, {n: s.since(was.get(n, Spread())) for n, s in getattr(self, name).items()})
        for name in _NUMBERS:
            was = getattr(before, name)
            left = {at: count - was.get(at, 0) for at, count in getattr(self, name).items()}
            setattr(new, name, {at: count for at, count in left.items() if count})
        for name in _LISTS:
            was = getattr(before, name)
            lists = {
                at: [a - b for a, b in zip(counts, was.get(at) or [0] * len(counts), strict=True)]
                for at, counts in getattr(self, name).items()
            }
            setattr(new, name, {at: counts for at, counts in lists.items() if any(counts)})
        counted = {cause: count - before.causes.get(cause, 0) for cause, count in self.causes.items()}
        new.causes = {cause: count for cause, count in counted.items() if count}
        new.examples = {each: self.examples[each][-n:] for each, n in new.causes.items() if each in self.examples}
        return new

    def forget_extremes(self) -> None:
        """Forget the smallest and largest values; sums and numbers stay."""
        spreads = [getattr(self, name) for name in _SPREADS]
        for spread in (*spreads, *(each for name in _BY_NODE for each in getattr(self, name).values())):
            spread.low, spread.high = math.inf, -math.inf

    def document(self) -> dict[str, Any]:
        """Return the counts for JSON, those of nothing left out."""
        fields: dict[str, Any] = {
            "processed": self.processed,
            "dropped": self.dropped,
            "read": dict(self.read),
            "reported": dict(self.reported),
            "nodes": dict(self.nodes),
        }
        fields |= {name: getattr(self, name).document() for name in _SPREADS}
        fields |= {name: [[*at, *counts] for at, counts in getattr(self, name).items()] for name in _BY_TOPIC}
        fields |= {name: {node: one.document() for node, one in getattr(self, name).items()} for name in _BY_NODE}
        fields["reasons"] = [[*at, count] for at, count in self.reasons.items()]
        fields["errors"] = [[*at, count] for at, count in self.errors.items()]
        fields["causes"] = [
            [*cause, count, [list(each) for each in self.examples.get(cause, ())]]
            for cause, count in self.causes.items()
        ]
        fields["stores"] = [[*at, *counts] for at, counts in self.stores.items()]
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> TaskCounts:
        """Return what `document` has written.

        >>> counts = TaskCounts(3, consumed={("source", "in"): [3, 90]}, reasons={("source", "late"): 1})
        >>> counts.add_cause(Cause("source", "ValueError", "f", "app.py", 3), 1, [Example("in", 0, 7, "late")])
        >>> counts.errors["source", "ValueError", "continue"] = 2
        >>> counts.e2e_latency_ms["source"] = Spread(3, 30.0, 5.0, 15.0)
        >>> TaskCounts.of_document(counts.document()) == counts
        True
        """
        counts = cls(document.get("processed", 0), dropped=document.get("dropped", 0))
        counts.read, counts.nodes = dict(document.get("read", {})), dict(document.get("nodes", {}))
        counts.reported = dict(document.get("reported", {}))
        for name in _SPREADS:
            setattr(counts, name, Spread.of_document(document.get(name)))
        for name in _BY_TOPIC:
            entries = {(node, topic): [records, size] for node, topic, records, size in document.get(name, ())}
            setattr(counts, name, entries)
        for name in _BY_NODE:
            spreads = {node: Spread.of_document(one) for node, one in document.get(name, {}).items()}
            setattr(counts, name, spreads)
        counts.reasons = {(node, why): count for node, why, count in document.get("reasons", ())}
        counts.errors = {(node, kind, action): count for node, kind, action, count in document.get("errors", ())}
        for *cause, count, examples in document.get("causes", ()):
            counts.add_cause(Cause(*cause), count, [Example(*each) for each in examples])
        counts.stores = {(store, call): numbers for store, call, *numbers in document.get("stores", ())}
        return counts
