"""What instances of an application may share, and what the group says of them to queries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from penstock import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig
from penstock.base.clock import unix_ms
from penstock.engines.application.application_lease import SharedTenure
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.committed_state.opening import GroupInstances
from penstock.engines.threads.hosting.epoch_start import NewEpoch, prepare_epoch
from penstock.engines.threads.hosting.instance_group import InstanceGroup
from penstock.engines.threads.hosting.plan_notes import StartNote
from penstock.errors import ConfigError, FencedError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.processes import own_process, process_start
from penstock.log.streams_groups.description import Endpoint
from penstock.log.streams_groups.member import StreamsMember
from penstock.query.instances import HostInfo
from penstock.topology.topology import Topology

TASKS = 2


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts"))
    return builder.build()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'log.db'}"


@pytest.fixture
def log(url: str) -> Iterator[EmbeddedLog]:
    with open_log(url) as opened:
        assert isinstance(opened, EmbeddedLog)
        opened.create_topic("in", TASKS)
        yield opened


def config(url: str, **more: Any) -> StreamsConfig:
    given = {
        "application.id": "app",
        "bootstrap.servers": url,
        "group.protocol": "streams",
        "default.key.serde": "string",
        "default.value.serde": "string",
    }
    return StreamsConfig({**given, **more})


def test_a_run_until_latest_is_refused_before_anything_is_made(url: str, log: EmbeddedLog, tmp_path: Path) -> None:
    app = KafkaStreams(counting(), config(url, **{"state.dir": str(tmp_path / "state")}))
    with pytest.raises(ConfigError, match="no instance knows when all is done"):
        app.run(until="latest")
    assert [each.name for each in log.topics()] == ["in"]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["group.instance.id", "main.consumer.group.instance.id"])
def test_threads_of_an_instance_with_an_id_are_static_members(url: str, log: EmbeddedLog, name: str) -> None:
    topology, settings = counting(), config(url, **{name: "one"})
    app = PlannedApp(topology, settings, plan_for(topology, settings, log), log)
    first, second = (InstanceGroup(app).members(app.plan, topology)._identities for _ in range(2))
    facts = first.member_at("thread-0", "here", None)
    assert facts.instance == "one-thread-0"
    assert facts.process == second.member_at("thread-1", "here", None).process
    assert facts.process != second.member_at("thread-1", "there", None).process


def test_an_instance_does_not_start_beside_one_that_has_a_lease(url: str, log: EmbeddedLog) -> None:
    tenure = SharedTenure(log, config(url))
    lease = log.acquire_lease("app", "the other one")
    with pytest.raises(FencedError, match="runs already: the other one"):
        tenure.take()
    log.release_lease(lease)
    tenure.take()
    assert tenure.lease is None


def test_the_setting_has_an_effect_on_stream_threads_alone(url: str) -> None:
    assert config(url).ineffective() == ()
    assert config(url, **{"processing.mode": "micro_batch"}).ineffective() == (
        "settings without effect with processing.mode=micro_batch: group.protocol",
    )


@pytest.mark.parametrize(("given", "interval_ms"), [({}, 100), ({"penstock.heartbeat.interval.ms": 50}, 50)])
def test_members_ask_the_group_at_the_interval_that_is_set(
    url: str, log: EmbeddedLog, given: dict[str, int], interval_ms: int
) -> None:
    topology, settings = counting(), config(url, **given)
    plan = plan_for(topology, settings, log)
    members = InstanceGroup(PlannedApp(topology, settings, plan, log)).members(plan, topology)
    assert members._most_ms == interval_ms


def test_the_next_epoch_goes_on_with_members_whose_end_the_group_has_not_heard_of(url: str, log: EmbeddedLog) -> None:
    topology, settings = counting(), config(url, **{"group.instance.id": "one"})
    app = PlannedApp(topology, settings, plan_for(topology, settings, log), log)
    group = InstanceGroup(app)
    first = group.members(app.plan, topology)
    member = StreamsMember(first._identities.member_at("thread-0", "here", None), 0)
    first._leaving["thread-0"] = member, 1 << 60
    second = group.members(app.plan, topology)
    assert (first.has_left, second.has_left) == (True, False)
    assert [*second.take_leaving()] == [member]


def test_settings_of_warm_ups_are_those_of_the_group_in_an_embedded_log(
    url: str, log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    topology, settings = counting(), config(url, **{"max.warmup.replicas": 3, "acceptable.recovery.lag": 5})
    plan = plan_for(topology, settings, log)
    group = InstanceGroup(PlannedApp(topology, settings, plan, log))
    group.prepare(log)
    assert not [each for each in caplog.records if "warm-ups" in each.getMessage()]
    member = StreamsMember(replace(group._facts, member="m", process="p"), 0)
    sent = member.next_heartbeat(0)
    assert sent is not None
    assert group.coordinator.heartbeat(sent).acceptable_recovery_lag == 5


def test_a_task_of_the_plan_has_the_number_of_its_sub_topology_in_the_group(url: str, log: EmbeddedLog) -> None:
    topology, settings = counting(), config(url)
    plan = plan_for(topology, settings, log)
    group = InstanceGroup(PlannedApp(topology, settings, plan, log))
    later = replace(
        plan, subtopologies=tuple(replace(sub, id=sub.id + 7) for sub in plan.subtopologies)
    )  # of an upgrade
    members = group.members(later, topology)
    assert dict(members._identities.numbers) == {sub.id: sub.id - 7 for sub in later.subtopologies}
    assert group.described() is None


def test_queries_learn_from_the_group_which_instance_has_a_key(url: str, log: EmbeddedLog, tmp_path: Path) -> None:
    topology, settings = counting(), config(url)
    group = InstanceGroup(PlannedApp(topology, settings, plan_for(topology, settings, log), log))
    coordinator, members = log.streams_coordinator(), []
    for port in (7001, 7002):
        facts = replace(group._facts, member=f"m{port}", process=f"p{port}", endpoint=Endpoint("host", port))
        members.append(StreamsMember(facts, 0))
    now_ms = 0
    for _ in range(10):
        now_ms += 10_000
        for member in members:
            heartbeat = member.next_heartbeat(now_ms)
            assert heartbeat is not None
            member.answered(coordinator.heartbeat(heartbeat), now_ms)
            if (work := member.work()).release:
                member.released(work.release, now_ms)
            elif work.acquire:
                member.acquired(work, now_ms)
    instances = GroupInstances(str(tmp_path), topology, "app", lambda: open_log(url))
    try:
        alive = {one.host_info: one for one in instances.alive()}
        assert set(alive) == {HostInfo("host", 7001), HostInfo("host", 7002)}
        owners = [
            [host for host, one in alive.items() if instances.role_of(one, "counts", partition) == "active"]
            for partition in range(TASKS)
        ]
        assert sorted(map(len, owners)) == [1, 1]
        assert owners[0] != owners[1]
    finally:
        instances.close()


def test_an_address_that_is_good_on_its_own_machine_alone_is_named_once(
    url: str, log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology, settings = counting(), config(url)
    group = InstanceGroup(PlannedApp(topology, settings, plan_for(topology, settings, log), log))
    coordinator = log.streams_coordinator()
    for member, endpoint in (("m1", Endpoint("127.0.0.1", 7001)), ("m2", Endpoint("far", 7002))):
        sent = StreamsMember(replace(group._facts, member=member, process=member, endpoint=endpoint), 0)
        heartbeat = sent.next_heartbeat(0)
        assert heartbeat is not None
        coordinator.heartbeat(heartbeat)
    described = coordinator.describe("app")
    assert described is not None
    near, far = described.members
    with closing(GroupInstances(str(tmp_path), topology, "app", lambda: open_log(url))) as instances:
        for members in ((near, far), (near, replace(far, host="/10.0.0.2"))):
            instances.take(replace(described, members=members))
            instances.take(replace(described, members=members))
            said = [each.getMessage() for each in caplog.records if "cannot be passed on" in each.getMessage()]
            assert len(said) == (members[0].host != members[1].host)
    assert "says that it is at 127.0.0.1:7001: each machine means itself by that" in said[0]
    assert "set its application.server" in said[0]


def test_an_instance_with_another_guarantee_is_refused_while_others_run(url: str, log: EmbeddedLog) -> None:
    def prepare(guarantee: str, *, is_alone: bool) -> None:
        topology, settings = counting(), config(url, **{"processing.guarantee": guarantee})
        app = PlannedApp(topology, settings, plan_for(topology, settings, log), log)
        prepare_epoch(app, NewEpoch(1, 1, instance="one", is_alone=is_alone), None)

    prepare("exactly_once_v2", is_alone=True)
    with pytest.raises(
        ConfigError, match=r"have processing\.guarantee=exactly_once_v2, and this one has at_least_once"
    ):
        prepare("at_least_once", is_alone=False)
    prepare("exactly_once_v2", is_alone=False)
    prepare("at_least_once", is_alone=True)
    with pytest.raises(ConfigError, match="They go on undisturbed"):
        prepare("exactly_once_v2", is_alone=False)


def test_a_start_counts_until_the_group_has_had_members_or_its_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        host, _, _ = own_process()
        start = StartNote(host, other.pid, process_start(other.pid), unix_ms(), 3)
        assert start.goes_on(3)
        assert not start.goes_on(4)
        assert not replace(start, since_ms=start.since_ms - 121_000).goes_on(3)
        assert not StartNote.own(3).goes_on(3)
        assert StartNote.of({**asdict(start), "what a later version knows": 1}) == start
        assert StartNote.of({"host": host}) is StartNote.of(None) is None
        other.communicate(b"end\n")
    assert not start.goes_on(3)
