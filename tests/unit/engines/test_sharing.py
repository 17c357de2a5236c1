"""A second start asks the instance that has the lease to share its tasks; the instance is a process of its own here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eventually import eventually
from penstock import KafkaStreams, StreamsBuilder, StreamsConfig
from penstock.base.clock import unix_ms
from penstock.engines.application.application_lease import (
    LeaseTenure,
    SharedTenure,
    SharingRecord,
    _Holder,
    wait_for_lease,
    wait_to_share,
)
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.application_figures import BatchMeter
from penstock.engines.application_run import Run
from penstock.engines.factory import engine_of
from penstock.engines.threads.hosting.instance_group import (
    InstanceGroup,
    MemberNote,
    leave_for_dead,
    sharing_identity,
    why_not_shared,
)
from penstock.errors import AuthorizationError, FencedError, LogError, LogUnavailableError
from penstock.log.base import Lease
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.streams_groups.description import LEAVE_STATIC_EPOCH
from penstock.log.streams_groups.member import StreamsMember
from penstock.topology.topology import Topology

# It holds the lease, offers to share it as "one", and does as the lines say; elsewhere, if that is asked for.
HOLDER = """
import os, socket, sys, time
from penstock import StreamsConfig
from penstock.engines.application.application_lease import LeaseTenure
from penstock.log import processes
from penstock.log.open import open_log

url, offers, host, pid = sys.argv[1:]
if pid:
    processes._place = lambda: "another machine"
    os.getpid = lambda: int(pid)
    socket.gethostname = lambda: host
with open_log(url) as log:
    tenure = LeaseTenure(log, StreamsConfig({"application.id": "app", "bootstrap.servers": url}))
    tenure.take()
    if offers == "offers":
        tenure.offer_to_share("one")
    print("holds", flush=True)
    for line in sys.stdin:
        while not tenure.is_asked_to_share:
            time.sleep(0.02)
        if line.startswith("refuse"):
            tenure.refuse_to_share("it is shy")
        else:
            tenure.give_back()
"""


class Holder:
    def __init__(self, url: str, offers: str = "offers", host: str = "", pid: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, offers, host, pid],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "holds\n"

    def when_asked(self, answer: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{answer}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'log.db'}"


@pytest.fixture
def log(url: str) -> Iterator[EmbeddedLog]:
    with open_log(url) as opened:
        assert isinstance(opened, EmbeddedLog)
        opened.create_topic("in", 2)
        yield opened


@pytest.fixture
def holder(url: str, log: EmbeddedLog) -> Iterator[Holder]:
    started = Holder(url)
    yield started
    started.kill()


def config(url: str, **more: Any) -> StreamsConfig:
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    return StreamsConfig({"application.id": "app", "bootstrap.servers": url, **serdes, **more})


def passing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def planned(url: str, log: EmbeddedLog, topology: Topology | None = None, /, **more: Any) -> PlannedApp:
    topology, settings = topology or passing(), config(url, **more)
    return PlannedApp(topology, settings, plan_for(topology, settings, log), log)


def shares(log: EmbeddedLog, url: str, identity: str = "one", obstacle: str = "") -> bool:
    return wait_to_share(log, "app", LeaseTenure(log, config(url)), identity, lambda: obstacle, lambda _: None)


def test_the_holder_releases_the_lease_when_it_is_asked(url: str, log: EmbeddedLog, holder: Holder) -> None:
    holder.when_asked("release")
    assert shares(log, url)
    lease = log.lease("app")
    assert lease is not None
    assert lease.released
    assert shares(log, url)  # a third start, while nobody is a member yet


@pytest.mark.parametrize(
    ("identity", "obstacle", "text"),
    [
        ("two", "", "its topology or processing.guarantee is another one"),
        ("one", "it reads DataFrames (rows)", "it reads DataFrames"),
        ("one", "", "it is shy"),
    ],
)
def test_a_start_is_refused_and_told_why(
    url: str, log: EmbeddedLog, holder: Holder, identity: str, obstacle: str, text: str
) -> None:
    holder.when_asked("refuse")
    with pytest.raises(FencedError, match=f"runs already: .*process {holder.process.pid} on") as refused:
        shares(log, url, identity, obstacle)
    assert f"Its tasks are not shared: {text}" in str(refused.value)


@pytest.mark.parametrize(
    ("host", "pid"),
    [
        pytest.param("another", str(2**22 + 1), id="a number that no process has here"),
        pytest.param(socket.gethostname(), "", id="a container with this name and number"),
    ],
)
def test_a_holder_that_cannot_be_seen_from_here_is_asked_too(url: str, log: EmbeddedLog, host: str, pid: str) -> None:
    far = Holder(url, host=host, pid=pid or str(os.getpid()))
    try:
        far.when_asked("release")
        assert shares(log, url)
    finally:
        far.kill()


def test_a_holder_whose_clock_is_behind_is_known_by_its_heartbeats() -> None:
    ms = unix_ms() - 600_000
    held = Lease("app", "one", 1, "another", 2**22 + 1, ms, ms, 30_000, released=False, process_start="there/1")
    holder = _Holder()
    assert not holder.runs(held)
    held = replace(held, heartbeat_ms=ms + 5_000)
    assert holder.runs(held)
    assert holder.runs(held)
    assert not holder.runs(replace(held, released=True))
    other = _Holder()
    assert not other.runs(held)
    other.is_seen(ms)  # as its lease could not be taken
    assert other.runs(held)


def test_an_offer_is_of_the_process_that_has_the_lease(url: str, log: EmbeddedLog, holder: Holder) -> None:
    eventually(lambda: SharingRecord(log, "app").read().identity)
    offer, held = SharingRecord(log, "app").read(), log.lease("app")
    assert held is not None
    assert offer.is_of(held)
    assert not offer.is_of(replace(held, process_start="a container with this name/77"))


def test_after_a_refusal_another_start_may_ask_again(url: str, log: EmbeddedLog, holder: Holder) -> None:
    holder.when_asked("refuse")
    with pytest.raises(FencedError):
        shares(log, url)
    record = SharingRecord(log, "app")
    record.ask()
    assert record.read().is_asked
    holder.when_asked("release")
    assert shares(log, url)


def test_an_instance_that_does_not_offer_is_not_waited_for_long(
    url: str, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engines.application.application_lease._OFFER_MS", 0)
    silent = Holder(url, "is silent")
    try:
        with pytest.raises(FencedError, match="runs already"):
            shares(log, url)
    finally:
        silent.kill()


def test_the_lease_of_a_killed_holder_is_taken(url: str, log: EmbeddedLog, holder: Holder) -> None:
    holder.kill()
    tenure = LeaseTenure(log, config(url))
    assert not wait_to_share(log, "app", tenure, "one", lambda: "", lambda _: None)
    assert tenure.lease is not None
    tenure.give_back()


def test_one_process_does_not_share_with_itself(url: str, log: EmbeddedLog) -> None:
    tenure = LeaseTenure(log, config(url))
    tenure.take()
    tenure.offer_to_share("one")
    try:
        with pytest.raises(FencedError, match="runs already"):
            shares(log, url)
    finally:
        tenure.give_back()


def test_a_request_counts_for_some_time(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    record, now = SharingRecord(log, "app"), unix_ms()
    monkeypatch.setattr("penstock.engines.application.application_lease.unix_ms", lambda: now)
    record.offer("one")
    assert not record.read().is_asked
    record.ask()
    record.offer("one")  # of another process, which has the lease now
    assert record.read().is_asked
    now += 200_000
    assert not record.read().is_asked


def test_one_that_cannot_share_waits_until_the_holder_has_gone(url: str, log: EmbeddedLog, holder: Holder) -> None:
    tenure, waited = LeaseTenure(log, config(url)), list[int]()

    def wait(held: Lease) -> None:
        waited.append(held.pid)
        if len(waited) == 3:
            holder.kill()

    assert wait_for_lease(log, "app", tenure, wait, lambda: False)
    assert set(waited) == {holder.process.pid}
    held = log.lease("app")
    assert held is not None
    assert held.pid == os.getpid()
    with pytest.raises(FencedError, match="runs already"):  # it would wait for itself
        wait_for_lease(log, "app", LeaseTenure(log, config(url)), wait, lambda: False)
    tenure.give_back()
    next_one = LeaseTenure(log, config(url))
    assert not wait_for_lease(log, "app", next_one, wait, lambda: False)
    next_one.give_back()


def test_one_that_waits_may_be_stopped(url: str, log: EmbeddedLog, holder: Holder) -> None:
    waited: list[int] = []
    with pytest.raises(FencedError, match=f"runs already: .*process {holder.process.pid} on"):
        wait_for_lease(
            log, "app", LeaseTenure(log, config(url)), lambda held: waited.append(held.pid), lambda: len(waited) == 2
        )


def test_one_that_waits_goes_on_to_wait_while_the_log_is_away(
    url: str, log: EmbeddedLog, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looks, waited = log.lease, list[int](), list[int]()

    def looked(application: str) -> Lease | None:
        looks.append(len(waited))
        if len(looks) in (2, 3, 5):
            raise LogUnavailableError("no broker answers")
        return look(application)

    def wait(held: Lease) -> None:
        waited.append(held.pid)
        if len(waited) == 2:
            holder.kill()

    monkeypatch.setattr(log, "lease", looked)
    tenure = LeaseTenure(log, config(url))
    assert wait_for_lease(log, "app", tenure, wait, lambda: False)
    assert looks[:5] == [0, 1, 1, 1, 2]
    tenure.give_back()
    looks[:] = [0]
    with pytest.raises(LogUnavailableError):
        wait_for_lease(log, "app", LeaseTenure(log, config(url)), wait, lambda: False)


def test_a_holder_that_was_paused_is_fenced_before_tasks_are_shared(url: str, log: EmbeddedLog) -> None:
    paused = log.acquire_lease("app", "one that is paused", ttl_ms=-1)
    SharedTenure(log, config(url)).take()
    with pytest.raises(FencedError, match="has taken over"):
        log.renew_lease(paused)
    lease = log.lease("app")
    assert lease is not None
    assert lease.released


def test_instances_that_begin_to_share_wait_for_one_that_has_the_lease_for_a_moment(
    url: str, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = log.acquire_lease("app", "another one")
    with pytest.raises(FencedError, match="runs already"):
        SharedTenure(log, config(url)).take()
    SharingRecord(log, "app").ask()
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: log.release_lease(lease))
    monkeypatch.setattr("penstock.engines.application.application_lease.time", clock)
    SharedTenure(log, config(url)).take()


def test_a_start_shares_while_the_only_instance_that_shares_is_between_two_epochs(url: str, log: EmbeddedLog) -> None:
    tenure = SharedTenure(log, config(url))
    tenure.keep_sharing()
    assert shares(log, url)


def test_a_start_shares_while_one_that_shares_from_the_first_start_on_has_no_members_yet(
    url: str, log: EmbeddedLog
) -> None:
    SharedTenure(log, config(url, **{"group.protocol": "streams"})).take()
    assert shares(log, url)
    assert log.lease("app") is None


def test_of_two_starts_at_once_the_one_that_has_taken_the_lease_is_waited_for(
    url: str, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, holders = log.lease, list[Holder]()

    def looked(application: str) -> Lease | None:
        seen = look(application)
        if not holders:  # another start is faster, just after this one has looked
            holders.append(Holder(url))
            holders[0].when_asked("release")
        return seen

    monkeypatch.setattr(log, "lease", looked)
    try:
        SharedTenure(log, config(url, **{"group.protocol": "streams"})).take()
        held = look("app")
        assert held is not None
        assert held.released
    finally:
        for each in holders:
            each.kill()


def test_a_holder_that_does_not_offer_to_share_is_not_waited_for_long(
    url: str, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Holder(url)
    eventually(lambda: SharingRecord(log, "app").read().host)
    before.kill()  # its offer stays
    log.acquire_lease("app", "a classic one")
    SharingRecord(log, "app").ask()
    now = 0.0

    def sleep(_: float) -> None:
        nonlocal now
        now += 61.0

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr("penstock.engines.application.application_lease.time", clock)
    with pytest.raises(FencedError, match="runs already: a classic one"):
        SharedTenure(log, config(url)).take()
    assert now == 61.0


def test_an_instance_whose_start_takes_long_asks_again(
    url: str, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now, sleep=time.sleep)
    monkeypatch.setattr("penstock.engines.application.application_lease.time", clock)
    tenure = SharedTenure(log, config(url, **{"group.protocol": "streams"}))
    tenure.take()
    SharingRecord(log, "app")._change(lambda before: replace(before, asked_ms=1))  # it counts no more
    now = 130.0
    holder = Holder(url)
    try:
        holder.when_asked("release")
        tenure.attend([], dict)
        held = log.lease("app")
        assert held is not None
        assert held.released
    finally:
        holder.kill()


def test_a_start_that_cannot_share_runs_alone_however_short_ago_others_shared(url: str, log: EmbeddedLog) -> None:
    """As with a new version that reads DataFrames, after the instances of the one before have ended."""
    SharingRecord(log, "app").ask()
    tenure = LeaseTenure(log, config(url))
    assert not wait_to_share(log, "app", tenure, "one", lambda: "it reads DataFrames", lambda _: None)
    tenure.give_back()


def test_a_start_that_cannot_share_is_refused_while_others_do(url: str, log: EmbeddedLog) -> None:
    app = planned(url, log)
    facts = InstanceGroup(app).members(app.plan, app.topology)._identities.member_at("thread-0", "here", None)
    join = StreamsMember(facts, 0).next_heartbeat(0)
    assert join is not None
    log.streams_coordinator().heartbeat(join)
    assert shares(log, url)
    with pytest.raises(FencedError, match="cannot share the tasks: it reads DataFrames"):
        shares(log, url, obstacle="it reads DataFrames")


def test_a_lease_that_no_broker_let_go_of_is_released_later(url: str, log: EmbeddedLog) -> None:
    lease = log.acquire_lease("app", "this one")
    SharingRecord(log, "app").ask()
    SharedTenure(log, config(url), lease).take()
    left = log.lease("app")
    assert left is not None
    assert left.released
    assert left.epoch == lease.epoch


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (LogUnavailableError("no broker answers"), ""),
        (AuthorizationError("it may not see its topics"), "it may not see its topics"),
    ],
)
def test_an_instance_goes_on_while_it_cannot_find_out_whether_it_can_share(
    url: str, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, error: LogError, answer: str
) -> None:
    app = planned(url, log)
    run = Run(app.topology, app.config, None, (), BatchMeter("app"))
    tenure = LeaseTenure(log, app.config)
    run.log, run.plan, run._tenure = log, app.plan, tenure
    tenure.take()
    tenure.offer_to_share("one")

    def fail(_: PlannedApp) -> str:
        raise error

    monkeypatch.setattr(run.engine, "why_not_shared", fail)
    try:
        record = SharingRecord(log, "app")
        eventually(lambda: record.read().identity)
        record.ask()
        eventually(lambda: tenure.is_asked_to_share)
        assert not run.may_share()
        assert record.read().refused == answer
    finally:
        tenure.give_back()


@pytest.mark.parametrize(
    ("given", "until_latest", "may_share"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"group.protocol": "classic"}, False, False),
        ({"processing.mode": "micro_batch"}, False, False),
    ],
)
def test_runs_that_go_over_to_sharing(url: str, given: dict[str, str], until_latest: bool, may_share: bool) -> None:
    engine = engine_of(config(url, **given), lambda _: None, reads_nothing=False)
    assert engine.may_share(until_latest=until_latest) is may_share
    engine.share()
    assert engine.shares_tasks is ("processing.mode" not in given)


def test_what_instances_have_in_common(url: str, log: EmbeddedLog) -> None:
    app = planned(url, log)
    assert sharing_identity(app) == sharing_identity(planned(url, log, **{"num.stream.threads": 7}))
    assert sharing_identity(app) != sharing_identity(planned(url, log, **{"processing.guarantee": "at_least_once"}))
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda _, value: value).count()
    assert sharing_identity(app) != sharing_identity(planned(url, log, builder.build()))


def test_why_tasks_cannot_be_shared(url: str, log: EmbeddedLog) -> None:
    assert why_not_shared(planned(url, log)) == ""
    assert why_not_shared(planned(url, log, **{"group.instance.id": "me"})).startswith("group.instance.id is set")
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda _, value: value).count()
    counting = planned(url, log, builder.build())
    assert why_not_shared(counting) == ""
    repartition = next(iter(counting.plan.repartition_topics))
    log.create_topic(repartition, 1)  # as before its source had grown
    assert f"topic {repartition} has invalid partitions: expected 2, actual 1" in why_not_shared(counting)


def test_the_next_start_leaves_for_members_whose_process_was_killed(url: str, log: EmbeddedLog, tmp_path: Path) -> None:
    app = planned(url, log)
    group, coordinator = InstanceGroup(app), log.streams_coordinator()
    ids = [str(uuid.uuid4()) for _ in range(3)]
    facts = group.members(app.plan, app.topology)._identities.member_at("thread-0", "here", None)
    for each, static in zip(ids, (None, None, "static"), strict=True):
        join = StreamsMember(replace(facts, member=each, instance=static), 0).next_heartbeat(0)
        assert join is not None
        coordinator.heartbeat(join)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    MemberNote(tmp_path, uuid.uuid4()).write({ids[0]: None})  # of a process that runs: this one
    killed = tmp_path / f"members-{uuid.uuid4()}.json"
    text = next(tmp_path.glob("members-*.json")).read_text()
    of_dead = json.dumps({ids[1]: None, ids[2]: "static"})
    killed.write_text(text.replace(f" {_pid_in(text)},", f" {dead.pid},").replace(json.dumps({ids[0]: None}), of_dead))
    (tmp_path / "members-broken.json").write_text("{")
    leave_for_dead(tmp_path, app)
    described = coordinator.describe("app")
    assert described is not None
    assert {each.member: each.epoch == LEAVE_STATIC_EPOCH for each in described.members} == {
        ids[0]: False,
        ids[2]: True,
    }
    assert not killed.exists()


def _pid_in(text: str) -> str:
    return text.split(",")[1].strip()


def test_a_run_until_latest_is_refused_while_another_process_runs(
    url: str, log: EmbeddedLog, holder: Holder, tmp_path: Path
) -> None:
    app = KafkaStreams(passing(), config(url, **{"state.dir": str(tmp_path / "state")}))
    with pytest.raises(FencedError, match="runs already"):
        app.run(until="latest")
    assert not SharingRecord(log, "app").read().is_asked
