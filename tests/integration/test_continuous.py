"""Continuous mode on Spark, over the embedded log and over Kafka."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.engines.application.locations import Locations
from penstock.engines.kafka_streams import State
from penstock.engines.threads.replicas.replica_folders import continuous_place
from penstock.errors import ConfigError, ProcessingError
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica

from .conftest import Place, long


def counting(words: str | re.Pattern[str], counts: str) -> Any:
    """A word count through a repartition topic."""
    builder = StreamsBuilder()
    grouped = builder.stream(words).group_by(lambda _, value: value)
    grouped.count(Materialized("word-counts")).to_stream().to(counts)
    return builder.build()


def newest(place: Place, topic: str) -> dict[str | None, int]:
    return dict(place.read(topic, long))


def words(n: int, kinds: int = 5) -> list[tuple[str | None, str | None, int]]:
    return [("k", f"w{i % kinds}", i) for i in range(n)]


def counted(*rows: list[tuple[str | None, str | None, int]]) -> dict[str | None, int]:
    return dict(Counter(value for each in rows for _, value, _ in each))


GUARANTEES = [
    {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 10},
    {"processing.guarantee": "at_least_once"},
]


@pytest.mark.parametrize("settings", GUARANTEES, ids=["exactly-once", "at-least-once"])
def test_word_count_runs_to_the_latest_stops_and_goes_on(place: Place, settings: dict[str, Any]) -> None:
    source, sink = place.topic("words"), place.topic("counts")
    place.write(source, words(100), 0)
    place.write(source, words(57), 1)
    place.run(counting(source, sink), **settings)
    assert newest(place, sink) == counted(words(100), words(57))
    place.write(source, words(10), 1)
    seen = []
    app = place.app(counting(source, sink), **settings)
    app.add_progress_listener(seen.append)
    app.run(until="latest")
    assert newest(place, sink) == counted(words(100), words(57), words(10))
    assert sum(each.records_in for each in seen) == 10  # not those of the repartition topic
    assert sum(task["records_in"] for each in seen for task in each.tasks) == 20  # each word is processed twice
    committed = place.log.committed_offsets(f"{place.prefix}app")
    assert {tp.topic for tp in committed} == {source, f"{place.prefix}app-word-counts-repartition"}


def test_a_machine_removes_the_replicas_of_tasks_that_it_has_no_more(embedded: Place) -> None:
    place, source, sink = embedded, embedded.topic("words"), embedded.topic("counts")
    place.write(source, words(10), 0)
    with place.app(counting(source, sink), **{"state.cleanup.delay.ms": 1}) as app:
        eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
        root = Path(Locations.of(app.config, place.log).replicas)
        own = with_rows(root)
        moved = []
        for task in ("1_7", "1_8", "1_9"):
            identity, folder = continuous_place(root, app.config["application.id"], place.log.identity(), task)
            LmdbReplica(folder, identity, ()).close()
            moved.append(folder)
        eventually(lambda: not with_rows(root) & {each.name for each in moved}, facts=lambda: app.error)
        place.write(source, words(10), 1)
        eventually(lambda: newest(place, sink) == counted(words(10), words(10)), facts=lambda: app.error)
        assert with_rows(root) == own


def with_rows(root: Path) -> set[str]:
    """The folders of replicas with files of rows; the locks of the others stay."""
    return {each.name for each in root.glob("continuous-*") if any(each.glob("slot-*/data.mdb"))}


def test_a_running_application_joins_two_topics_and_stops_soon(place: Place) -> None:
    orders, users, named = place.topic("orders"), place.topic("users"), place.topic("named")
    builder = StreamsBuilder()
    table = builder.table(users, materialized=Materialized("users"))
    by_user = builder.stream(orders).select_key(lambda _, value: value.split(":")[0])
    by_user.join(table, lambda order, user: f"{order}={user}").to(named)
    place.run(builder.build())  # an empty run creates what is missing
    with place.app(builder.build()) as app:
        eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
        from penstock.log.partitioner import partition_for

        for user in ("ada", "bob", "cy"):
            place.write(users, [(user, user.upper(), 0)], partition_for(user.encode(), 2))
        eventually(lambda: app.figures().records_in >= 3)
        place.write(orders, [(None, f"{user}:{i}", 10 + i) for i in range(4) for user in ("ada", "bob", "cy")], 1)
        wanted = sorted((user, f"{user}:{i}={user.upper()}") for i in range(4) for user in ("ada", "bob", "cy"))
        eventually(lambda: sorted(place.read(named)) == wanted, facts=lambda: (place.read(named), app.error))
        ended = threading.Event()
        threading.Thread(target=lambda: (app.close(), ended.set()), daemon=True).start()
        assert ended.wait(60)  # a second on a machine without other work
    assert app.state is State.NOT_RUNNING


def test_a_function_that_raises_ends_the_application_and_names_the_record(embedded: Place) -> None:
    source = embedded.topic("in")
    builder = StreamsBuilder()
    builder.stream(source).map_values(lambda value: 1 // (value != "w3")).to("never")
    embedded.write(source, words(10))
    app = embedded.app(builder.build())
    with pytest.raises(ProcessingError, match=r"KSTREAM-MAPVALUES-0000000001.*ZeroDivisionError") as caught:
        app.run(until="latest")
    eventually(lambda: app.state is State.ERROR)
    assert caught.value.facts["offset"] == 3
    assert "test_continuous.py" in str(caught.value)


def test_a_killed_worker_costs_an_epoch_and_nothing_is_lost_or_doubled(place: Place) -> None:
    source, sink = place.topic("words"), place.topic("counts")
    topology = counting(source, sink)
    with place.app(topology, **{"commit.interval.ms": 10, "statestore.cache.max.bytes": 0}) as app:
        eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
        for round_ in range(5):
            place.write(source, words(200), round_ % 2)
            if round_ in (1, 3):
                wait_for_epoch_after(app, kill_a_worker(app))
        eventually(lambda: newest(place, sink) == counted(*[words(200)] * 5), facts=lambda: (app.error, app.state))
    assert sorted(place.read(sink, long)) == sorted((f"w{i}", n) for i in range(5) for n in range(1, 201))


def wait_for_epoch_after(app: KafkaStreams, number: int) -> None:
    run: Any = app._run
    eventually(lambda: run.engine._jobs._epoch.job.epoch > number, facts=lambda: app.error)


def kill_a_worker(app: KafkaStreams) -> int:
    """Kill the process of a thread once it runs; return the number of the epoch that this ends."""
    run: Any = app._run
    eventually(run.engine.has_running_tasks, facts=lambda: app.error)
    number: int = run.lease.epoch
    os.kill(run.engine._jobs._epoch.threads["thread-0"].pid, signal.SIGKILL)
    return number


def test_nothing_but_the_log_is_needed_to_go_on(place: Place) -> None:
    source, sink = place.topic("words"), place.topic("counts")
    place.write(source, words(100))
    place.run(counting(source, sink))
    shutil.rmtree(place.root / "state")
    place.write(source, words(10))
    place.run(counting(source, sink))
    assert newest(place, sink) == counted(words(100), words(10))


def test_a_topic_that_grows_is_read_whole_without_a_restart(place: Place) -> None:
    source, sink = place.topic("words"), place.topic("counts")
    with place.app(counting(source, sink), **{"metadata.max.age.ms": 500}) as app:
        eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
        place.write(source, words(20), 0)
        place.log.create_partitions(source, 4)
        place.write(source, words(30), 3)
        eventually(lambda: newest(place, sink) == counted(words(20), words(30)), facts=lambda: app.error)
        assert app.metadata()["epoch"] == 1  # the tasks have come to the running threads


def test_one_more_topic_of_a_pattern_is_read_and_the_idle_ones_hold_up_nothing(place: Place) -> None:
    sources = [place.topic(f"in-{number}") for number in range(20)]
    sink = place.topic("counts")
    for source in sources[:10]:
        place.write(source, words(10), 0)
        place.write(source, words(10), 1)
    pattern = re.compile(f"{place.prefix}in-.*")
    with place.app(counting(pattern, sink), **{"metadata.max.age.ms": 500}) as app:
        eventually(lambda: newest(place, sink) == counted(*[words(10)] * 20))
        added = place.topic("in-new", 3)
        place.write(added, words(10), 2)
        eventually(lambda: newest(place, sink) == counted(*[words(10)] * 21))
        place.write(added, words(10), 1)
        place.write(sources[3], words(10), 0)  # the others have no news
        eventually(lambda: newest(place, sink) == counted(*[words(10)] * 23))
        assert app.state is State.RUNNING


def test_fewer_threads_than_slots(embedded: Place) -> None:
    source, sink = embedded.topic("words", 4), embedded.topic("counts")
    for partition in range(4):
        embedded.write(source, words(10), partition)
    app = embedded.app(counting(source, sink), **{"num.stream.threads": 1, "metrics.recording.level": "DEBUG"})
    app.run(until="latest")
    assert newest(embedded, sink) == counted(*[words(10)] * 4)
    metrics = app.metrics
    assert metrics.total("records-consumed-total", topic=source) == 40
    assert metrics.total("process-total", group="stream-task-metrics") == 80  # each word is read twice
    assert metrics.total("store-written-rows-total") >= 5  # words
    assert metrics.total("store-rows") == 5
    assert metrics.total("store-bytes") >= 4096
    assert metrics.total("store-calls-total", call="put") >= 5
    assert metrics.total("node-rows-in-total") >= 80
    assert metrics.total("put-rate") > 0
    assert metrics.total("position", topic=source) == 40
    assert metrics.value("task-created-total") == 8


def test_changelogs_that_are_off_are_refused(embedded: Place) -> None:
    source = embedded.topic("words")
    with pytest.raises(ConfigError, match=r"penstock\.changelog\.enabled"):
        embedded.run(counting(source, "counts"), **{"penstock.changelog.enabled": False})


def test_an_application_whose_job_is_cancelled_from_outside_ends_with_everything_committed(embedded: Place) -> None:
    source, sink, begun = embedded.topic("words"), embedded.topic("counts"), embedded.root / "begun"

    def linger(_: str, value: str) -> None:
        if value == "slow":  # the job is cancelled meanwhile; Spark ends its workers 2 s later at the earliest
            begun.touch()
            time.sleep(0.5)

    builder = StreamsBuilder()
    grouped = builder.stream(source).peek(linger).group_by(lambda _, value: value)
    grouped.count(Materialized("word-counts")).to_stream().to(sink)
    app = embedded.app(builder.build(), **{"commit.interval.ms": 60_000})
    app.start()
    eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
    embedded.write(source, words(50))
    eventually(lambda: app.figures().records_in >= 50, facts=lambda: app.error)
    embedded.write(source, [("k", "slow", 50)])
    eventually(begun.exists, facts=lambda: app.error)
    run: Any = app._run
    run.spark.context.cancelAllJobs()
    assert app.wait(120_000)
    assert app.state is State.NOT_RUNNING
    committed = embedded.log.committed_offsets(f"{embedded.prefix}app")
    assert sum(at for tp, at in committed.items() if tp.topic == source) == 51
