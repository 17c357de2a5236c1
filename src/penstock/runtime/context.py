"""The task as its operators see it: stores, tables, time, failures."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from penstock.api.processing.processor import Record
from penstock.base.clock import unix_ms
from penstock.base.escapes import visible
from penstock.base.log_lines import own_logger
from penstock.config.definitions import hides_records
from penstock.errors import (
    AuthenticationError,
    AuthorizationError,
    FencedError,
    PenstockError,
    ProcessingError,
    SerializationError,
    TopologyError,
)
from penstock.metrics.task_counts import EXAMPLES, Cause, Example
from penstock.runtime.dead_letters import DeadLetter, ErrorContext, Origin
from penstock.runtime.error_reporting import DropLines, function_of, line_of
from penstock.runtime.exception_handlers import Change, Handler, Response, TopicRecord, handler_of, is_decided
from penstock.runtime.punctuation import PunctuationQueue
from penstock.runtime.rows import Headers, Place, RecordContext, TaskInput
from penstock.runtime.sensor import Sensor
from penstock.serde.bound_serdes import CurrentHeaders, plain_headers
from penstock.state.views import open_view
from penstock.topology.nodes import SourceNode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.config import StreamsConfig
    from penstock.runtime.global_stores import GlobalViews
    from penstock.runtime.operator import TableView
    from penstock.runtime.rows import Row, Rows
    from penstock.state.changelog.formats import CurrentRecord
    from penstock.state.maps import Journal, Journalled, TaskState
    from penstock.topology.operations.functions import Function
    from penstock.topology.stores import StoreSpec
    from penstock.topology.topology import Topology

__all__ = ["STREAM_TIME", "RecordFailure", "Running", "TaskEnvironment", "TaskContext", "partition_time_meta"]

STREAM_TIME = "stream_time"  # the name of the number that is the task's stream time

_NO_INPUT = TaskInput((), ordered=True)
_NOTHING = nullcontext()
_Shared = TypeVar("_Shared")
_LOG = own_logger("penstock.runtime")
_MOST_OF_A_TEXT = 1_000  # characters of an error's text, in the log and in the figures
_MOST_OF_A_NAME = 200  # characters of the name of a class, which a user's code may make as it goes
_SHOWN = 200  # characters of a record in a message


def _one_note(timestamps: NDArray[np.int64], headers: list[Headers] | None) -> tuple[int, Headers] | None:
    """Return the time and the headers of all rows, if they have the same ones."""
    time, first = int(timestamps[0]), () if headers is None else headers[0]
    if len(timestamps) > 1 and ((timestamps != time).any() or any(each != first for each in headers or ())):
        return None
    return time, first


@dataclass(frozen=True)
class TaskEnvironment:
    """The parts of a process that a task uses beside its own state.

    Attributes:
        sensor: Its methods are called for each event.
        wall_clock_ms: The time at which the task starts; None takes the system's.
        global_stores: The stores that another task keeps up to date; None for that task itself.
        until_latest: Whether the run ends at the records that exist at its start. Nothing comes after them that could
            send what waits for the next look of a timer, so no look waits.
        current: Is kept at the record that is processed, for stores that note it; None: nobody asks.
        keeps_partition_times: Whether the time of each partition is among the task's numbers, as it is committed. That
            of a partition with a timestamp extractor always is, as the extractor asks for it.
    """

    sensor: Sensor = field(default_factory=Sensor)
    wall_clock_ms: int | None = None
    global_stores: GlobalViews | None = None
    until_latest: bool = False
    current: CurrentRecord | None = None
    keeps_partition_times: bool = False

    def start_ms(self) -> int:
        """Return the time at which the task starts."""
        return unix_ms() if self.wall_clock_ms is None else self.wall_clock_ms


def partition_time_meta(topic: str, partition: int) -> str:
    """Return the name of the number that is the largest time of a partition's records so far."""
    return f"partition_time:{topic}:{partition}"


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """An error of one record in an operator.

    Attributes:
        node: The operator's node.
        source: The source record.
        place: The place of the record's row, for the order of dead letters.
        error: The error.
    """

    node: str
    source: RecordContext
    place: Place
    error: Exception


@dataclass(slots=True)
class Running:
    """An operator that is called with rows.

    Attributes:
        node: Its node.
        rows: The rows.
        leaves_out_rows: As of `Operator`.
    """

    node: str
    rows: Rows
    leaves_out_rows: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state of things when an attempt began."""

    meta: dict[str, int]
    dropped: int
    causes: Counter[Cause]
    examples: dict[Cause, list[Example]]
    letters: int


class TaskContext:
    """The task as its operators, readers and sinks see it: stores, tables, time, failures."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        task_id: str,
        state: TaskState,
        environment: TaskEnvironment,
        tasks: int = 1,
    ) -> None:
        self.topology = topology
        self.task_id = task_id
        self.sensor = environment.sensor
        self.wall_clock_ms = environment.start_ms()
        self.batch = 0  # the number of the present part of a batch
        self.step = 0  # how often the record that is processed by itself has been passed on
        self.begun = 0  # batches so far
        self.stream_queue = PunctuationQueue()
        self.wall_clock_queue = PunctuationQueue()
        self.input = _NO_INPUT
        self.input_stream_times: NDArray[np.int64] = np.full(1, -1, np.int64)
        self._record_times: NDArray[np.int64] = np.full(2, -1, np.int64)  # of a record that is processed by itself
        self.dropped = 0
        self.letters: list[tuple[Place, DeadLetter]] = []
        self._config = config
        self._state = state
        self._globals = environment.global_stores
        self.until_latest = environment.until_latest
        self.current = environment.current
        self.keeps_partition_times = environment.keeps_partition_times
        self._physical_names: dict[str, str] = {}
        self._views: dict[str, Any] = {}
        self._forgetful: dict[str, Callable[[], int]] = {}  # of each store that drops what comes too late: how many
        self._tables: dict[str, TableView] = {}
        self._shared: dict[str, object] = {}
        self._causes: Counter[Cause] = Counter()
        self._examples: dict[Cause, list[Example]] = {}
        self._drops = DropLines(task_id, _LOG)
        self._hides_records = hides_records(config)
        self._may_go_on = config["processing.exception.handler"] != "fail"
        self._cache_bytes = int(config["statestore.cache.max.bytes"])
        self._tasks = tasks
        self.is_global = False
        self._failure: tuple[Function | None, Exception] | None = None
        self.headers: CurrentHeaders | None = None  # of the present record, if a serde of the task looks at them
        self.by_record = False  # whether operators are called with one record at a time
        self.in_parts = False  # whether the batch is processed in several parts
        self.is_last_part = True  # whether no further part of the batch follows the present one
        self.running: Running | None = None  # the operator of a pass over columns
        self._maps: dict[str, Journalled] = {}
        self._journal: Journal | None = None  # of the present attempt
        self._failed: set[int] | None = None  # positions of records, in an attempt: None, none has failed
        self._questions: list[tuple[Place, Callable[[], None]]] = []  # for when the attempt stays
        dead_letters = config.get("errors.dead.letter.queue.topic.name")
        self._handlers: dict[str, Handler] = {
            setting.partition(".")[0]: handler_of(config[setting], setting, dead_letters, config)
            for setting in (
                "deserialization.exception.handler",
                "processing.exception.handler",
                "production.exception.handler",
            )
        }

    def serve_global_stores(self) -> None:
        """Handle errors as Kafka does in global stores.

        Those of processors fail unless the setting says otherwise, and no dead letters are written.
        """
        self.is_global = True
        if not self._config["processing.exception.handler.global.enabled"]:
            self._handlers["processing"] = handler_of("fail", "processing.exception.handler", None)

    @property
    def config(self) -> StreamsConfig:
        """The application's settings."""
        return self._config

    def physical_name(self, topic: str) -> str:
        """Return a topic's name in the log; internal ones have the application's prefix."""
        name = self._physical_names.get(topic)
        if name is None:
            name = self._physical_names[topic] = self.topology.physical_name(topic, self._config["application.id"])
        return name

    @property
    def caching(self) -> bool:
        """Whether table operators send one change per key and batch."""
        return self._cache_bytes > 0

    def caches(self, spec: StoreSpec) -> bool:
        """Return whether a store has a cache."""
        return self.caching and spec.caching is not False

    @property
    def stream_time(self) -> int:
        """The task's stream time at the end of its input so far."""
        return self.get_meta(STREAM_TIME, -1)

    def begin(self, batch: TaskInput) -> None:
        """Start a batch: set its stream times, and clear everything kept for the one before."""
        self.batch += 1
        self.begun += 1
        self.input = batch
        before = self.stream_time
        if batch.length == 1:
            latest = max(batch.timestamps.item(), before)
            self.input_stream_times = np.array([latest, latest], np.int64)
        else:
            times = np.maximum(np.maximum.accumulate(batch.timestamps), before) if batch.length else batch.timestamps
            self.input_stream_times = np.append(times, times[-1] if batch.length else before)
            latest = int(self.input_stream_times[-1])
        if batch.length:
            self.put_meta(STREAM_TIME, latest)

    def begin_record(self, record: TaskInput, timestamp: int | None) -> int:
        """Start with a record that is processed by itself, None: it cannot be; return the task's stream time."""
        self.batch += 1
        self.begun += 1
        self.step = 0
        self.input = record
        meta = self._state.meta
        before = meta.get(STREAM_TIME, -1)
        self.input_stream_times = times = self._record_times
        if timestamp is None:
            times[0] = before
            return before
        meta[STREAM_TIME] = latest = max(timestamp, before)
        times[0] = times[1] = latest
        return latest

    @contextmanager
    def batch_of(self, rows: Rows) -> Iterator[None]:
        """Meanwhile an operator works on a batch of a row by itself; what fails in it is that row."""
        before, self.running = self.running, None if self.by_record else Running("", rows, leaves_out_rows=True)
        try:
            yield
        finally:
            self.running = before

    def let_go(self) -> None:
        """Forget the records of the batch, which are large perhaps: the next one may be long in coming."""
        self.input = _NO_INPUT

    def _count_late(self) -> None:
        """Count the records that the stores have dropped since the last call."""
        for name, take_dropped in self._forgetful.items():
            late = take_dropped()
            if late:
                self.drop(name, late, "too old for the store")

    def end(self) -> None:
        """Count the records that the stores have dropped, and log the drops of the batch."""
        self._count_late()
        if not self._causes:
            self._drops.write()
            return
        for cause, count in self._causes.items():
            examples = self._examples.get(cause, [])
            self._drops.add(cause, count, *_newest(cause, examples))
            self.sensor.on_dropped(self.task_id, cause.node, count, cause.reason)
            self.sensor.on_cause(self.task_id, cause, count, examples)
        self._causes.clear()
        self._examples.clear()
        self._drops.write()

    def close(self) -> None:
        """Log the drops that have waited for their line."""
        self._drops.write(closing=True)

    def store(self, name: str) -> Any:
        """Return the typed store view (`penstock.state.views`) of that name."""
        view = self._views.get(name)
        if view is None and self._globals is not None and name in self.topology.global_stores:
            view = self._views[name] = self._globals.view(self.topology.stores[name])
        elif view is None:
            spec = self.topology.stores[name]
            cache_bytes = self._share_of_cache() if self.caches(spec) else 0
            entries = self._state.map(name)
            if name not in self._maps:
                self._maps[name] = cast("Journalled", entries)
                if self._journal is not None:
                    self._journal.watch(self._maps[name])
            view = self._views[name] = open_view(spec, entries, self._state.meta, cache_bytes)
            if hasattr(view, "take_dropped"):
                self._forgetful[name] = view.take_dropped
        return view

    def _share_of_cache(self) -> int:
        """Return the bytes of the cache for one store of one task: all have the same share."""
        caches = sum(map(self.caches, self.topology.stores.values()))
        return max(1, self._cache_bytes // (caches * self._tasks))

    def begin_attempt(self, journal: Journal) -> _Kept:
        """Begin to process by column what may have to be taken back; return how things are, for `go_back`."""
        self.batch += 1
        self._count_late()  # of the parts before, which stay
        self._journal, self._failed, self._questions = journal, None, []
        journal.begin(self._maps.values())
        causes, examples = self._causes.copy(), {cause: list(kept) for cause, kept in self._examples.items()}
        return _Kept(dict(self._state.meta), self.dropped, causes, examples, len(self.letters))

    def end_attempt(self) -> set[int] | None:
        """End the attempt; return the positions of the records that failed, which may not be known; None: none did."""
        failed, self._journal, self._failed, self.running = self._failed, None, None, None
        return failed

    def ask_all(self) -> None:
        """Ask the processing handler about the rows that an attempt has left out, in the order of their records."""
        questions, self._questions = self._questions, []
        if questions:
            for at in Place.concat([place for place, _ in questions]).order().tolist():
                questions[at][1]()

    def go_back(self, kept: _Kept) -> None:
        """Let things be as they were when an attempt began; views of stores are opened anew."""
        self.batch += 1
        self._state.meta.clear()
        self._state.meta.update(kept.meta)
        self.dropped, self._causes, self._examples = kept.dropped, kept.causes, kept.examples
        del self.letters[kept.letters :]
        self._views.clear()
        self._forgetful.clear()

    @property
    def is_attempt(self) -> bool:
        """Whether what is done now is taken back if a record fails."""
        return self._journal is not None

    @property
    def is_failed_attempt(self) -> bool:
        """Whether a record has failed, so that all will be taken back."""
        return self._failed is not None

    def fails_apart(self, rows: Rows, row: int | None) -> bool:
        """Note in an attempt that a row has failed, None: one of the rows; else return false."""
        if self._journal is None:
            return False
        failed = self._failed = self._failed or set()
        position = -1 if row is None else rows.place.input(row)
        if 0 <= position < self.input.length:
            failed.add(position)
        return True

    def on_take_back(self, undo: Callable[[], object]) -> None:
        """Note how something is undone that is neither in a store nor among the numbers, if this is an attempt."""
        if self._journal is not None:
            self._journal.on_take_back(undo)

    def processing(self, timestamps: NDArray[np.int64], headers: list[Headers] | None) -> AbstractContextManager[None]:
        """Keep the stores' current record at rows of these times and headers, if all have the same."""
        current = self.current
        if current is None or not len(timestamps):
            return _NOTHING
        return self._noting(current, _one_note(timestamps, headers))

    @contextmanager
    def _noting(self, current: CurrentRecord, note: tuple[int, Headers] | None) -> Iterator[None]:
        before, current.note = current.note, note
        try:
            yield
        finally:
            current.note = before

    def table(self, node: str) -> TableView:
        """Return the view of a table node."""
        view = self._tables.get(node)
        if view is None:
            raise TopologyError(
                f"{node} is not a table of task {self.task_id}", hint="Join with a table of the same task."
            )
        return view

    def shared(self, name: str, make: Callable[[], _Shared]) -> _Shared:
        """Return an object that several operators of the task share, made by the first that asks."""
        if name not in self._shared:
            self._shared[name] = make()
        return cast("_Shared", self._shared[name])

    def register_table(self, node: str, view: TableView) -> None:
        """Register the view of a table node; operators of tables call it when they are made."""
        self._tables[node] = view

    def drop(self, node: str, count: int, why: str) -> None:
        """Count dropped records (Kafka's ``dropped-records-total``) and log the reason once per batch."""
        self._drop(Cause(node, why), count)

    def drop_rows(self, node: str, rows: Rows, numbers: NDArray[np.intp], why: str) -> None:
        """Count dropped rows by their numbers, and note where the last one comes from.

        Args:
            node: The operator.
            rows: Its rows.
            numbers: The rows that are dropped; one may be dropped several times, by several windows.
            why: The reason.
        """
        if len(numbers):
            source = self.record_context(rows, int(numbers[-1]))
            self._drop(Cause(node, why), len(numbers), _example(source))

    def drop_row(self, node: str, row: Row, why: str) -> None:
        """Count a row by itself that is dropped, and note where it comes from."""
        self._drop(Cause(node, why), 1, _example(self.record_context(row.rows(self.step), 0)))

    def _drop(self, cause: Cause, count: int, example: Example | None = None) -> None:
        self.dropped += count
        self._causes[cause] += count
        if example is not None:
            kept = self._examples.setdefault(cause, [])
            kept.append(example)
            del kept[:-EXAMPLES]

    def get_meta(self, name: str, default: int) -> int:
        """Return a number that an operator keeps with the state (its stream time), committed with the batch."""
        return self._state.meta.get(name, default)

    def put_meta(self, name: str, value: int) -> None:
        self._state.meta[name] = value

    def record_context(self, rows: Rows, row: int) -> RecordContext:
        """Return the source record behind a row, with the row's own time and headers."""
        source = rows.origin(row) or self.input.record(rows.place.input(row))
        headers = rows.headers[row] if rows.headers is not None else ()
        return source._replace(timestamp=int(rows.timestamps[row]), headers=plain_headers(headers))

    def failed(self, node: str, function: Function | None, rows: Rows, row: int, error: Exception) -> bool:
        """Report that a user's function raised for one row.

        Raises ProcessingError, unless the processing exception handler says to continue: then the record is counted as
        dropped (and sent to the dead letter queue) and the caller leaves that row out.

        Returns:
            Whether all that follows of the rows falls with this one: they are of one record. The handler is asked
            about that record by the one who runs the operator, once what comes before the row has been passed on.
        """
        if is_decided(error):
            raise error
        if self.by_record:
            if self._failure is None:
                self._failure = function, error
            return True
        running = self.running
        leaves_out = running is None or (running.leaves_out_rows and running.node == node)
        if not leaves_out and self.fails_apart(rows, row):
            return False
        place = rows.place.take(np.array([row]))
        if running is not None and running.rows is not rows:  # the operator has made the row of one that it got
            at = running.rows.place.position_of(place)
            rows, row = (rows, row) if at is None else (running.rows, at)
        if self._journal is not None:
            self._questions.append((place, partial(self.ask, node, function, rows, row, error)))
        else:
            self.ask(node, function, rows, row, error)
        return False

    @property
    def has_failed(self) -> bool:
        """Whether the record that an operator is called with has failed, so that it has to stop."""
        return self._failure is not None

    @property
    def goes_on(self) -> bool:
        """Whether the processing handler may leave a record out."""
        return self._may_go_on and not self.is_global

    @property
    def keeps_raw_bytes(self) -> bool:
        """Whether anybody looks at the bytes of a source record once it has waited in a buffer."""
        handler = self._config["processing.exception.handler"]
        return not isinstance(handler, str) or bool(self._config.get("errors.dead.letter.queue.topic.name"))

    def fatal(self, node: str, function: Function | None, rows: Rows, row: int, error: Exception) -> ProcessingError:
        """Return the error for a row for which nobody is asked: that of a source, or of a sink behind one."""
        source = self.record_context(rows, row)
        record = Record(rows.keys.items()[row], rows.values.items()[row], source.timestamp, source.headers)
        failure = RecordFailure(node, source, rows.place.take(np.array([row])), error)
        return self._processing_error(failure, function, record)

    def raise_of_user(self, node: str, rows: Rows, error: Exception) -> None:
        """Raise the error for rows whose operator a user's code has ended, as a serde of a store does.

        Of several rows nobody knows which one it was: nobody is asked about them. Errors of others are left.
        """
        name, file, line = line_of(None, error)
        if not file or isinstance(error, PenstockError):
            return
        cause = None if self._hides_records else error
        if len(rows) == 1:
            raise self.fatal(node, None, rows, 0, error) from cause
        said = "" if self._hides_records else f": {_text_of(error)}"
        raise ProcessingError(
            f"{node}: {name} ({file}:{line}) raised {type(error).__name__}{said}, for one of {len(rows)} records",
            hint="Repair it. If a serde does not take all values, leave such records out before this operator.",
            node=node,
            function=name,
            file=file,
            line=line,
            kind=type(error).__name__,
            raised=(name, file, line),
            said=self._shown(error),
            task=self.task_id,
            decided=True,
        ) from cause

    def _is_of_table(self, node: str) -> bool:
        """Return whether a node gets the changes of a table."""
        of_topology = self.topology.nodes[node]
        return not isinstance(of_topology, SourceNode) and any(parent in self._tables for parent in of_topology.parents)

    def take_failure(self) -> tuple[Function | None, Exception] | None:
        """Return the failure of the record that an operator was called with; once."""
        failure, self._failure = self._failure, None
        return failure

    def ask(self, node: str, function: Function | None, rows: Rows, row: int, error: Exception) -> None:
        """Ask the processing handler about the record that an operator was called with; raise if it says to fail."""
        source = self.record_context(rows, row)
        value = rows.values.items()[row]
        if rows.olds is not None or self._is_of_table(node):
            value = Change(value, None if rows.olds is None else rows.olds.items()[row])
        record = Record(rows.keys.items()[row], value, source.timestamp, source.headers)
        self.processing_failed(RecordFailure(node, source, rows.place.take(np.array([row])), error), function, record)

    def processing_failed(
        self, failure: RecordFailure, function: Function | None, failed: Record[Any, Any] | None
    ) -> None:
        """Ask the processing handler; raise ProcessingError when it says fail.

        Args:
            failure: The failure.
            function: The user's function that raised, if it is known.
            failed: The record that the operator was called with; None for a punctuation.
        """
        error = failure.error
        if is_decided(error):
            raise error
        if isinstance(error, SerializationError) and "node" in error.facts and "task" in error.facts:
            error.facts["decided"] = True  # it says all there is to say, if the handler says to fail
            self._decide("processing", failure, lambda: error, failed, function=function)
            error.facts["decided"] = False
            return
        self._decide(
            "processing",
            failure,
            lambda: self._processing_error(failure, function, failed),
            failed,
            function=function,
        )

    def _processing_error(
        self, failure: RecordFailure, function: Function | None, failed: Record[Any, Any] | None
    ) -> ProcessingError:
        node, source, error = failure.node, failure.source, failure.error
        record: dict[str, Any] | None = None
        if failed is not None:
            value = failed.value.new if isinstance(failed.value, Change) else failed.value
            record = {"key": failed.key, "value": value, "timestamp": failed.timestamp}
        name, file, line = function_of(function, error)
        where = f" from {source.topic}-{source.partition} offset {source.offset}" if source.topic else ""
        own = error if isinstance(error, PenstockError) else None
        kind, said, shown_record = type(error).__name__, f": {error if own is None else own.message}", record
        if self._hides_records:
            said, shown_record = "", None
        if record is None:
            shown = "a punctuation"
        else:
            shown = f"the record {_shorten(shown_record)}{where}" if shown_record else f"the record{where}"
        return ProcessingError(
            f"{node}: {name} ({file}:{line}) raised {kind}{said}, for {shown}",
            hint=(own and own.hint)
            or 'Repair the function, or set processing.exception.handler to "continue" to skip such records.',
            node=node,
            function=name,
            file=file,
            line=line,
            kind=kind,
            record=shown_record,
            raised=line_of(function, error),
            said=self._shown(error),
            task=self.task_id,
            topic=source.topic,
            partition=source.partition,
            offset=source.offset,
            decided=True,
        )

    def undecodable(self, node: str, source: RecordContext, error: Exception) -> None:
        """Ask the deserialization handler about a record whose bytes do not decode."""
        if source.topic is not None:
            source = source._replace(topic=self.physical_name(source.topic))

        field = error.facts.get("field") if isinstance(error, SerializationError) else None

        def wrapped() -> SerializationError:
            said = self._said_of(error)
            return SerializationError(
                f"{node}: {source.topic}-{source.partition} offset {source.offset} does not decode: {said}",
                hint='Check the serdes, or set deserialization.exception.handler to "continue" to skip such records.',
                node=node,
                kind=type(error).__name__,
                raised=line_of(None, error),
                said=self._shown(error),
                task=self.task_id,
                topic=source.topic,
                partition=source.partition,
                offset=source.offset,
                **({"field": field} if field else {}),
            )

        # All dead letters of records that never were input come first, in the order in which they were read.
        place = Place((-1, len(self.letters)), 1)
        headers = source.headers
        record = TopicRecord(source.topic or "", source.raw_key, source.raw_value, source.timestamp, headers)
        self._decide("deserialization", RecordFailure(node, source, place, error), wrapped, record)

    def unencodable(self, node: str, topic: str, rows: Rows, row: int, origin: Origin, error: Exception) -> None:
        """Ask the production handler about a record whose key or value does not encode."""
        if self.fails_apart(rows, row):
            return
        source = self.record_context(rows, row)
        name = self.physical_name(topic)

        def wrapped() -> SerializationError:
            return SerializationError(
                f"{node}: a record for topic {topic!r} does not encode: {self._said_of(error)}",
                hint=self._where_serdes_go(topic),
                node=node,
                kind=type(error).__name__,
                raised=line_of(None, error),
                said=self._shown(error),
                task=self.task_id,
                topic=topic,
                source=_place_of(source),
            )

        if isinstance(error, SerializationError) and error.facts.get("wrong_type"):
            raise wrapped() from error
        key, value = rows.keys.items()[row], rows.values.items()[row]
        if rows.olds is not None:
            value = Change(value, rows.olds.items()[row])
        record = TopicRecord(name, key, value, source.timestamp, source.headers)
        failure = RecordFailure(node, source, rows.place.take(np.array([row])), error)
        self._decide("production", failure, wrapped, record, origin=origin)

    def refused(self, node: str, source: RecordContext, record: TopicRecord, error: PenstockError) -> Response:
        """Ask the production handler about a record that the log refuses.

        Nobody is asked about a producer that is fenced or lacks a permission: the error is raised.
        """
        error.facts = {"node": node, "task": self.task_id, "topic": record.topic, **error.facts}
        if isinstance(error, FencedError | AuthorizationError | AuthenticationError):
            raise error
        context = ErrorContext(
            self.task_id,
            node,
            source.topic,
            source.partition,
            source.offset,
            record.timestamp,
            record.headers,
            None,
            None,
        )
        response = self._handlers["production"](context, record, error)
        action = "continue" if response.action == "continue" else "fail"
        self.sensor.on_error(self.task_id, node, error, action)
        if action == "continue":
            self._drop(Cause(node, type(error).__name__), 1, _example(source, self._shown(error)))
        return response

    def _where_serdes_go(self, topic: str) -> str:
        """Return where the serdes of a topic are given."""
        if topic not in {*self.topology.internal_topics, *map(self.physical_name, self.topology.internal_topics)}:
            return "Give the serdes that fit, in to() or by default.key.serde and default.value.serde."
        return (
            "This topic is an internal one, for records with new keys. Give the serdes that fit where they get them, "
            "in Grouped(key_serde=..., value_serde=...) or Repartitioned(...), or by default.key.serde and "
            "default.value.serde."
        )

    def _said_of(self, error: Exception) -> str:
        """Return the text of an error, after its class if it is not ours; only the class where no text may be shown."""
        kind, text = type(error).__name__, "" if self._hides_records else _text_of(error)
        if isinstance(error, PenstockError) and text:
            return text
        return f"{kind}: {text}" if text else kind

    def _shown(self, error: Exception) -> str:
        """Return the beginning of an error's text for figures; nothing where no text may quote a record."""
        return "" if self._hides_records else visible(_text_of(error)[:_MOST_OF_A_TEXT])

    def _decide(
        self,
        kind: str,
        failure: RecordFailure,
        wrapped: Callable[[], Exception],
        record: Any,
        *,
        function: Function | None = None,
        origin: Origin | None = None,
    ) -> None:
        node, source, error = failure.node, failure.source, failure.error
        if self.is_global:
            source = source._replace(raw_key=None, raw_value=None)
        facts = ErrorContext(
            self.task_id,
            node,
            source.topic,
            source.partition,
            source.offset,
            source.timestamp,
            source.headers,
            source.raw_key,
            source.raw_value,
            origin,
        )
        response = self._handlers[kind](facts, record, error)
        if not self.is_global:
            letters = enumerate(response.dead_letters)
            self.letters += [(failure.place.extend(number), letter) for number, letter in letters]
        action = "continue" if response.action == "continue" else "fail"  # nothing can be tried again here
        self.sensor.on_error(self.task_id, node, error, action)
        if action == "fail":
            raised = wrapped()
            if raised is error:
                raise raised
            raise raised from (None if self._hides_records else error)
        why = type(error).__name__[:_MOST_OF_A_NAME]  # its text may quote a record, and be another one for each
        self._drop(Cause(node, why, *line_of(function, error)), 1, _example(source, self._shown(error)))


def _text_of(error: Exception) -> str:
    try:
        return error.message if isinstance(error, PenstockError) else str(error)
    except Exception:  # noqa: BLE001 - whatever the __str__ of a user's class raises
        return ""


def _newest(cause: Cause, examples: list[Example]) -> tuple[str, tuple[str, int, int] | None]:
    """Return what the log says of a cause, and the place of its newest record."""
    newest = examples[-1] if examples else Example("", -1, -1)
    said = f"{cause.reason}: {newest.said}" if newest.said else cause.reason
    where = f", in {cause.function} ({cause.file}:{cause.line})" if cause.file else ""
    return said + where, newest[:3] if newest.topic else None


def _place_of(source: RecordContext) -> tuple[str, int, int] | None:
    return (source.topic, source.partition, source.offset) if source.topic else None


def _example(source: RecordContext, said: str = "") -> Example | None:
    position = _place_of(source)
    return Example(*position, said) if position else Example("", -1, -1, said) if said else None


def _shorten(record: dict[str, Any]) -> str:
    try:
        text = repr(record)
    except Exception:  # noqa: BLE001 - a value may be nested too deep, or a user's own __repr__ fail
        text = reprlib.repr(record)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
