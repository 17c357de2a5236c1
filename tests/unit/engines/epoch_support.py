"""The driver's side of an epoch, with threads that do as they are asked."""

from __future__ import annotations

from typing import Any

from penstock.engines.threads.assignment import StateHolders
from penstock.engines.threads.hosting.control_channel import Member
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.epoch_job import ContinuousJob
from penstock.engines.threads.hosting.task_sharing import PlacedTasks
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology

__all__ = ["EPOCH", "Driver", "plan_of_tasks"]

EPOCH = 4


def plan_of_tasks(tasks: int, name: str = "in") -> PhysicalPlan:
    sub = PlannedSubTopology(0, (), ("store",), (name,), (), (), tasks, (0,), True, False)
    return PhysicalPlan("app", (sub,), {name: tasks}, ())


class Driver:
    """An epoch with threads that do as they are asked, at once or when they are let."""

    def __init__(self, threads: int, tasks: int, before: StateHolders | None = None, **settings: Any) -> None:
        self.now = 100.0
        self.launched = 0
        self.sent: dict[str, list[dict[str, Any]]] = {}
        job = ContinuousJob(plan_of_tasks(tasks), b"", "", {}, "log", EPOCH, threads, "", **settings)
        self.epoch = Epoch(job, self._send, PlacedTasks(job, before), lambda: self.now)

    def _send(self, member: Member, message: Any) -> bool:
        self.sent.setdefault(member.thread, []).append(message)
        return True

    def hello(self, name: str, place: str, pid: int = 1, attempt: int = 0) -> None:
        facts = {"host": f"host-{place}", "pid": pid, "place": place, "attempt": attempt}
        self.epoch.on_message(Member(name, EPOCH), {"hello": facts})
        self.look()

    def look(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.epoch.look(15.0, 45.0, lambda: self.launched)

    def wanted(self, name: str) -> dict[str, Any]:
        return next(each["assign"] for each in reversed(self.sent[name]) if "assign" in each)

    def done(self, name: str, lag: int | None = 0, **more: Any) -> None:
        """The thread has done what its newest list says."""
        wanted = self.wanted(name)
        standbys = dict.fromkeys(wanted["standby"], lag)
        tasks = wanted["active"]
        report = {
            "state": "running",
            "revision": wanted["revision"],
            "owned": tasks,
            "ready": tasks,
            "standbys": standbys,
        }
        self.epoch.on_message(Member(name, EPOCH), {"report": {**report, **more}})

    def tasks(self, name: str) -> tuple[list[str], list[str]]:
        return self.wanted(name)["active"], self.wanted(name)["standby"]

    def gone(self, name: str) -> None:
        self.epoch.on_message(Member(name, EPOCH), {"gone": True})
