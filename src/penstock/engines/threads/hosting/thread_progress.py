"""The progress of stream threads, as listeners receive it: what has happened since the last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engines.spark.progress import BatchProgress
from penstock.metrics.task_counts import TaskCounts
from penstock.runtime.global_stores import GLOBAL_TASK

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.thread_state import ThreadState

__all__ = ["ProgressCounter"]

# "records_in" and "records_out" are of all topics, the others of those that are not internal.
_COUNTS = ("records_in", "records_out", "records_read", "records_written", "dropped")


class ProgressCounter:
    """A counter of what threads have done between two looks, across epochs."""

    def __init__(self) -> None:
        self._looks = 0
        self._counts: dict[tuple[int, str, str], Mapping[str, Any]] = {}
        self._seconds: dict[tuple[int, str], Mapping[str, float]] = {}
        self._commits: dict[tuple[int, str], int] = {}
        self._totals: dict[tuple[int, str, str], tuple[Mapping[str, Any], TaskCounts]] = {}  # as written, and read
        self._restored: dict[tuple[int, str], dict[tuple[str, int], tuple[int, bool]]] = {}
        self._globally: dict[tuple[int, str], TaskCounts] = {}
        self._clients: dict[tuple[int, str], dict[tuple[Any, ...], Sequence[Any]]] = {}
        self._lost: dict[str, int] = {}
        self._lives: dict[tuple[int, str], tuple[Any, ...]] = {}  # of each thread: its attempt, and when it began
        self._commits_before = 0  # by threads that have begun anew since

    def note_lost(self, lost: Mapping[str, int]) -> None:
        """Have the next progress say how many records were gone before they were read, by ``topic-partition``."""
        for name, count in lost.items():
            self._lost[name] = self._lost.get(name, 0) + count

    @property
    def commits(self) -> int:
        """The number of commits of all threads so far."""
        return self._commits_before + sum(self._commits.values())

    def progress(self, epoch: int, threads: Mapping[str, ThreadState]) -> BatchProgress | None:
        """Return what has happened since the last look; None if nothing has.

        Args:
            epoch: The number of the epoch.
            threads: Its threads.
        """
        for name, thread in threads.items():
            if "tasks" in thread.report:
                self._note_life((epoch, name), (thread.attempt, thread.report["began_ms"]))
        before = [dict(counted) for counted in self._counted()]
        tasks: list[dict[str, Any]] = []
        lag: dict[str, int] = {}
        seconds, moved = 0.0, False
        for name, thread in threads.items():
            report = thread.report
            if "tasks" not in report:
                continue
            steps = self._steps(epoch, name, report["seconds"])
            seconds += sum(time for step, time in steps.items() if step != "poll")
            moved |= report["commits"] != self._commits.get((epoch, name), 0)
            self._commits[epoch, name] = report["commits"]
            lag |= {tp: max(0, end - report["positions"].get(tp, end)) for tp, end in report["ends"].items()}
            new = [self._task(epoch, name, each, report.get("counts", {})) for each in report["tasks"]]
            self._note_restores((epoch, name), report.get("restores", ()), new)
            tasks += new
            if report["tasks"]:
                # Of the thread, whose tasks take turns.
                tasks[-1] |= {"ends": report["positions"], "seconds": steps}
                tasks[-1] |= {each: report[each] for each in ("began_ms", "committed_ms")}
                tasks[-1] |= {"restoring": sum(each["offset"] < each["end"] for each in report.get("restores", ()))}
                tasks[-1] |= {"clients": self._of_clients((epoch, name), report.get("clients", ()))}
        if tasks:
            self._add_global_task(epoch, threads, tasks[-1])
        sums = {name: sum(task[name] for task in tasks) for name in _COUNTS}
        if not (moved or any(sums.values()) or (tasks and self._lost)):
            for counted, had in zip(self._counted(), before, strict=True):  # for the next look that has more to say
                counted.clear()
                counted.update(had)
            return None
        self._looks += 1
        lost, self._lost = self._lost, {}
        return BatchProgress(
            self._looks - 1,
            sums["records_read"],
            sums["records_written"],
            sums["dropped"],
            max((task["stream_time_ms"] for task in tasks), default=-1),
            lag=lag,
            tasks=tuple(tasks),
            seconds=seconds,
            lost=lost,
        )

    def _note_life(self, at: tuple[int, str], life: tuple[Any, ...]) -> None:
        """Forget what a thread has counted before it began anew, in another process or as another member."""
        if self._lives.setdefault(at, life) == life:
            return
        self._lives[at] = life
        self._commits_before += self._commits.pop(at, 0)
        for counted in (self._seconds, *self._counted()):
            for key in [each for each in counted if each[:2] == at]:
                del counted[key]

    def _counted(self) -> tuple[dict[Any, Any], ...]:
        """Return what has been counted, of which reports have the differences."""
        return self._counts, self._totals, self._restored, self._globally, self._clients

    def _note_restores(
        self, thread: tuple[int, str], restores: Sequence[Mapping[str, Any]], tasks: Sequence[dict[str, Any]]
    ) -> None:
        """Add to each task the changes that were applied to its stores since the last look, and restores that ended."""
        before = self._restored.get(thread, {})
        now: dict[tuple[str, int], tuple[int, bool]] = {}
        holders = {(store, int(t["task"].rpartition("_")[2])): t for t in tasks if restores for store in t["entries"]}
        for each in restores:
            key, rows, is_done = (each["store"], each["partition"]), each["restored"], each["offset"] >= each["end"]
            had, was_done = before.get(key, (0, False))
            task = holders.get(key)
            if task is None:  # it is restored beside the loop, and counts once its task runs
                now |= {key: before[key]} if key in before else {}
                continue
            now[key] = (rows, is_done)
            task["restored_rows"] = task.get("restored_rows", 0) + (rows - had if rows >= had else rows)
            if is_done and not (was_done and rows == had):
                task.setdefault("restored_stores", {})[key[0]] = each["seconds"]
        self._restored[thread] = now

    def _add_global_task(self, epoch: int, threads: Mapping[str, ThreadState], task: dict[str, Any]) -> None:
        """Add to a task what the tasks of the global stores have counted since the last look, on all machines."""
        new = TaskCounts()
        sizes: Mapping[str, Mapping[str, int]] = {}
        for name, thread in threads.items():
            counted = thread.report.get("counts", {}).get(GLOBAL_TASK)
            sizes = thread.report.get("global") or sizes
            if counted is not None:
                totals = TaskCounts.of_document(counted)
                new.merge(totals.since(self._globally.get((epoch, name), TaskCounts())))
                self._globally[epoch, name] = totals
        task["dropped"] += new.dropped
        if sizes:
            task["global"] = {**sizes, "counts": new.document()}

    def _of_clients(self, at: tuple[int, str], counted: Sequence[Sequence[Any]]) -> list[list[Any]]:
        before = self._clients.get(at, {})
        self._clients[at] = {tuple(each[:3]): each for each in counted}
        changes = []
        for client, what, topic, number, total, *extremes in counted:
            _, _, _, then, had, *_ = before.get((client, what, topic), ("", "", "", 0, 0.0))
            if number != then:
                changes.append([client, what, topic, number - then, total - had, *extremes])
        return changes

    def _steps(self, epoch: int, thread: str, seconds: Mapping[str, float]) -> dict[str, float]:
        before, self._seconds[epoch, thread] = self._seconds.get((epoch, thread), {}), seconds
        return {step: round(time - before.get(step, 0.0), 3) for step, time in seconds.items()}

    def _task(
        self, epoch: int, thread: str, task: Mapping[str, Any], counted: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        key = (epoch, thread, task["task"])
        opened = {} if key in self._counts else {"opened": 1}
        before, self._counts[key] = self._counts.get(key, {}), task
        if task["records_in"] < before.get("records_in", 0):  # it has come back to this thread, and counts anew
            before = {}
        counts = {name: task[name] - before.get(name, 0) for name in _COUNTS}
        written = counted.get(task["task"], {})
        last, before_counts = self._totals.get(key, ({}, TaskCounts()))
        new = TaskCounts()
        if written != last:  # most tasks of many have done nothing since the last look
            totals = TaskCounts.of_document(written)
            new, self._totals[key] = totals.since(before_counts), (written, totals)
        shown = {"task": task["task"], "thread": thread, "stream_time_ms": task["stream_time_ms"], **opened, **counts}
        sizes = {"entries": task.get("entries", {}), "store_bytes": task.get("store_bytes", {})}
        return {**shown, **sizes, "busy_s": new.seconds.total, "counts": new.document()}
