"""Settings of an application that no other test sets: each makes the difference that it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from epoch_support import Driver
from worker_support import append as append_words
from worker_support import prepared, run

import threads
from penstock import KafkaStreams, Materialized, Serdes, StreamsBuilder, StreamsConfig, TimeWindows
from penstock.console.alerts import alerts_of
from penstock.console.app_view import Picture
from penstock.console.recorder import Recorder, Watched
from penstock.console.topology_drawing import alert_settings
from penstock.engines.micro_batches.worker import open_tasks
from penstock.engines.threads.hosting.epoch_start import placement_settings
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.open import open_log
from penstock.metrics import MetricRegistry
from penstock.metrics.definitions import DROPPED
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import plan_of

HOUR = 3_600_000
SERDES = {"default.key.serde": "string", "default.value.serde": "string"}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "memory:", **SERDES, **settings})


def words_counted() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("counts")).to_stream().to("counts")
    return builder


# Tasks and their copies


def placed(**settings: Any) -> Driver:
    """Four tasks on a thread, and a thread on another machine that has nothing yet."""
    driver = Driver(2, 4, **placement_settings(config(**settings)))
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "b")
    driver.done("thread-0")
    driver.done("thread-1")
    driver.gone("thread-1")
    driver.look(1.0)
    driver.epoch.fenced("thread-1")
    driver.done("thread-0")
    driver.hello("thread-1", "c", pid=2)
    driver.done("thread-1")
    return driver


@pytest.mark.parametrize("most", [1, 2])
def test_so_many_copies_are_warmed_at_once(most: int) -> None:
    driver = placed(**{"max.warmup.replicas": most})
    active, standby = driver.tasks("thread-1")
    assert (active, len(standby)) == ([], most)


@pytest.mark.parametrize(("acceptable", "moves"), [(99, False), (100, True)])
def test_a_copy_takes_its_task_within_the_acceptable_lag(acceptable: int, moves: bool) -> None:
    driver = placed(**{"acceptable.recovery.lag": acceptable, "probing.rebalance.interval.ms": 60_000})
    driver.done("thread-1", lag=100)
    driver.look(61.0)
    assert (len(driver.tasks("thread-0")[0]) < 4) is moves


@pytest.mark.parametrize(("interval_ms", "moves"), [(120_000, False), (60_000, True)])
def test_the_lag_is_looked_at_in_the_probing_interval(interval_ms: int, moves: bool) -> None:
    driver = placed(**{"probing.rebalance.interval.ms": interval_ms})
    driver.done("thread-1", lag=0)
    driver.look(61.0)
    assert (len(driver.tasks("thread-0")[0]) < 4) is moves


# Threads


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        yield opened


@pytest.mark.parametrize(("most", "pauses"), [(20, True), (1_000, False)])
def test_a_partition_pauses_while_more_records_are_buffered(log: EmbeddedLog, most: int, pauses: bool) -> None:
    for topic in ("words", "counts"):
        log.create_topic(topic, 1)
    threads.append(log, "words", [("k", "v", at) for at in range(500)])
    settings = {"buffered.records.per.partition": most, "max.poll.records": 10, "processing.mode": "continuous"}
    app = threads.thread_app(words_counted().build(), {**SERDES, **settings}, log)
    thread = threads.new_thread(app, log)
    thread.start()
    try:
        paused = False
        while not threads.records_of(log, "counts"):
            thread.step(0)
            paused |= bool(thread._paused)
            if thread._records >= 500:
                thread.commit()
        assert paused is pauses
    finally:
        thread.close(commit=True)


@pytest.mark.parametrize("interval_ms", [1_000, 7_000])
def test_the_clock_is_looked_at_in_the_tick_interval(log: EmbeddedLog, interval_ms: int) -> None:
    log.create_topic("words", 1)
    builder = StreamsBuilder()
    windows = builder.stream("words").group_by_key().windowed_by(TimeWindows.of("1 minute"))
    windows.emit_strategy("on_window_close", idle="1 hour").count()
    settings = {"penstock.tick.interval.ms": interval_ms, "processing.mode": "continuous"}
    thread = threads.new_thread(threads.thread_app(builder.build(), {**SERDES, **settings}, log), log)
    thread.start()
    try:
        (task,) = thread._tasks.values()
        now_ms = 2_000_000_000_000  # after all that is due
        task.process(now_ms, {})
        assert task.wakes_at_ms(now_ms) == now_ms + interval_ms
    finally:
        thread.close(commit=True)


# Workers of micro-batches


def test_a_replica_is_mapped_with_the_size_of_the_setting(tmp_path: Path) -> None:
    size = 64 << 20
    topology = words_counted().build()
    with prepared(tmp_path, topology, ["words", "counts"], **{"penstock.state.map.size": size}) as (job, kafka):
        append_words(kafka, "words", [(f"w{i}", "v") for i in range(10)])
        run(job, 0)
        try:
            ((_, task),) = [each for each in open_tasks._open_tasks.items() if str(tmp_path) in str(each[0])]
            task.store.resume()
            assert task.store._replica._env.info()["map_size"] == size
        finally:
            open_tasks.close_open_tasks()


@pytest.mark.parametrize(("delay_ms", "open_after"), [(0, 0), (HOUR, 1)])
def test_a_task_that_is_not_run_is_closed_after_the_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay_ms: int, open_after: int
) -> None:
    monkeypatch.setattr(open_tasks, "_LEAST_CLEANUP_S", 0.0)
    topology = words_counted().build()
    with prepared(tmp_path, topology, ["words", "counts"], **{"state.cleanup.delay.ms": delay_ms}) as (data, kafka):
        append_words(kafka, "words", [(f"w{i}", "v") for i in range(10)])
        run(data, 0)
        try:
            from worker_support import loaded

            job = loaded(data)
            (key,) = [key for key in open_tasks._open_tasks if str(tmp_path) in str(key)]
            open_tasks._tidy(job, key[0])  # the first one notes the time
            open_tasks._tidy(job, key[0])
            assert len([key for key in open_tasks._open_tasks if str(tmp_path) in str(key)]) == open_after
        finally:
            open_tasks.close_open_tasks()


def test_the_changelog_of_windows_keeps_them_longer() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of("1 minute")).count(
        Materialized("n", retention="2 minutes")
    )
    topology = builder.build()
    plan = plan_of(topology, "app", {"in": 1})
    settings = config(**{"windowstore.changelog.additional.retention.ms": 5_000})
    (changelog,) = [each for each in changelogs_of(topology, plan, settings) if each.store == "n"]
    assert changelog.config["retention.ms"] == str(2 * 60_000 + 5_000)


# What is shown


def test_rates_look_back_over_samples_of_the_setting() -> None:
    now = [0]
    settings = config(**{"metrics.sample.window.ms": 1_000, "metrics.num.samples": 3})
    registry = MetricRegistry.of(settings, lambda: now[0])
    meter = registry.meter(DROPPED, {"thread-id": "main", "task-id": "0_0"})
    assert meter is not None
    meter.record_many(6, 6, 1, 1)
    assert registry.value("dropped-records-rate") == pytest.approx(6 / 2)  # at least all samples but one
    now[0] = 3_500
    assert registry.value("dropped-records-rate") == 0


@pytest.mark.parametrize(("percent", "hold_ms", "expected"), [(20, HOUR, {"state grows", "restarts"}), (60, HOUR, {"restarts"}), (20, 1, {"state grows"})])  # fmt: skip
def test_alerts_have_the_limits_of_the_settings(percent: int, hold_ms: int, expected: set[str]) -> None:
    settings = config(**{"penstock.alerts.state.growth.percent": percent, "penstock.alerts.hold.ms": hold_ms})
    now_ms = 10 * HOUR
    document = {
        "state": "RUNNING",
        "facts": {"alerts": alert_settings(settings)},
        "growth": [["carts", 100_000, 150_000]],
        "restarts": [[now_ms - 60_000, "a"], [now_ms - 50_000, "b"], [now_ms - 40_000, "c"]],
    }
    assert {alert.name for alert in alerts_of(Picture(document), now_ms)} & {"state grows", "restarts"} == expected


@pytest.mark.parametrize("enabled", [True, False])
def test_an_application_is_recorded_for_the_console_where_it_is_enabled(tmp_path: Path, enabled: bool) -> None:
    recorder = Recorder.of(config(**{"penstock.console.enabled": enabled}), lambda: "RUNNING")
    recorder.begin(Watched(str(tmp_path), dict, dict, {}, dict))
    try:
        assert (recorder._thread is not None) is enabled
    finally:
        recorder.close()


def test_queries_are_answered_at_the_host(tmp_path: Path) -> None:
    settings = {"penstock.http.host": "127.0.0.2", "penstock.http.port": 0, "state.dir": str(tmp_path / "state")}
    settings |= {"application.id": "app", "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}", **SERDES}
    app = KafkaStreams(words_counted().build(), settings)
    app._port.open()
    try:
        assert str(app.query_url).startswith("http://127.0.0.2:")
    finally:
        app._port.close()


def test_the_end_is_awaited_for_the_time_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    app = KafkaStreams(words_counted().build(), config(**{"penstock.shutdown.timeout.ms": 1_234}))
    waited_s: list[float | None] = []
    await_end = app._lifecycle.await_end

    def noted(timeout_s: float | None) -> bool:
        waited_s.append(timeout_s)
        return await_end(timeout_s)

    monkeypatch.setattr(app._lifecycle, "await_end", noted)
    assert app.close()
    assert waited_s == [1.234]


# Clients


def test_connections_have_the_limits_of_the_settings() -> None:
    given = {"connections.max.idle.ms": 1_000, "reconnect.backoff.max.ms": 2_000, "send.buffer.bytes": 3_000}
    settings = ClientSettings.of("kafka://broker:9092", config(**given).given)
    own = settings.kafka_python()
    names = ("connections_max_idle_ms", "reconnect_backoff_max_ms", "send_buffer_bytes")
    assert [own[name] for name in names] == [1_000, 2_000, 3_000]
    theirs = settings.librdkafka("consumer")
    names = ("connections.max.idle.ms", "reconnect.backoff.max.ms", "socket.send.buffer.bytes")
    assert [theirs[name] for name in names] == ["1000", "2000", "3000"]


HIT = {"type": "record", "name": "Hit", "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize("part", ["key", "value"])
def test_schemas_are_named_and_framed_as_the_settings_say(part: str) -> None:
    settings: dict[str, dict[str, Any]] = {
        "key": {"key.schema.id.serializer": "header", "key.subject.name.strategy": "record"},
        "value": {"value.schema.id.serializer": "header", "value.subject.name.strategy": "record"},
    }
    given = config(**{"schema.registry.url": "memory:", **settings[part]}).given
    serde: Any = Serdes.avro(HIT)
    serdes = {each: serde.configured(given).for_topic("hits", each) for each in ("key", "value")}
    framed = {each: (made.framing, made.settings.strategy(each)) for each, made in serdes.items()}
    assert framed == {"key": ("prefix", "topic"), "value": ("prefix", "topic")} | {part: ("header", "record")}
