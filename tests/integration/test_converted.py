"""Applications that move from micro-batches to continuous mode and back, over both logs."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from eventually import eventually
from penstock import (
    KafkaStreams,
    Materialized,
    Processor,
    Record,
    Repartitioned,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.config import StreamsConfig
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import plan_for
from penstock.engines.conversion import convert
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.stream_thread import StreamThread
from penstock.errors import FencedError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.log.partitioner import partition_for
from penstock.log.thread_clients import Writer
from penstock.topology.configured import with_settings
from threads import settle

from .conftest import Place, long
from .test_continuous import counted, counting, newest, words

BATCHES = {"processing.mode": "micro_batch"}


def test_there_and_back_and_there_again(place: Place) -> None:
    source, sink = place.topic("words"), place.topic("counts")
    rounds = []
    for number, mode in enumerate(["micro_batch", "continuous", "micro_batch", "continuous"]):
        rounds += [words(40 + number), words(7)]
        place.write(source, rounds[-2], 0)
        place.write(source, rounds[-1], 1)
        settings = {"processing.mode": mode, "statestore.cache.max.bytes": 0}
        place.run(counting(source, sink), **settings)
        assert newest(place, sink) == counted(*rounds)
    every = sorted((f"w{i}", n) for i in range(5) for n in range(1, newest(place, sink)[f"w{i}"] + 1))
    assert sorted(place.read(sink, long)) == every


def test_without_stores_and_a_checkpoint_it_goes_on_in_the_mode_that_has_committed_its_offsets(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once, micro-batches without stores leave nothing in the log but the marks of the group's offsets."""
    source, sink = place.topic("words"), place.topic("copies")
    builder = StreamsBuilder()
    builder.stream(source).to(sink)
    topology, settings = builder.build(), {"processing.guarantee": "at_least_once"}
    place.write(source, words(5), 0)
    place.run(topology, **settings, **BATCHES)
    config = StreamsConfig(place.config(**settings))
    shutil.rmtree(Locations.of(config, place.log).checkpoint)
    place.write(source, words(3), 1)
    unset = {name: value for name, value in config.given.items() if name != "processing.mode"}
    with caplog.at_level("INFO", "penstock"):
        KafkaStreams(topology, unset, session=place.spark).run(until="latest")
    said = [record.getMessage() for record in caplog.records if "processing.mode" in record.getMessage()]
    assert [text.split(",")[0] for text in said] == [f"{place.prefix}app goes on in micro-batches"]
    assert Counter(value for _, value in place.read(sink)) == counted(words(5), words(3))


def test_records_between_sub_topologies_are_finished_first(place: Place) -> None:
    source, sink = place.topic("words"), place.topic("counts")
    topology, settings = counting(source, sink), {"statestore.cache.max.bytes": 0}
    place.write(source, words(20))
    place.run(topology, **settings)
    place.write(source, words(30))
    run_first_tasks(place, topology)
    place.write(source, words(9))  # nobody has begun with these
    place.run(topology, **settings, **BATCHES)
    assert newest(place, sink) == counted(words(20), words(30), words(9))
    every = sorted((f"w{i}", n) for i in range(5) for n in range(1, newest(place, sink)[f"w{i}"] + 1))
    assert sorted(place.read(sink, long)) == every


def run_first_tasks(place: Place, topology: Any) -> None:
    """Run the tasks before the repartition topic only, as if the others had died."""
    config = StreamsConfig(place.config())
    log: Any = place.log
    lease = log.acquire_lease(config["application.id"], "test")
    plan = plan_for(topology, config, log)
    app = ThreadApp(with_settings(topology, config), config, plan, {}, None, None, log.identity())
    first = [task for task in app.tasks() if plan.subtopology(task.subtopology).external_topics]
    thread = StreamThread(app, log, Writer(config["application.id"], "thread-0", lease.epoch), first)
    thread.start()
    settle(thread)
    thread.close(commit=True)
    log.release_lease(lease)


BOTH_WAYS = pytest.mark.parametrize(  # the way back is also a part of test_there_and_back_and_there_again
    "modes",
    [
        pytest.param(("micro_batch", "continuous"), id="micro_batch-continuous"),
        pytest.param(("continuous", "micro_batch"), id="continuous-micro_batch", marks=pytest.mark.whole),
    ],
)
OUTPUTS = ("named", "windows", "ticks")
PARTS = [[(f"u{i % 3}", f"{i}", 100 * i) for i in range(start, start + 40)] for start in (0, 40)]
USERS = [[(f"u{i}", f"{name}{i}", 0) for i in range(3)] for name in ("a", "b")]


@BOTH_WAYS
def test_windows_joins_suppress_and_punctuation_go_on(place: Place, modes: tuple[str, str]) -> None:
    wanted = results_of(place, "alone", ("micro_batch", "micro_batch"))
    assert all(wanted[1][name] > wanted[0][name] for name in OUTPUTS)
    assert results_of(place, "moved", modes)[1] == wanted[1]


def results_of(place: Place, name: str, modes: tuple[str, str]) -> list[dict[str, Counter[tuple[str | None, Any]]]]:
    """All that an application has written after each of two parts, each in a mode."""
    topics = {each: place.topic(f"{name}-{each}", 1) for each in ("orders", "users", *OUTPUTS)}
    found = []
    for mode, orders, users in zip(modes, PARTS, USERS, strict=True):
        settings = {"processing.mode": mode, "application.id": f"{place.prefix}{name}"}
        for topic, rows in (("users", users), ("orders", orders)):  # one after the other, so that the join sees all
            place.write(topics[topic], rows)
            place.run(busy(topics), **settings, **{"statestore.cache.max.bytes": 0})
        found.append({each: Counter(place.read(topics[each])) for each in OUTPUTS})
    return found


class Every(Processor[str, str]):
    """Counts its records, and says every second of stream time how many they were."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")
        context.schedule(timedelta(seconds=1), "stream_time", self.tick)

    def process(self, record: Any) -> None:
        self.store.put(record.key, str(int(self.store.get(record.key) or 0) + 1))

    def tick(self, now_ms: int) -> None:
        for key, value in self.store.all():
            self.context.forward(Record(key, value, now_ms))


def busy(topics: dict[str, str]) -> Any:
    builder = StreamsBuilder()
    orders = builder.stream(topics["orders"])
    table = builder.table(topics["users"], materialized=Materialized("users"))
    orders.join(table, lambda order, user: f"{order}={user}").to(topics["named"])
    windows = TimeWindows.of(timedelta(seconds=1))
    counts = orders.group_by_key().windowed_by(windows).count(Materialized("by-second"))
    closed = counts.suppress(Suppressed.until_window_closes())
    closed.to_stream().map(lambda window, count: (window.key, f"{window.window.start}:{count}")).to(topics["windows"])
    builder.add_state_store(Stores.key_value("seen", key_serde="string", value_serde="string"))
    by_number = orders.select_key(lambda key, _: f"{key}!").repartition(Repartitioned("by-name"))
    by_number.process(Every, ["seen"]).to(topics["ticks"])
    return builder.build()


def test_a_driver_that_wakes_up_late_cannot_move_the_group(place: Place) -> None:
    source, group = place.topic("words"), f"{place.prefix}app"
    at = TopicPartition(source, 0)
    with open_log(place.url) as old:
        lease = old.acquire_lease(group, "old")
        old.show_as_member(lease, [source])
        old.commit_offsets(group, {at: 5}, "penstock batch 1", lease)
        place.log.release_lease(place.log.acquire_lease(group, "new", force=True))
        with pytest.raises(FencedError):
            old.commit_offsets(group, {at: 3}, "penstock batch 0", lease)
    assert place.log.committed_offsets(group) == {at: 5}


def test_a_task_of_micro_batches_that_wakes_up_late_writes_nothing(place: Place) -> None:
    source, sink, application = place.topic("words"), place.topic("counts"), f"{place.prefix}app"
    place.write(source, words(20))
    place.run(counting(source, sink), **BATCHES)
    held = place.log.lease(application)
    assert held is not None
    text = pa.array([b"late"], pa.large_binary())
    row = pa.RecordBatch.from_pydict({"key": text, "value": text})
    batch = place.log.ledger(application)["1_0"] + 1
    with open_log(place.url) as old:
        with old.transaction(f"{application}-1_0", held.epoch) as first:  # its producer is ready from now on
            first.put_ledger(application, "1_0", batch)
        before = place.log.end_offsets([sink])
        config = StreamsConfig(place.config())
        report = convert(counting(source, sink), config, place.log, "continuous", pytest.fail)
        assert report.is_done

        def write() -> None:
            with old.transaction(f"{application}-1_0", held.epoch) as late:
                late.append(sink, 0, row)
                late.put_ledger(application, "1_0", batch + 1)

        with pytest.raises(FencedError):
            write()
    assert place.log.end_offsets([sink]) == before


@BOTH_WAYS
def test_a_foreign_key_join_goes_on_with_its_subscriptions(place: Place, modes: tuple[str, str]) -> None:
    """Changes of either side after the move meet rows of before it, also deletions."""
    orders, users, joined = place.topic("orders"), place.topic("users"), place.topic("joined")
    builder = StreamsBuilder()
    names = builder.table(users, materialized=Materialized("users"))
    table = builder.table(orders, materialized=Materialized("orders"))
    table.join(names, lambda o, n: f"{o}={n}", foreign_key=lambda order: order.split(":")[0]).to_stream().to(joined)
    topology, both = builder.build(), zip(modes, ("first", "second"), strict=True)
    for mode, part in both:
        rows: dict[str, list[tuple[str | None, str | None, int]]] = {
            "first": [(f"o{i}", f"u{i % 3}:{i}", i) for i in range(9)],
            "second": [("o0", "u1:0", 20), ("o8", None, 21), ("o9", "u2:9", 22)],
        }
        people: dict[str, list[tuple[str | None, str | None, int]]] = {
            "first": [(f"u{i}", f"ann{i}", 0) for i in range(3)],
            "second": [("u1", "bea", 10), ("u2", None, 11)],
        }
        for topic, found in ((users, people[part]), (orders, rows[part])):
            for key, value, at in found:
                place.write(topic, [(key, value, at)], partition_for(str(key).encode(), 2))
            place.run(topology, **{"processing.mode": mode, "statestore.cache.max.bytes": 0})
    newest_of = dict(place.read(joined))
    assert {key: value for key, value in newest_of.items() if value is not None} == {
        "o0": "u1:0=bea", "o1": "u1:1=bea", "o3": "u0:3=ann0", "o4": "u1:4=bea", "o6": "u0:6=ann0", "o7": "u1:7=bea",
    }  # fmt: skip
    assert all(key in newest_of for key in ("o2", "o5", "o8"))  # there were results, which are gone


class Clock(Processor[str, str]):
    """Says every tenth of a second of the wall clock how many records of each key there were, and how often it has."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")
        context.schedule(timedelta(milliseconds=100), "wall_clock_time", self.tick)

    def process(self, record: Any) -> None:
        self.store.put(record.key, str(int(self.store.get(record.key) or 0) + 1))

    def tick(self, now_ms: int) -> None:
        for key, value in self.store.all():
            self.context.forward(Record(key, value, now_ms))


def test_the_wall_clock_ticks_without_input_before_and_after_a_move(place: Place) -> None:
    source, ticks = place.topic("words", 1), place.topic("ticks", 1)
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("seen", key_serde="string", value_serde="string"))
    builder.stream(source).process(Clock, ["seen"]).to(ticks)
    for number, mode in enumerate(["continuous", "micro_batch", "continuous"], 1):
        with place.app(builder.build(), **{"processing.mode": mode, "commit.interval.ms": 20}) as app:
            place.write(source, [("a", "x", number)])
            before = len(place.read(ticks))
            wanted = [("a", str(number))] * 3  # the count of before the move, and one more; again and again
            eventually(lambda: place.read(ticks)[before:].count(wanted[0]) >= 3, facts=lambda: (app.error, app.state))  # noqa: B023
        assert app.error is None
        counts = [int(value) for _, value in place.read(ticks)]
        assert counts == sorted(counts)
