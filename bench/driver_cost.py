"""What a record costs in the test driver when records come one by one: CPU milliseconds of a map, a count, windows and sessions.

    python bench/driver_cost.py [--n 4000] [--rounds 4] [--output FILE]
    python bench/driver_cost.py --profile sessions     # the functions that take most

Each record is piped, and what comes out is read, before the next one. ``default`` is with the cache of the default settings,
``no_cache`` with a cache of no bytes. A figure is the best round.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from pathlib import Path

import machine
from penstock import KStream, Produced, SessionWindows, StreamsBuilder, Suppressed, TimeWindows
from penstock.testing import TopologyTestDriver

WARM_UP = 200
CACHES = {"default": {}, "no_cache": {"statestore.cache.max.bytes": 0}}
TEXTS = {"default.key.serde": "string", "default.value.serde": "string"}
COUNTS = Produced(key_serde="string", value_serde="long")


def upper(lines: KStream[str, str]) -> None:
    lines.map_values(str.upper).to("out")


def count(lines: KStream[str, str]) -> None:
    lines.group_by_key().count().to_stream().to("out", COUNTS)


def window(lines: KStream[str, str]) -> None:
    windows = lines.group_by_key().windowed_by(TimeWindows.of("10s", grace="2s")).count()
    windows.to_stream().map(lambda window, number: (window.key, number)).to("out", COUNTS)


def sessions(lines: KStream[str, str]) -> None:
    closed = lines.group_by_key().windowed_by(SessionWindows.of("5s", grace="2s")).count()
    closed = closed.suppress(Suppressed.until_window_closes())
    closed.to_stream().map(lambda session, number: (session.key, number)).to("out", COUNTS)


TOPOLOGIES: dict[str, Callable[[KStream[str, str]], None]] = {
    "map": upper,
    "count": count,
    "window": window,
    "sessions": sessions,
}


def opened(name: str, cache: str) -> TopologyTestDriver:
    """The driver of a topology."""
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder.stream("in"))
    return TopologyTestDriver(builder.build(), TEXTS | CACHES[cache])


def pipe(driver: TopologyTestDriver, first: int, end: int) -> None:
    """Pipes records one by one, and reads what comes out."""
    lines, out = driver.input_topic("in"), driver.output_topic("out")
    for number in range(first, end):
        lines.pipe(f"value-{number % 7}", key=f"key-{number % 50}", timestamp=number * 37)
        while not out.is_empty():
            out.read_record()


def cost_ms(name: str, cache: str, count: int, rounds: int) -> float:
    """CPU time of this process for a record, the best of some rounds."""
    best = float("inf")
    with opened(name, cache) as driver:
        pipe(driver, 0, WARM_UP)
        for number in range(rounds):
            first, began = WARM_UP + number * count, time.process_time()
            pipe(driver, first, first + count)
            best = min(best, time.process_time() - began)
    return round(best * 1000 / count, 4)


def profile(name: str, count: int) -> None:
    """Prints the functions that take most."""
    profiler = cProfile.Profile()
    with opened(name, "no_cache") as driver:
        pipe(driver, 0, WARM_UP)
        profiler.runcall(pipe, driver, WARM_UP, WARM_UP + count)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--n", type=int, default=4000)
    arguments.add_argument("--rounds", type=int, default=4)
    arguments.add_argument("--profile", choices=TOPOLOGIES)
    arguments.add_argument("--output", type=Path)
    given = arguments.parse_args()
    if given.profile:
        profile(given.profile, given.n)
        return
    figures = {cache: {name: cost_ms(name, cache, given.n, given.rounds) for name in TOPOLOGIES} for cache in CACHES}
    facts = machine.facts("bench/driver_cost.py")
    machine.show(facts | {"unit": "CPU ms a record"} | figures, given.output)


if __name__ == "__main__":
    main()
