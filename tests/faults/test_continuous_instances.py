"""Two instances of an application in continuous mode: never do both write, whoever was paused."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from continuous_harness import PATIENCE_S, Process, Words
from eventually import eventually
from penstock.tools.broker.process import Broker

ALONE = {"group.protocol": "classic"}


@pytest.fixture
def words(kafka: Broker, tmp_path: Path) -> Iterator[Words]:
    made = Words(tmp_path, kafka.settings.bootstrap_servers)
    yield made
    made.log.close()


def await_end(process: Process) -> int:
    return process.process.wait(PATIENCE_S)


def started_after(words: Words, ended: float) -> Process:
    """Start an instance again and again until it is not refused."""
    while True:
        made = Process(words, **ALONE)
        before = words.written("upper").total()
        while made.process.poll() is None:
            if words.written("upper").total() > before:
                return made
            assert time.monotonic() < ended, made.said[-3000:]
            time.sleep(0.1)
        assert "runs already" in made.said, made.said[-3000:]


@pytest.mark.whole
def test_a_second_instance_is_refused_and_takes_over_from_one_that_is_paused(words: Words) -> None:
    with Process(words, **ALONE) as first:
        words.send(40)
        words.check(first.facts)
        second = Process(words, **ALONE)
        assert await_end(second) == 1
        assert f"application '{words.name}' runs already" in second.said
        assert "pyspark" not in second.said.rpartition("Traceback")[2]  # it did not come to that
        words.send(40)
        words.check(first.facts)
        paused = [psutil.Process(first.process.pid), *first.below("")]
        for each in paused:
            each.suspend()
        words.send(40)
        with started_after(words, time.monotonic() + PATIENCE_S) as third:  # when the lease of the first has run out
            words.check(third.facts)
            before = words.log.committed_offsets(words.name)
            for each in reversed(paused):
                with suppress(psutil.Error):
                    each.resume()
            assert await_end(first) == 1  # it has seen that there is a newer one
            assert words.log.committed_offsets(words.name) == before
            words.check(third.facts)
            words.send(40)
            words.check(third.facts)
            third.stop(signal.SIGINT)
            assert third.process.returncode == 0, third.said[-3000:]
        ends = words.log.end_offsets([words.topic("words")])
        committed = words.log.committed_offsets(words.name)
        assert {place: committed.get(place) for place in ends} == ends
        eventually(lambda: all(not each.is_running() or each.status() == "zombie" for each in paused), PATIENCE_S)
        words.check()
