"""Threads that die at any step: the next one goes on as if nothing had happened."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.stream_thread import ThreadHooks
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from threads import append, new_thread, records_of, settle, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
STEPS = ["processed", "sent", "committed", "kept 0_0", "kept 1_0"]
LINES = [("k", f"a w{n % 4} b", n) for n in range(60)]


class CrashError(Exception):
    """The process died here."""


class Crashes:
    """Lets a thread die when it reaches a step for the n-th time."""

    def __init__(self, at: dict[str, int]) -> None:
        self.left = dict(at)

    def reach(self, step: str) -> None:
        if step in self.left:
            self.left[step] -= 1
            if self.left[step] == 0:
                raise CrashError(step)


def word_count(log: EmbeddedLog, root: Path | None, guarantee: str) -> ThreadApp:
    log.create_topic("lines")
    log.create_topic("counts")
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(Materialized("count")).map_values(str).to_stream().to("counts")
    config = SERDES | {"processing.guarantee": guarantee, "max.poll.records": 7, "commit.interval.ms": 0}
    return thread_app(builder.build(config), config, log, None if root is None else str(root))


def outcome(root: Path | None, guarantee: str, crash: Callable[[], Crashes]) -> tuple[list[Any], dict[Any, Any], int]:
    """The output, the final store and the number of crashes, of a run in which each thread has its own crashes."""
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        app = word_count(log, root, guarantee)
        append(log, "lines", LINES[:20])
        crashes = 0
        waiting = [LINES[20:40], LINES[40:]]
        while True:
            thread = new_thread(app, log, hooks=ThreadHooks(reach=crash().reach))
            try:
                thread.start()
                settle(thread)
                while waiting:
                    append(log, "lines", waiting.pop(0))
                    settle(thread)
            except CrashError:
                crashes += 1
                thread.close(commit=False)
                continue
            store = {key: found.value for key, found in thread.store(list(app.tasks())[1], "count").all()}
            thread.close(commit=True)
            return records_of(log, "counts"), store, crashes


def expected() -> list[tuple[bytes, bytes, int]]:
    seen: Counter[str] = Counter()
    rows = []
    for _, line, time in LINES:
        for word in line.split():
            seen[word] += 1
            rows.append((word.encode(), str(seen[word]).encode(), time))
    return rows


def never() -> Crashes:
    return Crashes({})


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_without_a_crash_everything_is_written_once(guarantee: str) -> None:
    output, store, crashes = outcome(None, guarantee, never)
    assert (output, crashes) == (expected(), 0)
    assert store == Counter(word for _, line, _ in LINES for word in line.split())


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_a_step_changes_nothing(tmp_path: Path, step: str, number: int, on_disk: bool) -> None:
    plans = iter([Crashes({step: number}), Crashes({step: number})])
    output, store, crashes = outcome(tmp_path if on_disk else None, "exactly_once_v2", lambda: next(plans, never()))
    assert crashes == 2
    assert output == expected()
    assert store == Counter(word for _, line, _ in LINES for word in line.split())


@pytest.mark.parametrize("seed", range(6))
def test_many_crashes_at_random_steps_change_nothing(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    left = [Crashes({dice.choice(STEPS): dice.randint(1, 2)}) for _ in range(25)]
    root = tmp_path if seed % 2 else None
    output, store, crashes = outcome(root, "exactly_once_v2", lambda: left.pop() if left else never())
    assert crashes > 3
    assert output == expected()
    assert store == Counter(word for _, line, _ in LINES for word in line.split())


@pytest.mark.parametrize("seed", range(4))
def test_at_least_once_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    left = [Crashes({dice.choice(STEPS[:3]): dice.randint(1, 2)}) for _ in range(12)]
    output, store, crashes = outcome(tmp_path, "at_least_once", lambda: left.pop() if left else never())
    assert crashes > 1
    words = Counter(word for _, line, _ in LINES for word in line.split())
    assert all(store[word] >= count for word, count in words.items())
    assert {(key, value) for key, value, _ in expected()} <= {(key, value) for key, value, _ in output}


def test_threads_that_are_closed_at_random_points_without_a_commit() -> None:
    dice = random.Random(5)
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        app = word_count(log, None, "exactly_once_v2")
        for start in range(0, 60, 6):
            append(log, "lines", LINES[start : start + 6])
            thread = new_thread(app, log)
            thread.start()
            for _ in range(dice.randint(0, 3)):
                thread.step(0)
            thread.close(commit=dice.random() < 0.3)
        thread = new_thread(app, log)
        thread.start()
        settle(thread)
        thread.close(commit=True)
        assert records_of(log, "counts") == expected()
