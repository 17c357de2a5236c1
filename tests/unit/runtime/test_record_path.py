"""Records that are processed by themselves have the results, dead letters, drops and figures of batches of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

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
from penstock.errors import ProcessingError
from penstock.metrics.task_counts import TaskCounts
from penstock.runtime.sensor import CountingSensor
from penstock.runtime.task import StreamTask
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


def both(left: str | None, right: str | None) -> str:
    if right == "b":
        raise ValueError(right)
    return f"{left}/{right}"


class Newest(Processor[str, str, str, str]):
    """Keeps the newest value of each key, forwards it twice, once to a child by name, and all at every 20 ms."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("newest")
        context.schedule(20, "stream_time", self.punctuate)

    def process(self, record: Record[str, str]) -> None:
        if record.value == "c":
            raise ValueError(record.value)
        if record.key is not None:
            self.store.put(record.key, record.value)
            self.context.forward(record.with_value(f"{record.value} of {self.context.record_metadata().offset}"))
            self.context.forward(record.with_header("time", b"%d" % self.context.current_stream_time_ms()), "shout")

    def punctuate(self, now: int) -> None:
        for key, value in list(self.store.all()):
            self.context.forward(Record(key, value, now))


def branches(builder: StreamsBuilder) -> None:
    parts = builder.stream("in").split().branch(lambda value: refuse_c(value) == "A").branch(lambda key, _: key == "y")
    first, second, others = parts.default_branch().values()
    first.merge(others.map_values(str)).to("out")
    second.to("others-out")


def processors(builder: StreamsBuilder) -> None:
    builder.add_state_store(Stores.key_value("newest", key_serde="string", value_serde="string"))
    forwarded = builder.stream("in").process(Newest, stores=["newest"])
    forwarded.map_values(lambda value: value.upper(), name="shout").to("out")
    forwarded.filter(lambda key, value: value == "d", name="quiet").to("others-out")


def tables(builder: StreamsBuilder) -> None:
    lines = builder.table("in").filter(lambda value: value != "b").map_values(refuse_c)
    lines.filter(lambda key, _: key != "z", materialized=Materialized("kept")).to_stream().to("out")


def groups(builder: StreamsBuilder) -> None:
    lines = builder.table("in").group_by(lambda key, value: (refuse_c(value), key), Grouped(key_serde="string"))
    lines.reduce(
        lambda so_far, value: so_far + value, lambda so_far, value: so_far.replace(value, "", 1)
    ).to_stream().to("out")


def stream_table(builder: StreamsBuilder) -> None:
    table = builder.table("others")
    builder.stream("in").join(table, both).to("out")
    builder.stream("more").left_join(table.map_values(refuse_c), both).to("others-out")


def counted_table(builder: StreamsBuilder) -> None:
    counts = builder.stream("others").group_by_key().count()
    builder.stream("in").left_join(counts, lambda key, value, count: f"{key} {value} {count}").to("out")


def table_tables(builder: StreamsBuilder) -> None:
    left, right = builder.table("in"), builder.table("others")
    left.join(right, both).to_stream().to("out")
    left.left_join(right, both).outer_join(builder.table("more"), both).filter(lambda _: True).to_stream().to(
        "others-out"
    )


def global_tables(builder: StreamsBuilder) -> None:
    table = builder.global_table("others")
    builder.stream("in").join(table, lambda key, left, right: both(left, right), key=lambda value: value and "x").to(
        "out"
    )
    builder.stream("more").left_join(table, both, key=lambda key, value: key).to("others-out")


def stream_streams(builder: StreamsBuilder) -> None:
    left, right = builder.stream("in"), builder.stream("others")
    left.join(right, both, JoinWindows.of("5ms", grace="1ms")).to("out")
    left.outer_join(builder.stream("more"), both, JoinWindows.of("3ms")).to("others-out")


def self_joins(builder: StreamsBuilder) -> None:
    lines = builder.stream("in")
    lines.join(lines, both, JoinWindows.of("5ms", grace="9ms")).to("out")


WITH_OTHERS = [branches, processors, tables, groups, stream_table, counted_table, table_tables, global_tables]
WITH_OTHERS += [stream_streams, self_joins]
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


def drive(
    topology: Callable[[StreamsBuilder], None], settings: dict[str, Any]
) -> tuple[dict[str, list[Any]], dict[str, Any], Any]:
    """Return outputs, figures and state after all records by themselves, each also in two other topics."""
    builder = StreamsBuilder()
    topology(builder)
    sensor = CountingSensor(lambda: 100)
    # Those that fail nowhere go first: with the handler "fail" the first one that does is the last one.
    records = sorted(RECORDS, key=lambda record: record[1] not in {"a", "d"})
    error = ""
    with TopologyTestDriver(builder.build(), SETTINGS | settings, sensor=sensor) as driver:
        with contextlib.suppress(StopIteration):
            for number, (key, value, time) in enumerate(records):
                data = None if key is None else key.encode()
                raw = None if value is None else b"\xff" if value == "e" else value.encode()
                headers = (("n", b"%d" % number),) if number % 3 == 0 else ()
                for topic in ("others", "in", "more")[:: -1 if number % 4 == 3 else 1]:
                    try:
                        driver.pipe_raw(topic, data, raw, time, headers)
                    except ProcessingError as raised:
                        error = str(raised)
                        raise StopIteration from None
        written = outputs(driver)
        for number, letter in enumerate(letters := written.get("letters", [])):  # the frames are others
            headers = tuple(each for each in letter.headers if not each[0].endswith("stacktrace"))
            letters[number] = letter._replace(headers=headers)
        counts = {task: figures(each) for task, each in sensor.take().items()}
        # A batch by column that has failed has other figures than one depth first.
        return (written, {}, error) if error else (written, counts, driver._task.rows())


@pytest.mark.parametrize("handler", ["continue", "fail"])
@pytest.mark.parametrize("settings", [{}, NO_CACHE])
@pytest.mark.parametrize("topology", WITH_OTHERS)
def test_a_record_by_itself_is_a_batch_of_one(
    topology: Callable[[StreamsBuilder], None], settings: dict[str, Any], handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings | {"processing.exception.handler": handler}
    alone = drive(topology, settings)
    monkeypatch.setattr(StreamTask, "_path", lambda task, topic: None)
    assert drive(topology, settings) == alone
    assert alone[0]["out"]


@pytest.mark.parametrize("settings", [{}, NO_CACHE])
def test_a_failure_names_the_record_and_keeps_what_was_before(settings: dict[str, Any]) -> None:
    builder = StreamsBuilder()
    count(builder.stream("in").map_values(refuse_c))
    fails = SETTINGS | settings | {"processing.exception.handler": "fail"}
    with TopologyTestDriver(builder.build(), fails) as driver:
        with pytest.raises(ProcessingError, match=r"refuse_c .* raised ValueError: c.* in-0 offset 2"):
            pipe(driver)
        assert [record.value[-1] for record in outputs(driver)["out"]] == [1, 1]
