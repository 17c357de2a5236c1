"""Instances whose threads do as they are asked, over an embedded coordinator with a clock of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from epoch_support import plan_of_tasks

from penstock.engines.threads.hosting.control_channel import Member
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.epoch_job import ContinuousJob
from penstock.engines.threads.hosting.group_members import GroupMembers, Identities
from penstock.log.streams_groups.description import (
    GroupSubtopology,
    GroupTopology,
    InternalTopicSpec,
    StreamsCoordinator,
)
from penstock.log.streams_groups.member import MemberFacts

__all__ = ["EPOCH", "TOPOLOGY", "Instance", "Thread"]

EPOCH = 1
TOPOLOGY = GroupTopology((
    GroupSubtopology("0", ("in",), changelogs=(InternalTopicSpec("app-store-changelog", config=(("cleanup.policy", "compact"),)),)),
))  # fmt: skip


@dataclass
class Thread:
    """What a thread has been sent, and what it has done."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    owned: set[str] = field(default_factory=set)
    followed: set[str] = field(default_factory=set)
    revision: int = -1
    fenced: str | None = None

    def newest(self, name: str) -> Any:
        return next((each[name] for each in reversed(self.messages) if name in each), None)


class Instance:
    """An instance with its threads. They do what their lists say when `work` is called, and not before.

    Attributes:
        place: Its folder of replicas; with one it says where the state of tasks is.
        static: Its ``group.instance.id``.
        lag: How far copies of state here are behind; None: not looked at yet.
    """

    def __init__(
        self, coordinator: StreamsCoordinator, clock_ms: Callable[[], int], tasks: int, **settings: Any
    ) -> None:
        self.clock_ms = clock_ms
        self.threads: dict[str, Thread] = {}
        self.place: str = settings.pop("place", "")
        self.lag: int | None = None
        self.static: str = settings.pop("static", "")
        facts = MemberFacts("app", "", "", settings.pop("topology", TOPOLOGY))
        instance = uuid.uuid5(uuid.NAMESPACE_OID, self.static) if self.static else uuid.uuid4()
        identities = Identities(facts, instance, {0: 0}, bool(self.place), self.static)
        leaving = settings.pop("leaving", ())
        self.members = GroupMembers(coordinator, identities, 200, clock_ms, in_background=False, leaving=leaving)
        self.members.open_at(None)
        self.job = ContinuousJob(
            plan_of_tasks(tasks), b"", "", {}, "log", EPOCH, settings.pop("count", 2), "", instance="i", **settings
        )
        self.epoch = Epoch(self.job, self._send, self.members, lambda: clock_ms() / 1000)

    def _send(self, member: Member, message: Any) -> bool:
        self.threads[member.thread].messages.append(message)
        return True

    def hello(self, name: str, pid: int = 1) -> None:
        self.threads[name] = Thread()
        hello = {"host": "h", "pid": pid, "place": self.place or "p", "attempt": pid}
        self.epoch.on_message(Member(name, EPOCH), {"hello": hello})
        self.epoch.look(15.0, 45.0)

    def report(self, name: str, state: str = "running") -> None:
        thread = self.threads[name]
        owned = sorted(thread.owned)
        report = {"state": state, "revision": thread.revision, "owned": owned, "ready": owned}
        ends = dict.fromkeys(thread.followed, 5_000)
        report |= {"standbys": dict.fromkeys(thread.followed, self.lag), "changelog_ends": ends}
        if thread.fenced is not None:
            report["fenced"] = thread.fenced
        self.epoch.on_message(Member(name, EPOCH), {"report": report})

    def work(self, *names: str) -> None:
        """Have threads do what their newest lists say, and report it."""
        for name in names or tuple(self.threads):
            thread = self.threads[name]
            wanted = thread.newest("assign")
            if wanted is not None and wanted["revision"] > thread.revision:
                thread.revision, thread.owned = wanted["revision"], set(wanted["active"])
                thread.followed = set(wanted["standby"])
                self.report(name)

    def beat(self) -> None:
        """Send the heartbeats that are due."""
        self.members.beat()

    def owned(self) -> dict[str, set[str]]:
        return {name: thread.owned for name, thread in self.threads.items()}

    def begin(self, *names: str) -> None:
        """Have threads come, and take their first, empty list."""
        for number, name in enumerate(names):
            self.hello(name, pid=number + 1)
        self.work()
