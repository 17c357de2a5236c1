"""The recorder of a running application: what it does, its totals, its history, and their documents.

The batches are those of the application's metrics, which have them in memory: a batch pays nothing more. A thread adds
them up, takes over how far the application is behind, judges the alerts, and writes the documents.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.console.alerts import AlertLog, alerts_of
from penstock.console.app_view import BatchLine, Minute, Picture
from penstock.console.error_groups import ErrorGroups
from penstock.console.exposure import EVERYTHING, Exposure, facts_of, place_of
from penstock.engines.application_figures import batch_record
from penstock.engines.spark.progress import BatchProgress, counted_by
from penstock.errors import PenstockError
from penstock.log.processes import may_run
from penstock.metrics import BatchHistory, BatchRecord
from penstock.metrics.task_counts import OTHER_REASONS
from penstock.runtime.global_stores import GLOBAL_TASK
from penstock.state.checkpoint import document_time_ms, local_directory, read_document, replace_document

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.metrics import PartitionLag

__all__ = ["HISTORY", "NOW", "TOPOLOGY", "Past", "Recorder", "Watched", "changed_ms", "read_facts", "write_facts"]

# Documents

NOW = "console/now.json"
HISTORY = "console/history.json"
TOPOLOGY = "console/topology.json"
FORMAT = 1
_MOST_CHARACTERS = 16 << 20  # whoever may write to the checkpoint may have written it


def write_facts(checkpoint: str, name: str, facts: Mapping[str, Any]) -> None:
    """Replace a document. A local one is not waited for to reach the disk: after a power cut it may be missing."""
    replace_document(checkpoint, name, json.dumps({"format": FORMAT, **facts}, separators=(",", ":")))


def read_facts(checkpoint: str, name: str) -> dict[str, Any] | None:
    """Return a document; None if there is none that this version can read."""
    with suppress(PenstockError, OSError, ValueError, RecursionError):
        text = read_document(checkpoint, name)
        if text is not None and len(text) <= _MOST_CHARACTERS:
            document = json.loads(text)
            if isinstance(document, dict) and document.get("format") == FORMAT:
                return document
    return None


def changed_ms(checkpoint: str, name: str) -> int | None:
    """Return when a document was last written; None if there is none."""
    with suppress(PenstockError, OSError):
        return document_time_ms(checkpoint, name)
    return None


# Totals

_RECENT_MS = 10_000
_MOST_REASONS = 200
_MOST_REASON_CHARACTERS = 300

Amounts = dict[str, list[float]]


class Totals:
    """Sums over batches. Amounts of a node: rows in, rows out, seconds.

    Attributes:
        sums: Batches, records in and out, dropped records, since the start.
        nodes: The amounts of each node since the start.
        topics: Records and bytes that each node has written to or read from each topic, by ``node topic``.
        stores: Rows of each store by task.
        reasons: Node and reason -> count, the times of the first and of the newest drop.
        positions: The offset of the next record, by ``topic-partition``.
        lost: Offsets that retention removed before they were read, by ``topic-partition``.
        stream_time_ms: The largest timestamp seen; -1 for none.
    """

    def __init__(self) -> None:
        self.sums = {"batches": 0, "records_in": 0, "records_out": 0, "dropped": 0}
        self.nodes: Amounts = {}
        self.topics: Amounts = {}
        self.stores: dict[str, dict[str, int]] = {}
        self.reasons: dict[tuple[str, str], list[int]] = {}
        self.positions: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.stream_time_ms = -1
        self._recent: deque[tuple[int, Amounts, Mapping[str, int]]] = deque()
        self._began_ms: int | None = None

    def add(self, progress: BatchProgress, now_ms: int) -> None:
        """Add a batch that ended now."""
        done = (1, progress.records_in, progress.records_out, progress.dropped)
        self.sums = {name: total + more for (name, total), more in zip(self.sums.items(), done, strict=True)}
        self.stream_time_ms = max(self.stream_time_ms, progress.stream_time_ms)
        nodes: Amounts = {}
        for task in progress.tasks:
            self.positions |= task.get("ends", {})
            for counts in counted_by(task):
                self._counts(counts, nodes, now_ms)
            for store, rows in task.get("entries", {}).items():
                self.stores.setdefault(store, {})[task["task"]] = rows
            for store, rows in task.get("global", {}).get("entries", {}).items():
                self.stores[store] = {GLOBAL_TASK: rows}
        for name, offsets in progress.lost.items():
            self.lost[name] = self.lost.get(name, 0) + offsets
        for node, amounts in nodes.items():
            _add(self.nodes, node, amounts)
        span = {"in": progress.records_in, "out": progress.records_out}
        self._recent.append((now_ms, nodes, span))
        if self._began_ms is None:
            self._began_ms = now_ms - int(progress.seconds * 1000)

    def _counts(self, counts: Mapping[str, Any], nodes: Amounts, now_ms: int) -> None:
        """Add what a task has counted; the amounts of its nodes to those of the batch."""
        for node, rows in counts.get("read", {}).items():
            _add(nodes, node, [rows, rows, 0.0])
        for node, amounts in counts.get("nodes", {}).items():
            _add(nodes, node, amounts)
        for node, topic, records, size in counts.get("produced", ()):
            _add(nodes, node, [records, records, 0.0])
            _add(self.topics, f"{node} {topic}", [records, size])
        for node, topic, records, size in counts.get("consumed", ()):
            _add(self.topics, f"{node} {topic}", [records, size])
        for node, reason, count in counts.get("reasons", ()):
            key = (node, str(reason)[:_MOST_REASON_CHARACTERS])
            if key not in self.reasons and len(self.reasons) >= _MOST_REASONS:
                key = (node, OTHER_REASONS)
            count_and_times = self.reasons.setdefault(key, [0, now_ms, now_ms])
            count_and_times[0] += count
            count_and_times[2] = now_ms

    def rates(self, now_ms: int) -> dict[str, Any]:
        """Return rows a second of each node, and records a second in and out, over the last ten seconds."""
        while self._recent and self._recent[0][0] <= now_ms - _RECENT_MS:
            self._recent.popleft()
        began = now_ms if self._began_ms is None else self._began_ms
        seconds = min(_RECENT_MS, max(now_ms - began, 1000)) / 1000
        nodes: Amounts = {}
        sums = {"in": 0, "out": 0}
        for _, amounts, span in self._recent:
            sums = {side: total + span[side] for side, total in sums.items()}
            for node, each in amounts.items():
                _add(nodes, node, each)
        rates = {node: [round(value / seconds, 4) for value in each] for node, each in nodes.items()}
        return {"in": round(sums["in"] / seconds, 2), "out": round(sums["out"] / seconds, 2), "nodes": rates}

    def document(self, now_ms: int) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "sums": self.sums,
            "rates": self.rates(now_ms),
            "nodes": {name: [round(value, 4) for value in each] for name, each in self.nodes.items()},
            "topics": self.topics,
            "stores": self.stores,
            "reasons": [[*key, *counts] for key, counts in self.reasons.items()],
            "positions": self.positions,
            "lost": self.lost,
            "stream_time_ms": self.stream_time_ms,
        }


def _add(amounts: Amounts, name: str, more: Any) -> None:
    before = amounts.get(name)
    amounts[name] = list(more) if before is None else [a + b for a, b in zip(before, more, strict=True)]


# History

_HISTORY_SAMPLE_MS = 300_000
_HISTORY_SAMPLES = 13  # an hour
_HOUR_MS = 3_600_000
_MOST = 200  # restarts, kinds of errors
_MOST_KIND_CHARACTERS = 200
LOST_PROCESS = "a process that ran tasks was lost"
LOST_APPLICATION = "the application's own process was killed or lost"

Rows = dict[str, tuple[int, int]]  # store -> the number of its tasks, their rows


class Past:
    """The long memory behind alerts; the checkpoint keeps it.

    >>> past = Past()
    >>> for minute in range(0, 61, 5):
    ...     past.look({"counts": {"0_0": 1000 + minute}}, 0, minute * 60_000)
    >>> past.document()["growth"]
    [['counts', 1000, 1060]]
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Rows]] = deque(maxlen=_HISTORY_SAMPLES)
        self._rows: Rows = {}
        self._restarts: deque[tuple[int, str]] = deque(maxlen=_MOST)
        self._counted = 0
        self._errors: dict[tuple[str, str], list[int]] = {}

    def look(self, stores: Mapping[str, Mapping[str, int]], restarts: int, now_ms: int) -> None:
        """Note the rows of each store by task, and how often the application has begun again since its start."""
        self._rows = {store: (len(tasks), sum(tasks.values())) for store, tasks in stores.items()}
        if self._rows and (not self._samples or now_ms - self._samples[-1][0] >= _HISTORY_SAMPLE_MS):
            self._samples.append((now_ms, self._rows))
        for _ in range(min(restarts - self._counted, _MOST)):
            self._restarts.append((now_ms, LOST_PROCESS))
        self._counted = restarts

    def add(self, progress: BatchProgress, now_ms: int) -> None:
        """Note the errors of a batch that handlers have let pass."""
        for counts in (each for task in progress.tasks for each in counted_by(task)):
            for node, kind, _, count in counts.get("errors", ()):
                self._fail(node, kind, count, now_ms)

    def ended_without_a_word(self, now_ms: int) -> None:
        """Note that the application's last process is gone, and had not stopped."""
        self._restarts.append((now_ms, LOST_APPLICATION))

    def document(self) -> dict[str, Any]:
        """Return what alerts look at, for JSON: stores with rows an hour ago and now, restarts, kinds of errors."""
        return {
            "growth": self._growth(),
            "restarts": [list(each) for each in self._restarts],
            "error_kinds": [[*key, *numbers] for key, numbers in self._errors.items()],
        }

    def kept(self) -> dict[str, Any]:
        """Return all of it for the checkpoint."""
        samples = [[at, {store: list(each) for store, each in rows.items()}] for at, rows in self._samples]
        return {**self.document(), "samples": samples}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Go on with what `kept` has returned; what another version or hand has written is left out."""
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            samples = [
                (int(at), {str(n): (int(t), int(r)) for n, (t, r) in rows.items()}) for at, rows in kept["samples"]
            ]
            restarts = [(int(at), str(why)) for at, why in kept["restarts"]]
            errors = {(str(n), str(kind)): [int(each) for each in numbers] for n, kind, *numbers in kept["error_kinds"]}
            self._samples.extend(samples)
            self._restarts.extend(restarts)
            self._errors.update(errors)

    def _fail(self, node: str, kind: str, count: int, now_ms: int) -> None:
        key = (node[:_MOST_KIND_CHARACTERS], kind[:_MOST_KIND_CHARACTERS])
        if key in self._errors or len(self._errors) < _MOST:
            count_and_times = self._errors.setdefault(key, [0, now_ms, now_ms])
            count_and_times[0] += count
            count_and_times[2] = now_ms

    def _growth(self) -> list[list[Any]]:
        """Return the stores that have only grown for an hour: no window has closed, no task has come or gone."""
        if not self._samples or self._samples[-1][0] - self._samples[0][0] < _HOUR_MS:
            return []
        growing = []
        for store, now in self._rows.items():
            past = [rows[store] for _, rows in self._samples if store in rows]
            rows = [each[1] for each in (*past, now)]
            if len(past) == len(self._samples) and {each[0] for each in past} == {now[0]} and rows == sorted(rows):
                growing.append([store, rows[0], rows[-1]])
        return growing


# The recorder

_log = own_logger(__name__)
_RUNS, _BEFORE = ("RUNNING", "REBALANCING"), ("CREATED", "REBALANCING")
_WHO = ("host", "pid", "process_start")
_SILENT_MS = 60_000  # an instance on another machine that has written nothing for so long is gone
_ENDS = {"PENDING_ERROR": "ERROR", "ERROR": "ERROR"}
_MINUTES = 2 * 1440  # a day, and the same time of the day before
_LOOK_S = 1.0
_RENEW_S = 0.25  # documents of faster batches would cost more than they show
_QUIET_S = 3.0  # without a batch, after which the next one is looked for once a second
_IDLE_WRITE_S = 5.0
_WRITE_S = 2.0
_QUIET_MS = 30_000  # without a batch, before it is looked what the application does
_PHASE_S = 5.0
_WRITE_REMOTE_S = 15.0
_HISTORY_S = 60.0
_MOST_OF_A_FAILURE = 2_000  # characters
_SAMPLES = 600  # of the lag
_SAMPLE_MS = 1_000
_TASKS = 400  # of a batch, kept for its chart
_BATCHES_WITH_TASKS = 40


@dataclass(frozen=True, slots=True)
class Watched:
    """The application that a recorder watches, once it runs.

    Attributes:
        checkpoint: Its checkpoint location.
        lags: Returns how far it is behind in each partition, as of the last look.
        beginnings: Returns the first offset that each ``topic-partition`` still has.
        facts: Facts that do not change while it runs: host, mode, version, settings with secrets masked.
        describe: Returns its topology for the console; called once, in the recorder's thread.
        phase: Returns what it is doing now, in words; called when records wait and no batch ends.
        restores: Returns the restores that are under way, see `penstock.state.restores.restore_progress`.
        long_steps: Returns the tasks that are in one step for more than 30 seconds: task, what, seconds.
        catch_up: Counts the batches that have ended, which takes them to `Recorder.take`.
        restarts: Returns how often it has restarted after the loss of a process.
        has_others: Whether other instances of it may run at the same time, with the same checkpoint location.
    """

    checkpoint: str
    lags: Callable[[], Sequence[PartitionLag]]
    beginnings: Callable[[], Mapping[str, int]]
    facts: Mapping[str, Any]
    describe: Callable[[], Mapping[str, Any]]
    phase: Callable[[], str] = str
    restores: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    long_steps: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    catch_up: Callable[[], object] = tuple
    restarts: Callable[[], int] = int
    has_others: bool = False


class Recorder:
    """A progress listener that keeps what the console shows.

    Args:
        application: The ``application.id``.
        state: Returns the application's state.
        webhook: ``penstock.alerts.webhook``; None: no webhook.
        is_enabled: ``penstock.console.enabled``; else it does nothing.
        exposure: What of records may be shown, and so be recorded.

    Attributes:
        batches: The batches that it shows: those of the application's metrics, or its own.
        failure: The error that has ended the application; None: none has.
    """

    def __init__(
        self,
        application: str,
        state: Callable[[], str],
        webhook: str | None = None,
        *,
        is_enabled: bool = True,
        exposure: Exposure = EVERYTHING,
    ) -> None:
        self._is_enabled, self._exposure = is_enabled, exposure
        self._application, self._state = application, state
        self.batches = BatchHistory()
        self._queue: queue.SimpleQueue[tuple[BatchProgress, BatchRecord] | None] = queue.SimpleQueue()
        self._totals, self._past, self._groups = Totals(), Past(), ErrorGroups()
        self._failure_facts: dict[str, Any] | None = None
        self.failure: PenstockError | None = None
        self._lines: dict[int, tuple[BatchRecord, BatchLine]] = {}
        self._minutes: deque[Minute] = deque(maxlen=_MINUTES)
        self._behind: dict[str, Any] = {"lag": {}, "seconds": {}, "beginnings": {}, "as_of_ms": 0}
        self._alert_log = AlertLog(application, webhook)
        self._watched: Watched | None = None
        self._thread: threading.Thread | None = None
        self._started_ms = 0
        self._is_shown = True  # else the documents are those of another instance
        self._lock = threading.Lock()
        self._document: dict[str, Any] = {}
        self._taken_s = float("-inf")  # when there was a batch
        self._asked_phase, self._said_phase = float("-inf"), ""
        self._sampled: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # (time, lag), about one a second
        self.version = 0
        self.topology: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, config: StreamsConfig, state: Callable[[], str], batches: BatchHistory | None = None) -> Self:
        """Return the recorder of an application with these settings, whose batches are noted here."""
        webhook, is_enabled = config["penstock.alerts.webhook"], config["penstock.console.enabled"]
        exposure = Exposure.of(
            messages=config["penstock.console.messages"], masked=tuple(config["penstock.console.mask"])
        )
        recorder = cls(config["application.id"], state, webhook, is_enabled=is_enabled, exposure=exposure)
        if batches is not None:
            recorder.batches = batches
        return recorder

    def __call__(self, progress: BatchProgress) -> None:
        """Take a batch of which there is no record yet."""
        if self._watched is not None:
            record = batch_record(progress, unix_ms(), tuple(self._watched.lags()))
            self.batches.add(record)
            self.take(progress, record)

    def take(self, progress: BatchProgress, record: BatchRecord) -> None:
        """Take a batch that is among `batches`; all else happens in the recorder's thread."""
        if self._thread is not None:
            self._queue.put((progress, record))

    def begin(self, watched: Watched) -> None:
        """Watch the application, going on with the history that its checkpoint has."""
        if not self._is_enabled:
            return
        self._watched = watched
        self._started_ms = unix_ms()
        self._recall(watched.checkpoint)
        self._thread = threading.Thread(target=self._work, name="penstock-recorder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write everything a last time, and stop."""
        if self._thread is None:
            return
        assert self._watched is not None  # noqa: S101 - begin() sets it
        self._guarded(self._watched.catch_up)
        self._queue.put(None)
        self._thread.join(10)
        self._thread = None
        ended = _ENDS.get(self._state(), "NOT_RUNNING")
        self._state = lambda: ended
        self._guarded(self._finish)

    def document(self) -> dict[str, Any]:
        """Return the newest document; empty before the first one."""
        with self._lock:
            return self._document

    # In the recorder's thread

    def _work(self) -> None:
        assert self._watched is not None  # noqa: S101 - begin() sets it
        is_described = False
        written = kept = renewed = float("-inf")
        changed = False
        pause = _WRITE_S if local_directory(self._watched.checkpoint) is not None else _WRITE_REMOTE_S
        last_state = ""
        while self._take():
            if not is_described and self._state() not in _BEFORE:  # its imports would hold up the start
                is_described = True
                self._guarded(self._describe)
            now = time.monotonic()
            if now - renewed >= _RENEW_S:
                renewed = now
                self._behind = self._measured()
                changed |= self._renew(force=last_state != self._state())
                last_state = self._state()
            if now - written >= pause and (changed or now - written >= _IDLE_WRITE_S):
                written, changed = now, False
                self._guarded(self._write)
            if now - kept >= _HISTORY_S:
                kept = now
                self._guarded(self._write_history)
        if not is_described:
            self._guarded(self._describe)

    def _take(self) -> bool:
        """Add the batches of the next second; return whether to go on."""
        assert self._watched is not None  # noqa: S101 - begin() sets it
        began = time.monotonic()
        pause_s = _RENEW_S if began - self._taken_s < _QUIET_S else _LOOK_S
        item = None
        while item is None:
            self._guarded(self._watched.catch_up)
            try:
                item = self._queue.get(timeout=pause_s)
            except queue.Empty:
                if time.monotonic() >= began + _LOOK_S:
                    return True
            else:
                if item is None:
                    return False
        self._taken_s = time.monotonic()
        while item is not None:
            self._add(*item)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return True
        return False

    def _add(self, progress: BatchProgress, record: BatchRecord) -> None:
        self._totals.add(progress, record.ended_ms)
        self._past.add(progress, record.ended_ms)
        self._groups.add_batch(progress, record.ended_ms)
        start = record.ended_ms - record.ended_ms % 60_000
        if not self._minutes or self._minutes[-1].start_ms != start:
            self._minutes.append(Minute(start))
        self._minutes[-1] = self._minutes[-1].plus(BatchLine.of_record(record))

    def _all_lines(self) -> list[BatchLine]:
        """Return the lines of all batches; each is made once."""
        lines, records = self._lines, self.batches.whole()
        pairs = ((each, lines[id(each)][1] if id(each) in lines else BatchLine.of_record(each)) for each in records)
        self._lines = {id(record): (record, line) for record, line in pairs}
        return [line for _, line in self._lines.values()]

    def _charts(self) -> list[dict[str, Any]]:
        """Return the tasks of the newest batches."""
        return [
            {"batch": each.number, "end_ms": each.ended_ms, "tasks": [_task(task) for task in each.tasks[:_TASKS]]}
            for each in list(self.batches)[-_BATCHES_WITH_TASKS:]
        ]

    def _measured(self) -> dict[str, Any]:
        """Return how far the application is behind."""
        assert self._watched is not None  # noqa: S101 - begin() sets it
        lags = {f"{lag.topic}-{lag.partition}": lag for lag in self._watched.lags()}
        beginnings = self._watched.beginnings()
        return {
            "lag": {name: lag.records for name, lag in lags.items()},
            "seconds": {name: lag.seconds for name, lag in lags.items() if lag.seconds is not None},
            "beginnings": {name: [beginnings[name], lag.end] for name, lag in lags.items() if name in beginnings},
            "as_of_ms": max((lag.as_of_ms for lag in lags.values()), default=0),
        }

    def _renew(self, *, force: bool) -> bool:
        """Make the document anew if something has happened; return whether it has."""
        now_ms = unix_ms()
        lines = self._all_lines()
        behind, newest = self._behind, lines[-1].end_ms if lines else 0
        self._sample(behind, now_ms)
        waiting, is_moving = sum(behind["lag"].values()), bool(self._totals.rates(now_ms)["in"])
        restores = [] if self._watched is None else list(self._watched.restores())
        seen = (newest, self._totals.sums["batches"], waiting, is_moving, restores)
        self._past.look(self._totals.stores, 0 if self._watched is None else self._watched.restarts(), now_ms)
        is_new = force or seen != self._document.get("seen")
        document = {
            "seen": seen,
            "application": self._application,
            "state": self._state(),
            **self._failed(now_ms),
            "errors": self._groups.rows(now_ms),
            "started_ms": self._started_ms,
            "written_ms": now_ms,
            "facts": {} if self._watched is None else dict(self._watched.facts),
            **self._totals.document(now_ms),
            **self._past.document(),
            "behind": self._behind,
            "lags": list(self._sampled),
            "restores": restores,
            "long_steps": [] if self._watched is None else list(self._watched.long_steps()),
            "lines": [line.row() for line in lines],
            "tasks": self._charts(),
        }
        document["phase"] = self._phase(now_ms - max(newest, self._started_ms), waiting)
        alerts = alerts_of(Picture(document, lines), now_ms)
        document["alerts"] = [alert.document() for alert in self._alert_log.seen(alerts, now_ms)]
        is_new = is_new or document["alerts"] != self._document.get("alerts")
        with self._lock:
            self._document = document
            self.version += is_new
        return is_new

    def _failed(self, now_ms: int) -> dict[str, Any]:
        """Return what is said of the failure: as the application may say it, and without any text of the error."""
        error = self.failure
        if error is None:
            return {"failure": None}
        said = [text[:_MOST_OF_A_FAILURE] for text in self._exposure.failure(error)]
        if self._failure_facts is None:
            self._failure_facts = {**facts_of(error), "at_ms": now_ms}
            if self._failure_facts["node"]:
                text = "" if self._exposure.is_limited else str(error.facts.get("said") or "")
                self._groups.add_end(self._failure_facts, text, now_ms)
        where = place_of(error)[:_MOST_OF_A_FAILURE]
        return {"failure": said, "failure_place": where, "failure_facts": self._failure_facts}

    def _sample(self, behind: Mapping[str, Any], now_ms: int) -> None:
        """Note how much waits now, apart from batches: one that runs for minutes says nothing until it ends."""
        if behind["lag"] and (not self._sampled or now_ms - self._sampled[-1][0] >= _SAMPLE_MS):
            self._sampled.append((now_ms, sum(behind["lag"].values())))

    def _phase(self, quiet_ms: int, waiting: int) -> str:
        """Return what the application is doing, if it has been quiet for long although records wait."""
        if self._watched is None or not waiting or quiet_ms < _QUIET_MS or self._state() != "RUNNING":
            return ""
        if time.monotonic() - self._asked_phase > _PHASE_S:
            self._asked_phase = time.monotonic()
            self._guarded(self._ask_phase)
        return self._said_phase

    def _ask_phase(self) -> None:
        assert self._watched is not None  # noqa: S101 - begin() sets it
        self._said_phase = self._watched.phase()

    def _recall(self, checkpoint: str) -> None:
        before = read_facts(checkpoint, HISTORY) or {}
        now = read_facts(checkpoint, NOW) or {}
        self._is_shown = not self._is_of_another(now)
        self._past.recall(before.get("past", {}))
        self._groups.recall(now.get("errors", ()))
        if now.get("state") in _RUNS and self._is_shown:
            self._past.ended_without_a_word(unix_ms())
        try:
            self._minutes.extend(Minute(*row) for row in before.get("minutes", ()))
            self.batches.earlier = tuple(BatchLine.of_row(row).record() for row in now.get("lines", ()))
        except TypeError:  # another version's
            self._minutes.clear()

    def _is_of_another(self, document: Mapping[str, Any]) -> bool:
        """Return whether a document is of an instance that runs beside this one."""
        assert self._watched is not None  # noqa: S101 - begin() sets it
        if not self._watched.has_others or document.get("state") not in _RUNS:
            return False
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # another version's, or somebody's hand
            facts, now_ms = document["facts"], unix_ms()
            age_ms = now_ms - int(document.get("written_ms", now_ms))
            host, pid, start = str(facts["host"]), int(facts["pid"]), str(facts["process_start"])
            is_own = (host, pid, start) == tuple(self._watched.facts.get(name) for name in _WHO)
            return not is_own and age_ms < _SILENT_MS and may_run(host, pid, start)
        return False

    def _look_for_another(self) -> None:
        """Note whether another instance is shown: the documents of all are in one place, and are those of one."""
        assert self._watched is not None  # noqa: S101 - begin() sets it
        if not self._watched.has_others:
            return
        was_shown = self._is_shown
        self._is_shown = not self._is_of_another(read_facts(self._watched.checkpoint, NOW) or {})
        if self._is_shown and not was_shown:  # the history goes on where that of the other instance ended
            own = {minute.start_ms for minute in self._minutes}
            kept = (read_facts(self._watched.checkpoint, HISTORY) or {}).get("minutes", ())
            with suppress(TypeError):  # another version's
                before = [minute for row in kept if (minute := Minute(*row)).start_ms not in own]
                self._minutes = deque(sorted([*before, *self._minutes], key=_start_ms), maxlen=_MINUTES)

    def _describe(self) -> None:
        assert self._watched is not None  # noqa: S101 - begin() sets it
        self.topology = self._watched.describe()
        write_facts(self._watched.checkpoint, TOPOLOGY, self.topology)

    def _write(self) -> None:
        assert self._watched is not None  # noqa: S101 - begin() sets it
        if not self._is_shown:
            self._look_for_another()
        if self._is_shown:
            write_facts(self._watched.checkpoint, NOW, self._document)

    def _write_history(self) -> None:
        assert self._watched is not None  # noqa: S101 - begin() sets it
        self._look_for_another()
        if self._is_shown:
            write_facts(self._watched.checkpoint, HISTORY, {"past": self._past.kept(), "minutes": self.minutes()})

    def _finish(self) -> None:
        self._renew(force=True)
        self._write_history()
        self._write()

    def minutes(self) -> list[list[Any]]:
        """Return the history of the last day, a row for each minute with batches."""
        return [minute.row() for minute in list(self._minutes)]

    def _guarded(self, step: Callable[[], object]) -> None:
        try:
            step()
        except (PenstockError, OSError) as error:  # the console is for people: no application ends for it
            _log.debug("the console's figures: %s", error)
        except Exception:  # noqa: BLE001 - logged; the application goes on
            _log.exception("the console's figures could not be kept")


def _start_ms(minute: Minute) -> int:
    return minute.start_ms


def _task(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the chart of a batch shows of a task of its record."""
    return {
        "task": task["task"],
        "level": task.get("level", 0),
        "began_ms": task.get("began_ms", 0),
        "host": task["host"],
        "seconds": task["seconds"],
        "records": task["records"],
        "written": task["records_out"],
        "dropped": task["dropped"],
        "rows": task["rows"],
        "recovered": bool(task.get("recovered")),
        "restored": task.get("restored"),
        **{name: task[name] for name in ("thread", "busy_s") if name in task},
    }
