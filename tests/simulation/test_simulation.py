"""Applications in simulations: whatever happens to them, they write what one undisturbed task writes, exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mutants import MUTANTS
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.testing.simulation.application import Layout
from penstock.testing.simulation.brokers import Brokers
from penstock.testing.simulation.faults import Fault, draw
from penstock.testing.simulation.machines import Machine
from penstock.testing.simulation.run import run
from penstock.testing.simulation.scheduler import Scheduler, SimulatedProcess
from penstock.testing.simulation.simulate import layout_of, simulate, simulate_seed
from penstock.testing.simulation.stand_ins import SimulatedTime, installed
from schedules import FEW
from simulated_topologies import NAMES, inputs_of, plan_of

DEAR = ("count", "suppress", "clocked", "global_table")  # runs of these cost twice as much as those of the others


@pytest.mark.parametrize("name", NAMES)
def test_faults_change_nothing(name: str) -> None:
    simulate(plan_of(name), partial(inputs_of, name), range(10)).require_none()


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_faults_around_few_records_change_nothing(name: str, half: int) -> None:
    count = 70 if name in DEAR else 112
    first = 10_000 + half * count
    simulate(plan_of(name), partial(inputs_of, name, count=FEW), range(first, first + count)).require_none()


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
def test_faults_of_many_seeds_change_nothing(name: str) -> None:
    simulate(plan_of(name), partial(inputs_of, name), range(1_000, 1_400)).require_none()


@pytest.mark.parametrize("name", ["count", "tables"])
def test_instances_share_tasks_whatever_happens(name: str) -> None:
    committing: set[str] = set()
    for seed in range(8):
        layout = replace(layout_of(seed), is_embedded=True, instances=2, threads=2)
        outcome = run(plan_of(name), inputs_of(name, seed), seed, draw(seed), layout)
        assert outcome.violations == [], outcome.story()
        committing |= {each.who.partition(".")[0] for each in outcome.events if each.what.startswith("committed")}
    assert committing == {"instance-0", "instance-1"}


def digests(seeds: range) -> list[str]:
    shared = [("count", 100), ("stateless", 104)]  # of two instances
    cases = [*((name, seed) for name in NAMES for seed in seeds), *shared]
    return [simulate_seed(plan_of(name), inputs_of(name, seed), seed).digest for name, seed in cases]


def test_a_seed_has_one_log_and_one_story_in_every_process() -> None:
    program = "import test_simulation as own; print(*own.digests(range(70, 73)), sep='\\n')"
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here), "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.split() == digests(range(70, 73))


def test_other_threads_of_the_process_have_its_own_clock() -> None:
    scheduler = Scheduler(1)
    clock: Any = SimulatedTime(scheduler)
    looks: list[float] = []

    def look() -> None:  # as the heartbeat of a lease does that an earlier test has left behind
        looks.extend([clock.time(), clock.time_ns() / 1e9, clock.monotonic(), clock.clock_gettime_ns(1) / 1e9])
        clock.sleep(0.0)

    def body() -> None:
        other = threading.Thread(target=look)
        other.start()
        other.join()

    before = [time.time(), time.time(), time.monotonic(), time.monotonic()]
    actor = scheduler.spawn("one", SimulatedProcess("one"), body)
    assert scheduler.run(lambda: actor.is_done, 1.0)
    assert actor.error is None
    assert scheduler.now_s == 0.0
    assert all(look >= at for look, at in zip(looks, before, strict=True))
    assert clock.monotonic() < 1001.0  # that of the simulation


def test_replicas_of_other_threads_of_the_process_are_not_those_of_an_actor(tmp_path: Path) -> None:
    scheduler, process = Scheduler(1), SimulatedProcess("one", Machine("machine", tmp_path))
    opened: list[LmdbReplica] = []

    def open_one() -> None:  # as a restore does that an earlier test has left behind
        opened.append(LmdbReplica(tmp_path / "other", "other", ["store"]))

    def body() -> None:
        opened.append(LmdbReplica(tmp_path / "own", "own", ["store"]))
        other = threading.Thread(target=open_one)
        other.start()
        other.join()

    with installed(scheduler, lambda: None, None, lambda *_: None):
        actor = scheduler.spawn("one", process, body)
        assert scheduler.run(lambda: actor.is_done, 1.0)
    assert actor.error is None
    other = opened[1]
    assert len(process.releases) == 1
    process.releases[0]()
    assert other.transaction_number >= 0  # its files are open still
    other.close()


def test_the_story_names_the_fault_and_the_commits() -> None:
    outcome = run(plan_of("count"), inputs_of("count", 5), 5, [Fault(60, "crash")], Layout(2, 2))
    assert outcome.violations == []
    assert outcome.faults == {"crash": 1}
    lines = outcome.story().splitlines()
    assert any("FAULT (crash at point 60): crashes at:" in line for line in lines)
    assert any("thread-0" in line and "committed in-" in line for line in lines)
    assert len([line for line in lines if "started" in line]) > 2  # one of the two a second time


def test_a_commit_that_shows_is_not_undone_by_an_earlier_one_that_is_marked_later() -> None:
    scheduler, place = Scheduler(1), TopicPartition("in", 0)
    brokers = Brokers(scheduler)
    brokers.commit("thread-0", {place: OffsetAndMetadata(8)}, 0.0, 5.0)
    brokers.commit("thread-1", {place: OffsetAndMetadata(10)}, 0.0, 0.0)
    brokers.mark()
    assert brokers.committed[place].offset == 10


def test_an_application_ends_only_when_all_that_is_committed_can_be_read() -> None:
    assert simulate_seed(plan_of("count"), inputs_of("count", 42), 42).violations == []


def test_a_thread_that_was_replaced_reads_what_its_next_owner_has_deleted() -> None:
    """Its connection to the driver was away: that others have its task is no loss of records."""
    assert simulate_seed(plan_of("count"), inputs_of("count", 20_035, FEW), 20_035).violations == []


def test_threads_without_tasks_follow_global_stores() -> None:
    """There are three threads for two tasks: one that has none may write the copy that another one reads."""
    assert simulate_seed(plan_of("global_table"), inputs_of("global_table", 20), 20).violations == []


def test_a_failure_is_made_small() -> None:
    lost = next(each for each in MUTANTS if each.name == "offsets are committed before the records")
    with lost.put_back():
        report = simulate(plan_of("stateless"), partial(inputs_of, "stateless"), range(40))
    (failure,) = report.failures
    assert len(failure.faults) == 1
    assert len(failure.inputs) < 10
    assert "WRONG: " in failure.story()
    assert run(plan_of("stateless"), failure.inputs, failure.seed, failure.faults, failure.layout).violations == []
    with pytest.raises(AssertionError, match="committed in-"):
        report.require_none()
