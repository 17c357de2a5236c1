"""The common parts of generators: a record, event times at a rate, and bounded disorder."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.clock import unix_ms
from penstock.errors import ConfigError

__all__ = ["Generated", "GeneratorSettings", "disordered", "event_times", "paced"]


class Generated(NamedTuple):
    """A generated record with its topic."""

    topic: str
    key: str | None
    value: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """The settings of a generator.

    Attributes:
        seed: The same seed generates the same records.
        count: The number of records; None is endless.
        rate: Records per second of event time.
        start_ms: The time of the first event; None is now.
        disorder_ms: The largest delay of a record behind one with a later time.
    """

    seed: int = 0
    count: int | None = None
    rate: float = 100.0
    start_ms: int | None = None
    disorder_ms: int = 0

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ConfigError(f"rate is {self.rate}; it must be above 0", hint="It is records per second.")
        if self.count is not None and self.count < 0:
            raise ConfigError(f"count is {self.count}; it must not be negative", hint="Leave it out for no end.")
        if self.disorder_ms < 0:
            raise ConfigError(f"disorder is {self.disorder_ms} ms; it must not be negative")

    @property
    def first_ms(self) -> int:
        """The first event's time."""
        return unix_ms() if self.start_ms is None else self.start_ms

    def random(self, salt: str) -> random.Random:
        """Make a source of random numbers for one generator."""
        return random.Random(f"{salt}:{self.seed}")  # noqa: S311 - test data, not secrets

    def limit(self, records: Iterable[Generated]) -> Iterator[Generated]:
        """Disorder the records, and stop at ``count``."""
        untidy = disordered(records, self.disorder_ms, self.random("disorder"))
        return itertools.islice(untidy, self.count)


def event_times(rng: random.Random, first_ms: int, rate: float) -> Iterator[int]:
    """Yield the times of independent events (a Poisson process), on average ``rate`` a second."""
    now = float(first_ms)
    while True:
        yield int(now)
        now += rng.expovariate(rate) * 1000


def disordered(records: Iterable[Generated], disorder_ms: int, rng: random.Random) -> Iterator[Generated]:
    """Delay each record by up to ``disorder_ms`` of event time; holds the records of that time in memory.

    >>> times = [Generated("t", None, "", ms) for ms in range(0, 1000, 100)]
    >>> out = [r.timestamp_ms for r in disordered(times, 300, random.Random(1))]
    >>> sorted(out) == [r.timestamp_ms for r in times], max(a - b for a, b in itertools.pairwise(out)) <= 300
    (True, True)
    """
    if disorder_ms <= 0:
        yield from records
        return
    waiting: list[tuple[float, int, Generated]] = []
    for number, record in enumerate(records):
        heapq.heappush(waiting, (record.timestamp_ms + rng.random() * disorder_ms, number, record))
        while waiting[0][0] <= record.timestamp_ms:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def paced(
    records: Iterable[Generated],
    rate: float,
    *,
    stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[list[Generated]]:
    """Yield records at ``rate`` a second of real time, in about twenty groups a second, until ``stopped()``."""
    source = iter(records)
    started = clock()
    sent = 0
    while not stopped():
        due = int((clock() - started) * rate) + 1 - sent
        group = list(itertools.islice(source, max(due, 0)))
        if due > 0 and not group:
            return
        if group:
            yield group
            sent += len(group)
        sleep(max(0.05, 1 / rate) if rate < 20 else 0.05)
