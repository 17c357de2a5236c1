"""What a record costs in the test driver when records come one by one: CPU milliseconds, by operator.

    python bench/driver_cost.py [--n 4000] [--rounds 4] [--only NAME...] [--output FILE]
    python bench/driver_cost.py --profile sessions     # the functions that take most

Each record is piped, and what comes out is read, before the next one. ``default`` is with the cache of the default settings,
``no_cache`` with a cache of no bytes. A figure is the best round. Joins get a record of the other side for each of 50 keys
beforehand; in the join of two streams each record finds a match.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from pathlib import Path

import machine
from penstock import (
    Grouped,
    JoinWindows,
    KStream,
    Materialized,
    Produced,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.api.processing.processor import Processor, Record
from penstock.testing import TopologyTestDriver

WARM_UP = 200
CACHES = {"default": {}, "no_cache": {"statestore.cache.max.bytes": 0}}
TEXTS = {"default.key.serde": "string", "default.value.serde": "string"}
COUNTS = Produced(key_serde="string", value_serde="long")


def both(left: str, right: str | None) -> str:
    return f"{left}/{right}"


class Latest(Processor[str, str, str, str]):
    """Keeps the newest value of each key, and forwards the one before with it."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("latest")
        before = store.get(record.key)
        store.put(record.key, record.value)
        self.context.forward(record.with_value(both(record.value, before)))


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


def branches(lines: KStream[str, str]) -> None:
    odd, even = lines.split().branch(lambda value: int(value[6:]) % 2 == 1).default_branch().values()
    odd.map_values(str.upper).merge(even).to("out")


def processor(lines: KStream[str, str], builder: StreamsBuilder) -> None:
    builder.add_state_store(Stores.key_value("latest", key_serde="string", value_serde="string"))
    lines.process(Latest, stores=["latest"]).to("out")


def table_source(builder: StreamsBuilder) -> None:
    builder.table("in", materialized=Materialized("kept")).to_stream().to("out")


def table_filter(builder: StreamsBuilder) -> None:
    builder.table("in").filter(lambda value: value != "value-3").map_values(str.upper).to_stream().to("out")


def table_groups(builder: StreamsBuilder) -> None:
    groups = builder.table("in").group_by(lambda key, value: (value, key), Grouped(key_serde="string"))
    groups.count().to_stream().to("out", COUNTS)


def stream_table_join(lines: KStream[str, str], builder: StreamsBuilder) -> None:
    lines.join(builder.table("others"), both).to("out")


def global_table_join(lines: KStream[str, str], builder: StreamsBuilder) -> None:
    lines.join(builder.global_table("others"), both, key=lambda value: f"key-{value[6:]}").to("out")


def table_table_join(builder: StreamsBuilder) -> None:
    builder.table("in").join(builder.table("others"), both).to_stream().to("out")


def foreign_key_join(builder: StreamsBuilder) -> None:
    joined = builder.table("in").join(builder.table("others"), both, foreign_key=lambda value: f"key-{value[6:]}")
    joined.to_stream().to("out")


def stream_stream_join(lines: KStream[str, str], builder: StreamsBuilder) -> None:
    lines.join(builder.stream("others"), both, JoinWindows.of("1h")).to("out")


def stream_stream_left_join(lines: KStream[str, str], builder: StreamsBuilder) -> None:
    lines.left_join(builder.stream("others"), both, JoinWindows.of("1h")).to("out")


OF_STREAMS: dict[str, Callable[[KStream[str, str]], None]] = {
    "map": upper,
    "count": count,
    "window": window,
    "sessions": sessions,
    "branches": branches,
}
OF_BOTH: dict[str, Callable[[KStream[str, str], StreamsBuilder], None]] = {
    "processor": processor,
    "stream-table join": stream_table_join,
    "global-table join": global_table_join,
    "stream-stream join": stream_stream_join,
    "stream-stream left join": stream_stream_left_join,
}
OF_TABLES: dict[str, Callable[[StreamsBuilder], None]] = {
    "table": table_source,
    "table filter, map_values": table_filter,
    "table group_by, count": table_groups,
    "table-table join": table_table_join,
    "foreign-key join": foreign_key_join,
}
NAMES = [*OF_STREAMS, *OF_BOTH, *OF_TABLES]


def opened(name: str, cache: str) -> TopologyTestDriver:
    """The driver of a topology, with a record of the other side for each key."""
    builder = StreamsBuilder()
    if name in OF_STREAMS:
        OF_STREAMS[name](builder.stream("in"))
    elif name in OF_BOTH:
        OF_BOTH[name](builder.stream("in"), builder)
    else:
        OF_TABLES[name](builder)
    driver = TopologyTestDriver(builder.build(), TEXTS | CACHES[cache])
    if "join" in name:
        others = driver.input_topic("others")
        for number in range(50):
            others.pipe(f"other-{number}", key=f"key-{number}", timestamp=0)
    return driver


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
    arguments.add_argument("--profile", choices=NAMES)
    arguments.add_argument("--only", choices=NAMES, nargs="+", default=NAMES)
    arguments.add_argument("--output", type=Path)
    given = arguments.parse_args()
    if given.profile:
        profile(given.profile, given.n)
        return
    figures = {cache: {name: cost_ms(name, cache, given.n, given.rounds) for name in given.only} for cache in CACHES}
    facts = machine.facts("bench/driver_cost.py")
    machine.show(facts | {"unit": "CPU ms a record"} | figures, given.output)


if __name__ == "__main__":
    main()
