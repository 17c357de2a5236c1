"""A judge of histories: unique appends by key under random faults, checked against all that the application wrote."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from confluent_kafka import Producer

from history_checker import by_key, check_chains, check_deliveries, check_state, replayed
from judge_process import Application, Faults, JudgedProcessError
from judge_topologies import APPLICATIONS, BUCKETS, EMPTY_CHAIN, bucket_of, next_link
from judge_world import World, wait_until
from kafka_judges import Round, Verdict

__all__ = ["judge_history"]

KEYS = 40
RATES = {"short": 50, "whole": 300}  # appends a second
FLUSH_S = 120.0
SETTLE_S = 30.0
STORES = {"chains": lambda key: key, "buckets": bucket_of}
MOST_PROBLEMS = 20


class Appender(threading.Thread):
    """Appends the next value to a key at random, until it is stopped; idempotent, and patient while brokers are away."""

    def __init__(self, world: World, seed: int, rate: int) -> None:
        super().__init__(daemon=True)
        self.failure = ""
        self._chance = random.Random(seed)
        self._rate = rate
        self._done = threading.Event()
        self._producer = Producer(
            world.client(**{
                "enable.idempotence": True, "linger.ms": 5, "partitioner": "murmur2_random", "message.timeout.ms": 0,
                "on_delivery": self._delivered, "delivery.report.only.error": True,
            })
        )  # fmt: skip

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failure = f"{message.value().decode()}: {error.str()}"

    def run(self) -> None:
        counts = dict.fromkeys(range(KEYS), 0)
        while not self._done.wait(1 / self._rate):
            key = self._chance.randrange(KEYS)
            self._producer.produce("appends", f"k{key}:{counts[key]}", f"k{key}")
            counts[key] += 1
            self._producer.poll(0)

    def stop(self) -> None:
        """End; all that it appended is in the topic then."""
        self._done.set()
        self.join(FLUSH_S)
        if left := self._producer.flush(FLUSH_S):
            self.failure = f"{left} appends could not be written"
        if self.failure:
            raise JudgedProcessError(f"the producer failed: {self.failure}")


def judge_history(turn: Round) -> Verdict:
    """Append under faults; then compare outputs, stores and changelogs with what the input topic holds."""
    world, judged = turn.world, APPLICATIONS["history"]
    world.create_topics(judged)
    appender = Appender(world, turn.chance.randrange(2**32), RATES[turn.size])
    with Application("history", judged, world, turn.mode) as app:
        appender.start()
        faults = Faults(app, world, turn.chance, turn.say)
        faults.do_all(turn.faults, turn.count)
        appender.stop()
        wait_until(lambda: world.has_read_all(judged.name, judged.inputs), "all input is read")
        wait_until(lambda: sum(_last_counts(world)) >= len(world.records("appends")), "all appends are in the buckets")
        states = {store: _settled_state(app, world, store) for store in STORES}
        if (code := app.stop()) != 0:
            raise JudgedProcessError(f"the application ended with {code} when it was stopped: {app.said_last()}")
    sent = by_key(_pairs(world, "appends"))
    problems = [f"echo: {problem}" for problem in check_deliveries(sent, by_key(_pairs(world, "echo")))]
    for store, group_of in STORES.items():
        outputs = by_key(_pairs(world, store))
        problems += [f"{store}: {each}" for each in check_chains(sent, outputs, next_link, EMPTY_CHAIN, group_of)]
        changelog = replayed(_pairs(world, f"{judged.name}-{store}-changelog"))
        problems += check_state(store, states[store], changelog, outputs)
    count = sum(map(len, sent.values()))
    facts = (
        f"{count} appends of {len(sent)} keys: echoed, and chained by key and in {BUCKETS} buckets; "
        f"{sum(map(len, states.values()))} rows of state compared with their changelogs"
    )
    return Verdict(not problems and count > 0, [facts, *(problems[:MOST_PROBLEMS] or ["no problem"])], faults.story)


def _settled_state(app: Application, world: World, store: str) -> dict[str, str]:
    """Query a store until it holds the newest outputs, or long enough: outputs are read before a commit has returned."""
    newest = {key: links[-1] for key, links in by_key(_pairs(world, store)).items()}
    deadline = time.monotonic() + SETTLE_S
    while (state := app.state(store)) != newest and time.monotonic() < deadline:
        time.sleep(0.5)
    return state


def _last_counts(world: World) -> list[int]:
    return [int(links[-1].split("|")[0]) for links in by_key(_pairs(world, "buckets")).values()]


def _pairs(world: World, topic: str) -> list[tuple[str, str | None]]:
    return [
        (message.key().decode(), None if message.value() is None else message.value().decode())
        for message in world.records(topic)
    ]
