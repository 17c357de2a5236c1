"""The application whose log, checkpoint and state are kept here: a store of each kind behind one stream and one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import (
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.log.open import open_log
from penstock.topology.topology import Topology

START = 1_790_000_000_000
SOURCES = ("words", "names", "links", "people")
OUTPUTS = ("counts", "windows", "sessions", "sliding", "closed", "joined", "named", "linked")


def topology() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words")
    names = builder.table("names", materialized=Materialized("names", history="1 hour"))
    by_word = words.group_by(lambda _, word: word)
    by_word.count(Materialized("counts")).to_stream().map_values(str).to("counts")
    tumbling = by_word.windowed_by(TimeWindows.of("1 minute", grace="10 seconds"))
    plain = tumbling.count(Materialized("windows"))
    plain.to_stream(lambda window, _: window.key).map_values(str).to("windows")
    closed = plain.suppress(Suppressed.until_window_closes())
    closed.to_stream(lambda window, _: window.key).map_values(str).to("closed")
    sessions = by_word.windowed_by(SessionWindows.of("5 seconds")).count(Materialized("sessions"))
    sessions.to_stream(lambda window, _: window.key).map_values(str).to("sessions")
    sliding = by_word.windowed_by(SlidingWindows.of("3 seconds", grace="10 seconds")).count(Materialized("sliding"))
    sliding.to_stream(lambda window, _: window.key).map_values(str).to("sliding")
    again = words.map_values(str.upper)
    window = JoinWindows.of("2 seconds", grace="4 seconds")
    words.outer_join(again, lambda a, b: f"{a}+{b}", window, StreamJoined("pairs")).to("joined")
    graced = Joined("graced", grace="4 seconds")
    words.left_join(names, lambda word, name: f"{word} of {name}", graced).to("named")
    links, people = builder.table("links"), builder.table("people")
    linked = links.left_join(people, lambda link, person: f"{link}>{person}", foreign_key=lambda link: link[:1])
    linked.to_stream().to("linked")
    return builder.build()


def settings(root: Path, **more: Any) -> dict[str, Any]:
    return {
        "application.id": "kept",
        "bootstrap.servers": f"sqlite:///{root / 'log.db'}",
        "state.dir": str(root / "state"),
        "penstock.checkpoint.location": str(root / "checkpoint"),
        "default.key.serde": "string",
        "default.value.serde": "string",
        "statestore.cache.max.bytes": 0,
        **more,
    }


def rows(part: int) -> dict[str, list[tuple[str, str, int]]]:
    """Return (key, value, time) of each source topic for the first part of the input, or for the second."""
    at = part * 40
    return {
        "words": [(f"k{n % 3}", "abca"[n % 4] + "x" * (n % 2), START + 1_300 * n) for n in range(at, at + 40)],
        "names": [(f"k{n % 3}", f"n{n}", START + 4_100 * n // 3 * 3) for n in range(at // 3, at // 3 + 12)],
        "links": [(f"l{n % 5}", f"{n % 3}-{n}", START + 2_000 * n) for n in range(at // 2, at // 2 + 20)],
        "people": [(str(n % 3), f"p{n}", START + 5_000 * n) for n in range(at // 5, at // 5 + 8)],
    }


def write(root: Path, part: int) -> None:
    """Append a part of the input to the log."""
    with open_log(settings(root)["bootstrap.servers"]) as log:
        there = {topic.name for topic in log.topics()}
        for topic in (*SOURCES, *OUTPUTS):
            if topic not in there:
                log.create_topic(topic, 1, {"retention.ms": "-1"})
        for topic, part_rows in rows(part).items():
            columns = {
                "timestamp": pa.array([time for _, _, time in part_rows], pa.int64()),
                "key": pa.array([key.encode() for key, _, _ in part_rows], pa.large_binary()),
                "value": pa.array([value.encode() for _, value, _ in part_rows], pa.large_binary()),
            }
            log.append(topic, 0, pa.RecordBatch.from_pydict(columns))


def read(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return (key, value, time) of each output topic."""
    outputs: dict[str, list[tuple[Any, ...]]] = {}
    with open_log(settings(root)["bootstrap.servers"]) as log:
        for topic in OUTPUTS:
            batches = list(log.read_range(topic, 0, 0, log.end_offset(topic, 0)))
            columns = [[row for batch in batches for row in batch.column(name).to_pylist()] for name in NAMES]
            outputs[topic] = list(zip(*columns, strict=True))
    return outputs


NAMES = ("key", "value", "timestamp")
