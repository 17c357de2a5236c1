"""Records that are processed by themselves have the results, dead letters, drops and figures of batches of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import KStream, Produced, SessionWindows, StreamsBuilder, Suppressed, TimeWindows
from penstock.errors import ProcessingError
from penstock.metrics.task_counts import TaskCounts
from penstock.runtime.sensor import CountingSensor
from penstock.testing import TopologyTestDriver

SETTINGS = {
    "default.key.serde": "string",
    "default.value.serde": "string",
    "processing.exception.handler": "continue",
    "deserialization.exception.handler": "continue",
    "errors.dead.letter.queue.topic.name": "letters",
    "metrics.recording.level": "DEBUG",
}
NO_CACHE = {"statestore.cache.max.bytes": 0}
COUNTS = Produced(key_serde="string", value_serde="long")


def refuse_c(value: str) -> str:
    if value == "c":
        raise ValueError(value)
    return value.upper()


def functions(lines: KStream[str, str]) -> None:
    kept = lines.filter(lambda value: value != "b").map_values(refuse_c).select_key(lambda key, value: f"{key}{value}")
    kept.map(lambda key, value: (key, value * 2)).peek(lambda _: None).to("out")


def pairs_of(key: str, value: str) -> list[Any]:
    return [(key, value), 7] if value == "d" else [(value, key)] * 2


def several(lines: KStream[str, str]) -> None:
    letters = lines.flat_map_values(lambda value: [refuse_c(value), value])
    letters.flat_map(pairs_of).to("out")


def fork(lines: KStream[str, str]) -> None:
    lines.map_values(refuse_c).to("out")
    lines.filter_not(lambda value: value == "a").to("others")


def count(lines: KStream[str, str]) -> None:
    lines.group_by_key().count().to_stream().to("out", COUNTS)


def wrong_type(lines: KStream[str, str]) -> None:
    lines.map_values(lambda value: 7 if value == "d" else value).to("out")


def window(lines: KStream[str, str]) -> None:
    counts = lines.group_by_key().windowed_by(TimeWindows.of("10ms", grace="2ms")).count()
    counts.to_stream().map(lambda window, number: (window.key, number)).to("out", COUNTS)


def sessions(lines: KStream[str, str]) -> None:
    counts = lines.group_by_key().windowed_by(SessionWindows.of("4ms", grace="6ms")).count()
    closed = counts.suppress(Suppressed.until_window_closes()).to_stream()
    closed.map(lambda session, number: (session.key, number)).to("out", COUNTS)


RECORDS: list[tuple[str | None, str | None, int]] = [
    ("x", "a", 0),
    ("y", "b", 1),
    ("x", "c", 3),
    (None, "a", 4),
    ("x", "d", 5),
    ("y", None, 6),
    ("x", "a", 14),
    ("y", "a", 3),
    ("z", "b", 20),
    ("x", "c", 19),
    ("z", "a", 40),
    ("x", "a", 60),
    ("x", "e", 25),
]


def pipe(driver: TopologyTestDriver) -> None:
    for number, (key, value, time) in enumerate(RECORDS):
        raw = None if value is None else b"\xff" if value == "e" else value.encode()
        headers = (("n", b"%d" % number),) if number % 3 == 0 else ()
        driver.pipe_raw("in", None if key is None else key.encode(), raw, time, headers)


def outputs(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    driver.flush()
    return {topic: list(driver.peek_raw(topic)) for topic in sorted(driver.produced_topic_names())}


def figures(counts: TaskCounts) -> dict[str, Any]:
    """Return all but seconds, and what names a batch."""
    return {
        "processed": counts.processed,
        "dropped": counts.dropped,
        "lateness": counts.lateness_ms,
        "read": counts.read,
        "consumed": counts.consumed,
        "produced": counts.produced,
        "latency": counts.e2e_latency_ms,
        "emitted": {node: spread.total for node, spread in counts.emitted.items()},
        "causes": counts.causes,
        "errors": counts.errors,
        "nodes": {node: totals[:2] for node, totals in counts.nodes.items()},
    }


def results(
    topology: Callable[[KStream[str, str]], None], settings: dict[str, Any], batch_size: int
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    builder = StreamsBuilder()
    topology(builder.stream("in"))
    sensor = CountingSensor(lambda: 100)
    with TopologyTestDriver(builder.build(), SETTINGS | settings, batch_size=batch_size, sensor=sensor) as driver:
        pipe(driver)
        written = outputs(driver)
    return written, figures(sensor.take()["0_0"])


@pytest.mark.parametrize("topology", [functions, several, fork, count, wrong_type, window, sessions])
def test_single_records_equal_batches(topology: Callable[[KStream[str, str]], None]) -> None:
    alone, its_figures = results(topology, NO_CACHE, batch_size=1)
    together, their_figures = results(topology, NO_CACHE, batch_size=100)
    # Dead letters have the frames of a traceback among their headers; those of sources come first in a batch.
    letters, their_letters = (
        sorted(map(repr, (each[2:5] for each in rows.pop("letters", ())))) for rows in (alone, together)
    )
    assert letters == their_letters
    assert {topic: [each[2:6] for each in rows] for topic, rows in alone.items()} == {
        topic: [each[2:6] for each in rows] for topic, rows in together.items()
    }
    assert its_figures == their_figures


@pytest.mark.parametrize("settings", [{}, NO_CACHE])
def test_a_failure_names_the_record_and_keeps_what_was_before(settings: dict[str, Any]) -> None:
    builder = StreamsBuilder()
    count(builder.stream("in").map_values(refuse_c))
    fails = SETTINGS | settings | {"processing.exception.handler": "fail"}
    with TopologyTestDriver(builder.build(), fails) as driver:
        with pytest.raises(ProcessingError, match=r"refuse_c .* raised ValueError: c.* in-0 offset 2"):
            pipe(driver)
        assert [record.value[-1] for record in outputs(driver)["out"]] == [1, 1]
