"""Runs of a topology that nothing disturbs, in which mistakes of the user's functions show by themselves.

Each run is one task over all records, with a copy of the topology as a process of its own would load it. What every
operator makes of every record is noted, so that the first difference between two runs names the node and the record.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

from penstock.config import StreamsConfig
from penstock.engines.spark.topology_bytes import AppCopies
from penstock.errors import PenstockError
from penstock.runtime.local_task import LocalTask, TaskRows
from penstock.runtime.rows import RawRecord
from penstock.serde.base import BaseSerde
from penstock.testing.simulation.records import RecordTexts, described
from penstock.testing.simulation.run import Input
from penstock.topology.configured import with_settings
from penstock.topology.nodes import ProcessorNode, SinkNode
from penstock.topology.operations.definitions import Process
from penstock.topology.operations.functions import Function
from penstock.topology.plan.internal_topics import changelog_topic
from penstock.topology.topology import Topology

__all__ = ["KINDS", "Mistake", "UndisturbedRuns"]

KINDS = ("exception", "nondeterministic", "wall-clock", "state-outside", "order", "growth")
_CLOCK_MS = 1_700_000_000_000
_LATER_MS = 4_000_000
_TICKS = (1, 3)  # after how many records the wall clock is advanced
_TICK_MS, _REST_MS = 7_000, 3_600_000
_ROUNDS = 4
_MOST_RESTARTS = 50
_DAY_MS = 86_400_000
_LEAST_BYTES = 32
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

Written = tuple[str, bytes | None, bytes | None, int]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in the user's functions that will give wrong results some day.

    Attributes:
        kind: One of KINDS.
        text: What happens, where, and what to do.
        node: The node; empty if several take part.
        record: The record that shows it; empty if all do.
    """

    kind: str
    text: str
    node: str = ""
    record: str = ""


@dataclass(slots=True)
class _Step:
    """The records written because of one record, or because the wall clock has advanced (None)."""

    cause: Input | None
    written: list[Written]


@dataclass(slots=True)
class _Trace:
    steps: list[_Step]
    rows: TaskRows


class UndisturbedRuns:
    """Runs of one topology over the same records.

    Args:
        topology: The topology.
        config: The settings.
        inputs: The records, in the order in which they come.

    Attributes:
        held: The kinds of mistakes that were looked for in vain.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, inputs: Sequence[Input]) -> None:
        self._topology = with_settings(topology, config)
        self._config = config
        self._inputs = inputs
        traced = _traced(self._topology)
        self._texts = RecordTexts(traced)
        self._copies = AppCopies(traced, config)
        self.held: list[str] = []

    def mistakes(self) -> list[Mistake]:
        """Return the mistakes that show; after an error of a function no others are looked for."""
        try:
            first = self._first
        except _FunctionError as failed:
            return [self._of_error(failed)]
        mistakes = []
        for kind, look in (
            ("nondeterministic", self._nondeterministic),
            ("wall-clock", self._wall_clock),
            ("state-outside", self._state_outside),
            ("growth", self._growth),
        ):
            try:
                mistake = look(first)
            except _FunctionError as failed:
                mistake = self._of_error(failed)
            if mistake is None:
                self.held.append(kind)
            else:
                mistakes.append(mistake)
                if mistake.kind == "nondeterministic":  # all that follows would differ for the same reason
                    break
        return mistakes

    @cached_property
    def _first(self) -> _Trace:
        return self._run()

    def dynamic_topics(self) -> set[str]:
        """Return the topics whose names functions of the topology have chosen."""
        named = {node.topic for node in self._topology.sinks} | set(self._topology.internal_topics)
        written = {topic for step in self._first.steps for topic, *_ in step.written}
        own = {_trace_topic(name) for name in self._topology.nodes} | set(self._store_topics.values())
        return written - named - own

    def by_the_clock(self) -> set[str]:
        """Return the topics and stores that punctuations by the wall clock write."""
        written = {
            topic for trace in self._ticked for step in trace.steps if step.cause is None for topic, *_ in step.written
        }
        return written | {store for store, topic in self._store_topics.items() if topic in written}

    @cached_property
    def _ticked(self) -> list[_Trace]:
        """Runs in which the wall clock advances: at the end, and at other times."""
        return [self._run(ticks=0), *(self._run(ticks=ticks) for ticks in _TICKS)]

    # The kinds of mistakes

    def _of_error(self, failed: _FunctionError) -> Mistake:
        error, record = failed.error, self._record(failed.cause)
        node = str(error.facts.get("node", "")) if isinstance(error, PenstockError) else ""
        what = error.message if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        hint = f" {error.hint}" if isinstance(error, PenstockError) and error.hint else ""
        return Mistake("exception", f"With {record}: {what}.{hint}", node, record)

    def _nondeterministic(self, first: _Trace) -> Mistake | None:
        return self._compared(
            first,
            self._run(),
            "nondeterministic",
            "{node} returns something else for the same record: of {record} one run made {one}, another {other}. "
            "Does it use random numbers, the time, ids, or the order of a set? After a crash the record is processed "
            "again, and results that others have derived from the first do not fit any more.",
        )

    def _wall_clock(self, first: _Trace) -> Mistake | None:
        of_punctuation = self._punctuation()  # always: its runs show errors of punctuations, too
        return self._clock_read(first) or of_punctuation

    def _clock_read(self, first: _Trace) -> Mistake | None:
        with _later_clock():
            later = self._run(clock_ms=_CLOCK_MS + _LATER_MS)
        return self._compared(
            first,
            later,
            "wall-clock",
            "{node} depends on the wall clock: of {record} it made {one}, and {other} when processed later. "
            "Use the record's timestamp, which is the same when the record is processed again.",
        )

    def _state_outside(self, first: _Trace) -> Mistake | None:
        mistake = self._compared(
            first,
            self._run(restarts=True),
            "state-outside",
            "{node} remembers something outside of its stores: of {record} it made {one}, but {other} after a restart. "
            "Attributes, globals and closures are lost with the process, and no other instance has them: keep it in a "
            "state store.",
        )
        unlogged = [name for name, spec in self._topology.stores.items() if not spec.is_restorable]
        if mistake is None or not unlogged:
            return mistake
        return replace(mistake, text=f"{mistake.text} No changelog restores {', '.join(unlogged)}, either.")

    def _punctuation(self) -> Mistake | None:
        at_the_end, *others = self._ticked
        for during in others:
            for topic in self._results:
                one, other = (_last_by_key(trace, topic) for trace in (at_the_end, during))
                for key in [key for key in one | other if one.get(key) != other.get(key)]:
                    shown = partial(self._texts.value, topic)
                    text = (
                        f"What is written to {topic} depends on when the wall clock passes: the last record of key "
                        f"{self._texts.key(topic, key)} is {shown(one.get(key))} if the punctuation runs after all "
                        f"records, and {shown(other.get(key))} if it runs in between. Punctuate by stream time, or "
                        "write what is right whenever it runs, such as the present total in place of the change."
                    )
                    node = next((name for name, topics in self._writers.items() if topic in topics), "")
                    return Mistake("wall-clock", text, node)
        return None

    def _growth(self, _: _Trace) -> Mistake | None:
        """Look for stores that grow when the same records come again and again, later each time."""
        sizes: list[dict[str, tuple[int, int]]] = []
        rows: TaskRows | None = None
        times = [each.timestamp for each in self._inputs]
        kept = max((max(s.retention_ms, s.history_ms, s.ttl_ms) for s in self._topology.stores.values()), default=0)
        step = max(times) - min(times) + kept + _DAY_MS
        for number in range(_ROUNDS):
            later = [replace(each, timestamp=each.timestamp + number * step) for each in self._inputs]
            rows = self._run(inputs=later, restored=rows, clock_ms=_CLOCK_MS + number * step).rows
            sizes.append({name: (len(kept), _bytes(kept)) for name, kept in rows.stores.items()})
        for store in self._topology.stores:
            counts = [size[store][0] for size in sizes]
            if _grows(counts, 1):
                return self._grown(store, f"{_series(counts)} rows")
            in_bytes = [size[store][1] for size in sizes]
            if _grows(in_bytes, max(_LEAST_BYTES, in_bytes[0] // 4)):
                return self._grown(store, f"{_series(in_bytes)} bytes in {counts[-1]} rows")
        return None

    def _grown(self, store: str, sizes: str) -> Mistake:
        count = len(self._inputs)
        nodes = [name for name, node in self._topology.nodes.items() if getattr(node, "stores", ()) == (store,)]
        text = (
            f"Store {store} grows with the number of records, not of keys: {sizes} after {count}, {2 * count}, "
            f"{3 * count} and {4 * count} records, which were the same records each time, only later. It needs an end: "
            "delete rows, use a window store with a retention, or one with a time to live."
        )
        return Mistake("growth", text, nodes[0] if nodes else "")

    # Runs

    def _run(
        self,
        *,
        inputs: Sequence[Input] | None = None,
        clock_ms: int = _CLOCK_MS,
        restarts: bool = False,
        ticks: int | None = None,
        restored: TaskRows | None = None,
    ) -> _Trace:
        """Process the records one by one.

        Args:
            inputs: The records.
            clock_ms: The wall clock, which stands still.
            restarts: Whether new processes go on, after each record if these are not many, which only get the stores.
            ticks: The wall clock advances after each so many records, and at the end; 0: only then; None: never.
            restored: The rows to begin with.
        """
        written: list[Written] = []
        steps: list[_Step] = []

        def write(record: RawRecord) -> None:
            written.append((record.topic, record.key, record.value, record.timestamp))

        def start(rows: TaskRows | None) -> LocalTask:
            topology, config = self._copies.copy()
            return LocalTask(topology, config, write, wall_clock_ms=clock_ms, logs_changes=True, restored=rows)

        def do(cause: Input | None, action: Callable[[], None]) -> None:
            nonlocal written
            try:
                action()
            except Exception as error:
                raise _FunctionError(cause, error) from error
            steps.append(_Step(cause, written))
            written = []

        task = start(restored)
        every = -(-len(self._inputs) // _MOST_RESTARTS)
        offsets: dict[tuple[str, int], int] = {}
        for number, each in enumerate(inputs or self._inputs, 1):
            partition = (each.topic, each.partition)
            offsets[partition] = offset = offsets.get(partition, -1) + 1
            record = RawRecord(each.topic, offset, each.timestamp, each.key, each.value, each.headers, each.partition)
            do(each, partial(task.process, [record]))
            if restarts and number % every == 0:
                rows = self._restorable(task.rows())
                task.close()
                task = start(rows)
            if ticks and number % ticks == 0:
                do(None, partial(task.pass_time, _TICK_MS))
        if ticks is not None:
            do(None, partial(task.pass_time, _REST_MS))
        rows = task.rows()
        task.close()
        return _Trace(steps, rows)

    def _restorable(self, rows: TaskRows) -> TaskRows:
        stores = self._topology.stores
        of_globals = self._topology.global_stores
        kept = {name: each for name, each in rows.stores.items() if name in of_globals or stores[name].is_restorable}
        return replace(rows, stores=kept)

    def _compared(self, one: _Trace, other: _Trace, kind: str, text: str) -> Mistake | None:
        """Return the mistake that the first difference of two runs shows; None if there is none."""
        for step, same in zip(one.steps, other.steps, strict=True):
            if step.written == same.written:
                continue
            for name, topics in self._writers.items():
                by_one, by_other = _of_topics(step, topics), _of_topics(same, topics)
                if by_one != by_other:
                    at = next(at for at in range(len(by_one) + 1) if by_one[at : at + 1] != by_other[at : at + 1])
                    record = self._record(step.cause)
                    facts = {
                        "node": _located(self._topology.nodes[name]),
                        "record": record,
                        "one": self._made(by_one, at),
                        "other": self._made(by_other, at),
                    }
                    return Mistake(kind, text.format(**facts), name, record)
        return None

    def _made(self, written: Sequence[Written], at: int) -> str:
        if at >= len(written):
            return "nothing more" if written else "nothing"
        topic, key, value, timestamp = written[at]
        return f"{self._texts.key(topic, key)}: {self._texts.value(topic, value)} at {timestamp}"

    def _record(self, cause: Input | None) -> str:
        if cause is None:
            return "a punctuation"
        same = next((each for each in self._inputs if each is cause), None)
        if same is None:  # of a later round: the record that it repeats
            same = next(each for each in self._inputs if replace(cause, timestamp=each.timestamp) == each)
        return described(same, self._inputs, self._texts)

    @cached_property
    def _store_topics(self) -> Mapping[str, str]:
        return {name: changelog_topic(self._config["application.id"], name) for name in self._topology.stores}

    @cached_property
    def _writers(self) -> dict[str, list[str]]:
        """The topics in which it is noted what a node has made, by the node, in the order of the topology."""
        writers: dict[str, list[str]] = {}
        for name, node in self._topology.nodes.items():
            if isinstance(node, ProcessorNode):
                writers[name] = [_trace_topic(name), *(self._store_topics[store] for store in node.stores)]
            elif isinstance(node, SinkNode):
                writers[name] = [node.topic] if node.topic is not None else sorted(self._chosen(node))
        return writers

    def _chosen(self, node: SinkNode) -> set[str]:
        return self.dynamic_topics() if node.topic_fn is not None else set()

    @cached_property
    def _results(self) -> list[str]:
        """The topics that others read, and the changelogs of stores if there are none."""
        internal = self._topology.internal_topics
        topics = {node.topic for node in self._topology.sinks if node.topic is not None and node.topic not in internal}
        return sorted(topics) or sorted(self._store_topics.values())


class _FunctionError(Exception):
    """An error while a record was processed."""

    def __init__(self, cause: Input | None, error: Exception) -> None:
        super().__init__(str(error))
        self.cause = cause
        self.error = error


class _Text(str):
    """A text that is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Shown(BaseSerde):
    """Any value as its text, to be compared."""

    name = "shown"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else _ADDRESS.sub("", repr(value)).encode()

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else _Text(data.decode())


def _trace_topic(node: str) -> str:
    return f"made by {node}"


def _traced(topology: Topology) -> Topology:
    """Return the topology with a sink beneath each operator, in which it is noted what that has made."""
    nodes = dict(topology.nodes)
    global_nodes = topology.global_nodes
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode) and name not in global_nodes:
            topic = _trace_topic(name)
            nodes[topic] = SinkNode(topic, topic, _Shown(), _Shown(), (name,))
    return replace(topology, nodes=nodes)


@contextmanager
def _later_clock() -> Iterator[None]:
    """Have the functions of the module ``time`` return a later time."""
    before = time.time, time.time_ns
    time.time = lambda: before[0]() + _LATER_MS / 1000
    time.time_ns = lambda: before[1]() + _LATER_MS * 1_000_000
    try:
        yield
    finally:
        time.time, time.time_ns = before


def _of_topics(step: _Step, topics: Sequence[str]) -> list[Written]:
    return [each for topic in topics for each in step.written if each[0] == topic]


def _last_by_key(trace: _Trace, topic: str) -> dict[bytes | None, bytes | None]:
    return {key: value for step in trace.steps for where, key, value, _ in step.written if where == topic}


def _located(node: Any) -> str:
    """Name a node, with the user's function in it."""
    operation = getattr(node, "operation", None)
    if isinstance(operation, Process):
        supplier = operation.supplier
        return f"{node.name} ({getattr(supplier, '__qualname__', type(supplier).__name__)})"
    if operation is not None and dataclasses.is_dataclass(operation):
        functions = [value for each in dataclasses.fields(operation) if (value := getattr(operation, each.name, None))]
        located = [each.location for each in functions if isinstance(each, Function)]
        if located:
            return f"{node.name}, {located[0]},"
    return str(node.name)


def _bytes(rows: Sequence[tuple[bytes, bytes]]) -> int:
    return sum(len(key) + len(value) for key, value in rows)


def _grows(sizes: Sequence[int], least: int) -> bool:
    """Return whether each round adds about what the one before has added."""
    added = [after - before for before, after in pairwise(sizes)]
    return min(added) >= least and added[-1] >= 0.8 * added[0]


def _series(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:-1])) + f" and {sizes[-1]}"
