"""A thread that is paused at a step while a newer one takes its tasks, and goes on later: it writes nothing, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from continuous_app import settings, topology
from continuous_harness import PATIENCE_S, Words
from eventually import eventually
from fault_sites import BOTH
from penstock.log.base import TopicPartition
from threads import new_thread, thread_app

SCRIPT = Path(__file__).with_name("zombie.py")
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"


@pytest.fixture(params=["embedded", "kafka"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Words]:
    url = ""
    if request.param == "kafka":
        url = request.getfixturevalue("kafka").settings.bootstrap_servers
    made = Words(tmp_path, url)
    yield made
    made.log.close()


def start(words: Words, epoch: int, guarantee: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), words.name, words.url, str(words.root), str(epoch), guarantee]
    environment = words.fault.environment(dict(os.environ))
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run_on(words: Words, lease: Any, guarantee: str) -> None:
    """A thread of a newer epoch, until nothing is left."""
    config = {**settings(words.name, words.url, words.root), "processing.guarantee": guarantee}
    app = thread_app(topology(words.name), config, words.log, f"{words.root}/replicas")
    words.log.fence_threads(words.name, ["thread-0"], lease.epoch)
    thread = new_thread(app, words.log, epoch=lease.epoch)
    thread.start()
    try:
        eventually(lambda: not thread.step(0.05) and is_at_end(words), within_s=PATIENCE_S)
    finally:
        thread.close(commit=True)


def is_at_end(words: Words) -> bool:
    """Whether all input and all that followed from it is committed."""
    topics = words.topic("words"), words.topic("counts-repartition")
    # A commit is final before each partition shows its end.
    ends = words.log.settled_ends([TopicPartition(topic, partition) for topic in topics for partition in range(2)])
    committed = words.log.committed_offsets(words.name)
    return all(committed.get(place, 0) >= end for place, end in ends.items())


def outputs(words: Words, guarantee: str) -> object:
    """What a zombie must not add to. At least once, Kafka's outputs leave without a transaction: it may repeat some."""
    if guarantee == AT_LEAST_ONCE and not words.url.startswith("sqlite"):
        return None
    topics = words.topic("counts"), words.topic("upper")
    words.log.settled_ends([TopicPartition(topic, partition) for topic in topics for partition in range(2)])
    return words.written("counts"), words.written("upper")


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


CASES = [(site, EXACTLY_ONCE) for site in BOTH]
CASES += [(site, AT_LEAST_ONCE) for site in ("processed", "in the transaction", "in the replica")]


@pytest.mark.parametrize(("site", "guarantee"), CASES)
def test_it_writes_nothing(words: Words, site: str, guarantee: str) -> None:
    words.send(40)
    lease = words.log.acquire_lease(words.name, "first")
    zombie = start(words, lease.epoch, guarantee)
    try:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "running\n"
        words.fault.arm(site, "stop")
        with ThreadPoolExecutor(1) as beside:
            sent = beside.submit(words.send, 40)
            pid = eventually(lambda: words.fault.taken_by)
            eventually(lambda: is_stopped(pid))
            if site == "in the transaction" and words.url.startswith("sqlite"):
                # It holds the lock of the file, as long as it is there: nobody else can write, and what was sent waits.
                os.kill(pid, signal.SIGCONT)
            sent.result()
        words.send(40)
        newer = words.log.acquire_lease(words.name, "second", replacing=lease)
        run_on(words, newer, guarantee)
        before = words.log.committed_offsets(words.name), outputs(words, guarantee)
        os.kill(pid, signal.SIGCONT)
        assert zombie.wait(PATIENCE_S) == 0
        assert zombie.stdout.read() == "FencedError\n"
        assert (words.log.committed_offsets(words.name), outputs(words, guarantee)) == before
        check = words.check if guarantee == EXACTLY_ONCE else words.check_at_least
        check()
        words.send(40)
        run_on(words, newer, guarantee)  # over the replica at which both have been
        check()
    finally:
        zombie.kill()
        zombie.communicate()
