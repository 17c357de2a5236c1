"""A stage for tests of streams groups over both coordinators, a broker and the embedded log."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.base.clock import unix_ms
from penstock.errors import LogUnavailableError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.kafka.log import KafkaLog
from penstock.log.open import open_log
from penstock.log.streams_groups.description import (
    Assignment,
    GroupSubtopology,
    GroupTopology,
    InternalTopicSpec,
    StreamsCoordinator,
    StreamsGroupDescription,
)
from penstock.log.streams_groups.group import GroupSettings
from penstock.log.streams_groups.member import MemberFacts, MemberState, StreamsMember
from penstock.tools.broker.process import Broker

__all__ = ["COMPACTED", "PATIENCE_S", "STEP_MS", "Stage", "broker_stage", "counting", "embedded_stage"]

PATIENCE_S = 60
STEP_MS = 100
_AHEAD_MS = 1_000_000_000
_FOR_EVER_MS = 10**9
COMPACTED = (("cleanup.policy", "compact"),)


def counting(app: str, source: str) -> GroupTopology:
    """A topology with a repartition topic and a store."""
    again = f"{app}-by-value-repartition"
    return GroupTopology((
        GroupSubtopology("0", (source,), repartition_sinks=(again,)),
        GroupSubtopology(
            "1",
            changelogs=(InternalTopicSpec(f"{app}-counts-changelog", config=COMPACTED),),
            repartition_sources=(InternalTopicSpec(again),),
        ),
    ))  # fmt: skip


@dataclass
class Stage:
    """A log with its coordinator, and a group with its members."""

    log: EmbeddedLog | KafkaLog
    coordinator: StreamsCoordinator
    pause: Callable[[], None]
    now_ms: Callable[[], int]
    is_broker: bool
    app: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    members: list[StreamsMember] = field(default_factory=list)

    def topic(self, name: str, partitions: int) -> str:
        """Create a topic of this group's own."""
        full = f"{self.app}-{name}"
        self.log.create_topic(full, partitions)
        return full

    def member(self, topology: GroupTopology, **facts: Any) -> StreamsMember:
        """A member that asks often, and so hears of everything soon."""
        facts = {"process": str(uuid.uuid4()), **facts}
        made = MemberFacts(self.app, f"m-{uuid.uuid4().hex}", topology=topology, **facts)
        member = StreamsMember(made, self.now_ms(), eager_for_ms=_FOR_EVER_MS)
        self.members.append(member)
        return member

    def beat(self, member: StreamsMember) -> None:
        """Send a heartbeat if one is due."""
        heartbeat = member.next_heartbeat(self.now_ms())
        if heartbeat is None:
            return
        try:
            answer = self.coordinator.heartbeat(heartbeat)
        except LogUnavailableError:  # the first group of a broker: the topic of groups is being created
            member.unanswered(self.now_ms())
        else:
            member.answered(answer, self.now_ms())

    def step(self, member: StreamsMember) -> None:
        """Send what is due, and do what is to do."""
        self.beat(member)
        work = member.work()
        if work.drop:
            member.dropped(self.now_ms())
        elif work.release:
            member.released(work.release, self.now_ms())
        elif work.acquire:
            self._check_alone(work.acquire)
            member.acquired(work, self.now_ms())

    def _check_alone(self, tasks: Assignment) -> None:
        for other in self.members:
            assert not other.owned.active & tasks.active, "a task has two owners"

    def until(self, done: Callable[[], object]) -> None:
        """Let the members go on until something is so."""
        for _ in range(PATIENCE_S * 1000 // STEP_MS):
            for member in self.members:
                self.step(member)
            if done():
                return
            self.pause()
        told = [(each.state, each.owned, each.status, each.failure) for each in self.members]
        raise AssertionError(f"not within {PATIENCE_S} s: {told}, {self.described()}")

    def described(self) -> StreamsGroupDescription:
        found = self.coordinator.describe(self.app)
        assert found is not None
        return found

    def all_tasks(self, count: int) -> Callable[[], bool]:
        """Whether the members have so many tasks together, and all stand still."""
        return lambda: (
            sum(len(each.owned.active) for each in self.members) == count
            and all(each.state in (MemberState.STABLE, MemberState.LEFT) for each in self.members)
            and self.described().state == "Stable"
        )


def broker_stage(broker: Broker) -> Iterator[Stage]:
    """A stage over a broker; its members leave at the end, so that no session is left open."""
    with KafkaLog(broker.settings.bootstrap_servers) as log:
        coordinator = log.streams_coordinator()
        made = Stage(
            log,
            coordinator,
            lambda: time.sleep(STEP_MS / 1000),
            lambda: round(1000 * time.monotonic()),
            is_broker=True,
        )
        yield made
        for member in made.members:
            member.leave(made.now_ms())
        if made.members:
            made.until(lambda: all(m.state in (MemberState.LEFT, MemberState.FAILED) for m in made.members))
        coordinator.close()


def embedded_stage() -> Iterator[Stage]:
    """A stage over an embedded log of its own, with a clock of its own.

    It is ahead of the machine's, by which the log itself looks for silent members: a slow test has none.
    """
    with open_log(f"memory://{uuid.uuid4()}") as log:
        assert isinstance(log, EmbeddedLog)
        clock = [unix_ms() + _AHEAD_MS]
        coordinator = EmbeddedStreamsCoordinator(log, GroupSettings(), lambda: clock[0])

        def pass_time() -> None:
            clock[0] += STEP_MS

        yield Stage(log, coordinator, pass_time, lambda: clock[0], is_broker=False)
