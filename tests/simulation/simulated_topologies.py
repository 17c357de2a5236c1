"""Topologies for simulations, with random inputs: all records of a key come by one way, so that their order is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

from penstock import (
    Consumed,
    Grouped,
    Materialized,
    Processor,
    Produced,
    Record,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.runtime.aggregate.windows import EMIT_INTERVAL
from penstock.testing.simulation.run import Input, SimulationPlan

__all__ = ["NAMES", "inputs_of", "plan_of"]

TEXT = Consumed(key_serde="string", value_serde="string")
NUMBERS = Produced(key_serde="string", value_serde="long")
TEXTS = Produced(key_serde="string", value_serde="string")
KEYS, RECORDS = 7, 36


def is_end(record: Input) -> bool:
    """Return whether a record closes the windows before it."""
    return record.value == b"end"


def stateless() -> SimulationPlan:
    builder = StreamsBuilder()
    lines = builder.stream("in", TEXT)
    lines.filter(lambda key, value: value != "v3").map_values(lambda value: value.upper()).to("out", TEXTS)
    lines.flat_map_values(lambda value: [value, value[::-1]]).to("both", TEXTS)
    return SimulationPlan(builder.build(), {"in": 3, "out": 3, "both": 2})


def count() -> SimulationPlan:
    builder = StreamsBuilder()
    words = builder.stream("in", TEXT).group_by(
        lambda key, _: key[::-1], Grouped(key_serde="string", value_serde="string")
    )
    words.count().to_stream().to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 3, "out": 3})


def windows() -> SimulationPlan:
    builder = StreamsBuilder()
    counts = builder.stream("in", TEXT).group_by_key().windowed_by(TimeWindows.of(5_000, grace=100_000)).count()
    counts.to_stream().map(lambda key, value: (f"{key.key}@{key.window.start}", value)).to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 2, "out": 2})


def tables() -> SimulationPlan:
    builder = StreamsBuilder()
    left, right = builder.table("in", TEXT), builder.table("other", TEXT)
    joined = left.outer_join(right, lambda one, two: f"{one}+{two}")
    joined.to_stream().to("out", TEXTS)
    return SimulationPlan(builder.build(), {"in": 2, "other": 2, "out": 2}, has_one_state=False)


def closed() -> SimulationPlan:
    builder = StreamsBuilder()
    windowed = builder.stream("in", TEXT).group_by_key().windowed_by(TimeWindows.of(5_000, grace=1_000))
    kept = Materialized("counts", retention="1 h")  # longer than any pause between two records of a partition
    counts = windowed.emit_strategy("on_window_close").count(kept).to_stream()
    counts.map(lambda key, value: (f"{key.key}@{key.window.start}", value)).to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 2, "out": 2}, {EMIT_INTERVAL: 0}, has_one_state=False, needs=is_end)


def remembered() -> SimulationPlan:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count().to_stream().to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 2, "out": 2}, {"penstock.data.loss": "continue"})


def suppress() -> SimulationPlan:
    builder = StreamsBuilder()
    words = builder.stream("in", TEXT).group_by_key()
    counts = words.windowed_by(TimeWindows.of(5_000, grace=1_000)).count()
    closed = counts.suppress(Suppressed.until_window_closes()).to_stream()
    closed.map(lambda key, value: (f"{key.key}@{key.window.start}", value)).to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 2, "out": 2}, has_one_state=False, needs=is_end)


class Sums(Processor[str, str, str, int]):
    """Counts by key, and forwards what has been counted since the last punctuation."""

    time = "stream_time"
    interval = "4 s"

    @classmethod
    def stores(cls) -> list[Any]:
        return [Stores.key_value("waiting", key_serde="string", value_serde="long")]

    def init(self, context: Any) -> None:
        super().init(context)
        self._waiting = context.get_state_store("waiting")
        context.schedule(self.interval, self.time, self.flush)

    def process(self, record: Record[str, str]) -> None:
        self._waiting.put(record.key, (self._waiting.get(record.key) or 0) + len(record.value))

    def flush(self, at_ms: int) -> None:
        for key, value in list(self._waiting.all()):
            self.context.forward(Record(key, value, at_ms))
            self._waiting.delete(key)


class ClockSums(Sums):
    """The same by the wall clock."""

    time = "wall_clock_time"
    interval = "150 ms"


def punctuated() -> SimulationPlan:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(Sums).to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 1, "out": 1}, comparison="in order", needs=is_end)


def clocked() -> SimulationPlan:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(ClockSums).to("out", NUMBERS)
    return SimulationPlan(builder.build(), {"in": 2, "out": 2}, comparison="sums", has_one_state=False)


def global_table() -> SimulationPlan:
    builder = StreamsBuilder()
    names = builder.global_table("names", TEXT)
    lines = builder.stream("in", TEXT).join(names, lambda value, name: f"{value} of {name}", key=lambda key, _: key)
    lines.to("out", TEXTS)
    return SimulationPlan(builder.build(), {"in": 2, "names": 2, "out": 2})


_PLANS: dict[str, Callable[[], SimulationPlan]] = {
    each.__name__: each
    for each in (stateless, count, windows, tables, closed, suppress, remembered, punctuated, clocked, global_table)
}
NAMES = tuple(_PLANS)


@cache
def plan_of(name: str) -> SimulationPlan:
    """Return a plan by its name."""
    return _PLANS[name]()


def inputs_of(name: str, seed: int, count: int = RECORDS) -> list[Input]:
    """Return random records for a plan, in the order of their times, all of which differ."""
    dice, plan = random.Random(f"inputs {seed}"), plan_of(name)
    topics = [topic for topic in ("in", "other") if topic in plan.partitions]
    inputs: list[Input] = []
    if name == "global_table":  # there before all others
        inputs += [Input("names", n % KEYS % 2, f"key{n % KEYS}".encode(), f"name{n}".encode(), n) for n in range(24)]
    time = 1_000
    for _ in range(count):
        time += dice.randint(1, 900)
        topic, number = dice.choice(topics), dice.randrange(KEYS)
        value = None if name == "tables" and dice.random() < 0.15 else f"v{dice.randrange(6)}".encode()
        inputs.append(Input(topic, number % plan.partitions[topic], f"key{number}".encode(), value, time))
    if name == "global_table":  # which nobody looks up, while all others come
        for n in range(9):
            value = None if n % 4 == 3 else f"later{n}".encode()
            inputs.append(Input("names", n % 2, f"later{n % 3 * 2 + n % 2}".encode(), value, 1_500 + n * count * 50))
        inputs.sort(key=lambda each: each.order)
    if name in ("closed", "suppress"):  # windows close by the time of their partition
        inputs += [Input("in", number, f"end{number}".encode(), b"end", time + 50_000 + number) for number in range(2)]
    if name == "punctuated":
        inputs.append(Input("in", 0, b"end", b"end", time + 50_000))
    return inputs
