"""Continuous mode on Spark: processes that die at each step of the loop, of a start, of an epoch change."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from continuous_harness import PATIENCE_S, Process, Words
from eventually import eventually
from fault_sites import BOTH, DRIVER, STARTING
from penstock.log.kafka.wire.transactions import list_transactions
from penstock.tools.broker.process import Broker

ONE_FAILURE = {"spark.task.maxFailures": 1}  # Spark starts no thread again: a lost one is a new epoch


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    url = ""
    if request.param == "kafka":
        url = request.getfixturevalue("kafka").settings.bootstrap_servers
    made = Words(tmp_path_factory.mktemp("words"), url)
    yield made
    made.log.close()


@pytest.fixture(scope="module")
def app(words: Words) -> Iterator[Process]:
    """One application that outlives all of them: each takes up what the one before has left."""
    with Process(words) as running:
        words.send(20)
        words.check(running.facts)
        yield running
        assert running.process.poll() is None, running.said[-3000:]
        running.stop()
        assert running.process.returncode == 0, running.said[-3000:]
        words.check(running.facts)


@pytest.mark.parametrize("site", BOTH)
def test_a_worker_that_dies_in_an_interval(words: Words, app: Process, site: str) -> None:
    words.fault.arm(site)
    words.send(40)
    eventually(lambda: words.fault.taken_by, PATIENCE_S, facts=app.facts)
    words.send(20)
    words.check(app.facts)


@pytest.mark.parametrize("site", STARTING)
def test_a_worker_that_dies_as_it_starts(words: Words, app: Process, site: str) -> None:
    """One worker dies in an interval, and its successor, whose replicas have gone, in the start."""
    eventually(lambda: _is_settled(app), PATIENCE_S, facts=app.facts)  # else the other may open one that goes just now
    words.fault.arm("processed", "stop")
    words.send(10)
    worker = eventually(lambda: words.fault.taken_by, PATIENCE_S, facts=app.facts)
    try:
        # While it stands still: a successor may open its replicas at once. At one go, as the other may open some just now.
        (words.root / "state").rename(words.root / f"gone-{uuid4()}")
        words.fault.arm(site)
    finally:
        os.kill(worker, signal.SIGKILL)
    words.send(20)
    eventually(lambda: words.fault.taken_by, PATIENCE_S, facts=app.facts)
    words.send(20)
    words.check(app.facts)


def _is_settled(app: Process) -> bool:
    """Whether there are two workers, and none has opened a replica, or closed one, for a while."""
    before = _open_replicas(app)
    time.sleep(0.5)
    return len(before) == 2 and _open_replicas(app) == before


def _open_replicas(app: Process) -> dict[int, list[str]]:
    with suppress(psutil.Error):  # one ends
        workers = app.workers()
        return {each.pid: sorted(file.path for file in each.open_files() if ".mdb" in file.path) for each in workers}
    return {}


@pytest.fixture(scope="module")
def others(words: Words, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    """Another application over the same log, which is started again and again."""
    made = Words(tmp_path_factory.mktemp("others"), words.url)
    yield made
    made.log.close()


@pytest.fixture(scope="module")
def started(others: Words) -> Iterator[list[Process]]:
    """The starts of that application; the last one runs."""
    starts = [Process(others, **ONE_FAILURE)]
    others.send(20)
    yield starts
    others.check(starts[-1].facts)
    starts[-1].stop()
    assert starts[-1].process.returncode == 0, starts[-1].said[-3000:]


@pytest.mark.whole  # threads that wake up late are in test_zombie_threads, drivers that die below
def test_a_driver_dies_and_leaves_a_paused_worker(others: Words, started: list[Process]) -> None:
    others.check(started[-1].facts)
    others.fault.arm("before the transaction", "stop")
    others.send(20)
    zombie = eventually(lambda: others.fault.taken_by, PATIENCE_S, facts=started[-1].facts)
    started[-1].process.kill()
    started[-1].wait()
    started.append(Process(others, **ONE_FAILURE))
    others.send(20)
    others.check(started[-1].facts)
    with suppress(ProcessLookupError):
        os.kill(zombie, signal.SIGCONT)
    eventually(lambda: not psutil.pid_exists(zombie), PATIENCE_S)
    others.check(started[-1].facts)


FIRST, *OTHERS = DRIVER


@pytest.mark.parametrize("site", [FIRST, *(pytest.param(site, marks=pytest.mark.whole) for site in OTHERS)])
def test_a_driver_that_dies_at_an_epoch_change(others: Words, started: list[Process], site: str) -> None:
    """Only the driver dies; its JVM and workers find out by themselves, while the next one is starting already."""
    others.check(started[-1].facts)
    others.fault.arm(site)
    started[-1].kill_a_worker()
    others.send(20)
    started[-1].wait()
    started.append(Process(others, **ONE_FAILURE))
    others.send(20)
    others.check(started[-1].facts)


@pytest.mark.whole
def test_a_transaction_that_brokers_have_aborted_is_written_again_once_with_more_time(
    kafka: Broker, tmp_path: Path
) -> None:
    """The thread is paused in the midst of it for longer than ``transaction.timeout.ms``."""
    words = Words(tmp_path, kafka.settings.bootstrap_servers)
    with Process(words, **{"producer.transaction.timeout.ms": 1000}) as app:
        words.send(20)
        words.check(app.facts)
        words.fault.arm("in the transaction", "stop")
        words.send(40)
        pid = eventually(lambda: words.fault.taken_by, PATIENCE_S, facts=app.facts)
        clusters = words.log.clients.cluster()

        def aborted() -> list[str]:
            ended = list_transactions(clusters, "CompleteAbort")
            return [each.transactional_id for each in ended if each.transactional_id.startswith(words.name)]

        identity = eventually(aborted, PATIENCE_S, facts=app.facts)
        os.kill(pid, signal.SIGCONT)
        words.send(20)
        words.check(app.facts)
        assert app.said.count(f"transaction {identity[0]} was aborted after") == 1, app.said[-3000:]
        assert app.said.count("it is written again, within 2 s") == 1
        assert app.workers()[0].is_running()
        app.stop()
        assert app.process.returncode == 0, app.said[-3000:]
    words.log.close()
