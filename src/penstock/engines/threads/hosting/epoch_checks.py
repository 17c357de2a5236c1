"""Checks of an epoch by its driver: of Spark before it begins, of topics, of partitions that no thread reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.base.log_lines import own_logger
from penstock.engines.application.identities import recreated_error, recreated_topics
from penstock.engines.spark.master_urls import is_one_process
from penstock.errors import AppFailedError, ConfigError, PenstockError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.engines.threads.hosting.epoch import Epoch
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.log.base import TopicLog

__all__ = [
    "UnreadPatience",
    "UnreadWatch",
    "control_addresses",
    "refuse_speculation",
    "require_core_for_dataframes",
    "require_same_topics",
]


def control_addresses(context: SparkContext) -> tuple[str, str]:
    """Return the driver's host for threads, and the address to listen on."""
    settings = context.getConf()
    if is_one_process(settings.get("spark.master") or ""):
        return "127.0.0.1", "127.0.0.1"
    host = settings.get("spark.driver.host") or "127.0.0.1"
    return host, settings.get("spark.driver.bindAddress") or host


def refuse_speculation(context: SparkContext) -> None:
    """Raise ConfigError if Spark runs slow tasks twice: each second attempt would fence the first."""
    if str(context.getConf().get("spark.speculation", "false")).lower() == "true":
        raise ConfigError(
            "processing.mode is continuous, and spark.speculation is on: Spark would start stream threads, which run "
            "as long as the application, a second time",
            hint="Start Spark with spark.speculation=false, or set processing.mode=micro_batch.",
            setting="spark.speculation",
        )


def require_core_for_dataframes(cores: int) -> None:
    """Raise ConfigError if stream threads would leave no core to the queries of an application's DataFrames."""
    if cores < 2:
        raise ConfigError(
            "processing.mode is continuous, whose stream threads keep Spark's cores, and the session of the topology's "
            "DataFrames has one core: their queries would never run",
            hint='Start Spark with two or more, such as master("local[2]"), or set processing.mode=micro_batch.',
            setting="processing.mode",
        )


def require_same_topics(log: TopicLog, job: ContinuousJob) -> None:
    """Raise OffsetOutOfRangeError if a topic was made again: threads know topics by their names only."""
    if again := recreated_topics(job.topic_ids, log.topic_ids(job.plan.external_topics)):
        raise recreated_error(again, job.plan.application_id)


_log = own_logger(__name__)
_SILENT_S = 3.0  # without a report, after which nothing is known of a thread's partitions
_LONG_S = 1.0  # in a step: a report of the thread may be older than that
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class UnreadPatience:
    """The time for which a partition may stay unread while all threads run, in seconds.

    Attributes:
        look_s: The time between two looks.
        warn_s: Until a warning.
        renew_s: Until the tasks are planned again, in a new epoch.
        fail_s: Until the application fails.
        answer_s: For the answer of the log at a look, for which the supervision of all threads waits.
    """

    look_s: float = 5.0
    warn_s: float = 10.0
    renew_s: float = 30.0
    fail_s: float = 300.0
    answer_s: float = 2.0

    @classmethod
    def of(cls, idle_ms: int, task_timeout_ms: int) -> UnreadPatience:
        """Return the times for ``max.task.idle.ms``, for which a task may wait, and ``task.timeout.ms``.

        >>> UnreadPatience.of(0, 300_000).fail_s, UnreadPatience.of(60_000, 0).renew_s
        (300.0, 90.0)
        """
        usual, idle_s = cls(), max(0, idle_ms) / 1000
        renew_s = usual.renew_s + idle_s
        return cls(usual.look_s, usual.warn_s + idle_s, renew_s, max(2 * renew_s, task_timeout_ms / 1000))


@dataclass(slots=True)
class _Unread:
    """A partition that is not read.

    Attributes:
        position: The offset at which it stands.
        seconds: For how long, while all threads ran.
        is_warned: Whether there was a warning.
        is_renewed: Whether there was a new epoch.
    """

    position: int
    seconds: float = 0.0
    is_warned: bool = False
    is_renewed: bool = False


class _Answer(NamedTuple):
    """The ends of an application's topics, and its committed offsets if some partition is held by no thread."""

    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]


class UnreadWatch:
    """A watch over the partitions of an application while its threads run, across epochs.

    A partition with committed records behind its position counts as unread if no thread has it, if its thread takes it
    for read to its end, or if no partition of its task moves. Threads in a long step (a slow function) are left alone;
    time within one turn of a thread, which works for each of its tasks, does not count.

    Args:
        log: The log, which knows the ends.
        patience: The times.
        clock: Returns the time in seconds.
    """

    def __init__(self, log: TopicLog, patience: UnreadPatience, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._patience = patience
        self._clock = clock
        self._looked = clock()
        self._known: dict[TopicPartition, _Unread] = {}
        self._moved: dict[str, tuple[int, ...]] = {}  # the positions of each task at the last look
        self._notes: dict[str, Any] = {}  # the number of each thread's report at the last look
        self._asking: threading.Thread | None = None

    def look(self, epoch: Epoch) -> None:
        """Look at the partitions of an epoch whose threads all run, if it is time.

        Raises:
            AppFailedError: One is not read: with the fact ``plan_anew`` at first, without it when that has not helped.
        """
        now = self._clock()
        passed = now - self._looked
        if passed < self._patience.look_s:
            return
        self._looked = now
        answer = self._ask(epoch)
        if answer is None:  # the brokers are away: nobody can read
            return
        unread, unknown = self._unread(epoch, now, answer)
        passed = min(passed, 2 * self._patience.look_s)  # between epochs nobody looks
        before = self._known
        self._known = {tp: _Unread(position) for tp, position in unread.items()}
        for tp, position in unread.items():
            if tp in before and before[tp].position == position:
                self._known[tp] = before[tp]
                before[tp].seconds += 0.0 if tp in unknown else passed
        self._act({tp: end for tp, end in unread.items() if tp in self._known})

    def _ask(self, epoch: Epoch) -> _Answer | None:
        """Ask the log for ends and committed offsets; None: it does not answer, now or since an earlier look."""
        if self._asking is not None and self._asking.is_alive():
            return None
        plan = epoch.job.plan
        places = {tp for task in epoch.tasks() for tp in plan.sources(task)}
        topics = sorted({tp.topic for tp in places})
        held = {name for each in dict(epoch.threads).values() for name in each.report.get("positions", {})}
        are_held = all(f"{tp.topic}-{tp.partition}" in held for tp in places)
        answers: list[_Answer] = []

        def ask() -> None:
            try:
                ends = self._log.end_offsets(topics)
                answers.append(_Answer(ends, {} if are_held else self._log.committed_offsets(plan.application_id)))
            except PenstockError as error:
                _log.debug("the ends of the topics are not known: %s", error)

        self._asking = threading.Thread(target=ask, name=f"{plan.application_id}-unread", daemon=True)
        self._asking.start()
        self._asking.join(self._patience.answer_s)
        return answers[0] if answers else None

    def _act(self, positions: Mapping[TopicPartition, int]) -> None:
        patience = self._patience
        failed = [tp for tp, each in self._known.items() if each.is_renewed and each.seconds >= patience.fail_s]
        if failed:
            raise AppFailedError(
                f"{_named(failed, positions)}: there are records, and no stream thread has read them for "
                f"{self._known[failed[0]].seconds:.0f} s, even after the tasks were planned again",
                hint="Nothing is lost: start the application again, it continues there. If it happens again, the log "
                "of its workers (penstock.engines.threads at DEBUG) says what they wait for.",
                partitions=[f"{tp.topic}-{tp.partition}" for tp in failed],
            )
        renewed = [tp for tp, each in self._known.items() if not each.is_renewed and each.seconds >= patience.renew_s]
        if renewed:
            for each in self._known.values():
                each.is_renewed = each.is_warned = True
            raise AppFailedError(
                f"{_named(renewed, positions)}: there are records, and no stream thread has read them for "
                f"{self._known[renewed[0]].seconds:.0f} s: the tasks are planned again",
                plan_anew=True,
                partitions=[f"{tp.topic}-{tp.partition}" for tp in renewed],
            )
        warned = [tp for tp, each in self._known.items() if not each.is_warned and each.seconds >= patience.warn_s]
        if warned:
            for tp in warned:
                self._known[tp].is_warned = True
            _log.warning(
                "%s: there are records, and no stream thread has read them for %.0f s",
                _named(warned, positions),
                self._known[warned[0]].seconds,
            )

    def _unread(
        self, epoch: Epoch, now: float, answer: _Answer
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Return the partitions that are not read, with their positions, and those that may be read just now.

        The latter were not read at the last look, and their threads have not ended a turn since.
        """
        plan, threads = epoch.job.plan, dict(epoch.threads)
        if any(now - each.heard > _SILENT_S for each in threads.values() if each.state != "ended"):
            return {}, set()
        before, self._notes = self._notes, {name: each.notes for name, each in threads.items()}
        turning = {name for name, number in self._notes.items() if number is not None and before.get(name) == number}
        sources = {task: plan.sources(task) for task in epoch.tasks()}
        holders = {name: each for each in threads.values() for name in each.report.get("positions", {})}
        in_turn = {name for each in turning for name in threads[each].report.get("positions", {})}
        moved, self._moved = self._moved, {}
        unread: dict[TopicPartition, int] = {}
        unknown: set[TopicPartition] = set()
        for task, places in sources.items():
            names = {f"{tp.topic}-{tp.partition}": tp for tp in places}
            held = [holders[name].report["positions"][name] for name in names if name in holders]
            self._moved[str(task)] = tuple(held)
            stands = moved.get(str(task)) == self._moved[str(task)]
            for name, tp in names.items():
                end = answer.ends.get(tp, 0)
                thread = holders.get(name)
                if thread is None:
                    at = answer.committed.get(tp, 0)
                    if end > at:
                        unread[tp] = at
                    continue
                at = int(thread.report["positions"][name])
                if name in in_turn:
                    if tp in self._known and self._known[tp].position == at:
                        unread[tp] = at
                        unknown.add(tp)
                elif end > at and not _is_busy(thread) and (stands or _seems_read(thread, name, at)):
                    unread[tp] = at
        return unread, unknown


def _is_busy(thread: ThreadState) -> bool:
    """Return whether a thread is in one step for long, other than the wait for records."""
    doing: Mapping[str, Any] | None = thread.report.get("doing")
    return doing is not None and doing["step"] != "poll" and doing["seconds"] > _LONG_S


def _seems_read(thread: ThreadState, name: str, position: int) -> bool:
    """Return whether a thread knows of no more records in a partition."""
    end = thread.report.get("ends", {}).get(name)
    return end is None or int(end) <= position


def _named(places: list[TopicPartition], positions: Mapping[TopicPartition, int]) -> str:
    named = [f"{tp.topic}-{tp.partition} from offset {positions[tp]} on" for tp in places[:_MOST_NAMED]]
    more = f", and {len(places) - _MOST_NAMED} more partitions" if len(places) > _MOST_NAMED else ""
    return ", ".join(named) + more
