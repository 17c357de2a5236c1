"""What the settings add to a topology: the default timestamp extractor, explicit names, the handler of global stores."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from penstock import (
    Consumed,
    Grouped,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Processor,
    Repartitioned,
    Stores,
    StreamJoined,
    StreamsBuilder,
    TableJoined,
)
from penstock.errors import ConfigError, PenstockError, ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology.configured import with_settings

SETTINGS: dict[str, Any] = {"default.key.serde": "string", "default.value.serde": "string"}


def length(record: Any) -> int:
    return len(record.value)


def stamps(setting: Any, consumed: Consumed | None = None) -> list[int]:
    builder = StreamsBuilder()
    builder.stream("in", consumed).repartition().to("out")
    settings = {**SETTINGS, "default.timestamp.extractor": setting}
    with TopologyTestDriver(builder.build(), settings) as driver:
        driver.input_topic("in").pipe("four", key="k", timestamp=100)
        return [record.timestamp for record in driver.output_topic("out").read_records_to_list()]


def test_the_default_timestamp_extractor() -> None:
    assert stamps(None) == stamps("FailOnInvalidTimestamp") == stamps("LogAndSkipOnInvalidTimestamp") == [100]
    assert stamps(length) == [4]
    assert stamps(lambda record, partition_time: partition_time + 8) == [7]
    assert stamps(length, Consumed(timestamp_extractor=lambda record: 9)) == [9]
    assert stamps("org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp") == [100]
    assert stamps(length, Consumed(timestamp_extractor="FailOnInvalidTimestamp")) == [100]
    of_source = Consumed(timestamp_extractor="org.apache.kafka.streams.processor.WallclockTimestampExtractor")
    assert stamps(length, of_source)[0] == pytest.approx(time.time() * 1000, abs=600_000)
    assert stamps("WallclockTimestampExtractor")[0] == pytest.approx(time.time() * 1000, abs=600_000)
    with pytest.raises(ConfigError, match="a function"):
        stamps("SomeExtractor")
    with pytest.raises(TopologyError, match="1 or 2 argument"):
        stamps(lambda a, b, c: 0)
    with pytest.raises(TopologyError, match="Wallclok") as raised:
        Consumed(timestamp_extractor="WallclokTimestampExtractor")
    assert "WallclockTimestampExtractor" in str(raised.value)


def test_settings_are_filled_in_once() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    settings = {**SETTINGS, "default.timestamp.extractor": length}
    once = with_settings(builder.build(), settings)
    assert with_settings(once, settings) == once


EXPLICIT = {**SETTINGS, "ensure.explicit.internal.resource.naming": True}


@pytest.mark.parametrize(
    ("verbs", "unnamed"),
    [
        (lambda b: b.stream("a").group_by_key().count(), "KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog"),
        (lambda b: b.stream("a").group_by(len).count("s"), None),
        (lambda b: b.stream("a").group_by(len, Grouped("g")).count("s"), None),
        (lambda b: b.stream("a").repartition(), "KSTREAM-REPARTITION-0000000001-repartition"),
        (lambda b: b.stream("a").repartition(Repartitioned("r")), None),
        (lambda b: b.table("a").filter(bool, materialized="s"), None),
        (lambda b: b.table("a").group_by(lambda k, v: (v, k)).count("s"), "a-STATE-STORE-0000000000"),
        (lambda b: b.table("a", materialized="t").group_by(lambda k, v: (v, k), Grouped("g")).count("s"), None),
        (
            lambda b: b.stream("a").join(b.stream("b"), max, JoinWindows.of(5)),
            "KSTREAM-JOINTHIS-0000000004-store",
        ),
        (
            lambda b: b.stream("a").join(b.stream("b"), max, JoinWindows.of(5), StreamJoined("j", store_name="j")),
            None,
        ),
        (
            lambda b: b.table("a", materialized="l").join(b.table("b", materialized="r"), max, foreign_key=len),
            None,
        ),
        (
            lambda b: b.table("a", materialized="l").join(
                b.table("b", materialized="r"), max, "s", foreign_key=len, joined=TableJoined("j")
            ),
            None,
        ),
        (lambda b: b.stream("a").to_table().to_stream(), "the store of KSTREAM-TOTABLE-0000000001"),
        (lambda b: b.stream("a").to_table("t").to_stream(), None),
        (lambda b: b.global_table("a"), None),
        (lambda b: b.stream("a").group_by_key().count(Materialized("s").with_logging_disabled()), None),
    ],
)
def test_generated_names_are_refused_on_request(verbs: Any, unnamed: str | None) -> None:
    builder = StreamsBuilder()
    verbs(builder)
    builder.stream("elsewhere").to("out")
    topology = builder.build()
    with_settings(topology, SETTINGS)
    if unnamed is None:
        with_settings(topology, EXPLICIT)
    else:
        with pytest.raises(TopologyError, match=f"has not been named: .*{unnamed}"):
            with_settings(topology, EXPLICIT)


class Broken(Processor[str, str]):
    def process(self, record: Any) -> None:
        raise ValueError("no")


def test_the_handler_serves_global_stores_only_on_request() -> None:
    builder = StreamsBuilder().add_global_store(Stores.key_value("s"), "g", Broken)
    builder.stream("in").to("out")
    settings = {**SETTINGS, "processing.exception.handler": "continue"}
    with (
        TopologyTestDriver(builder.build(), settings) as driver,
        pytest.raises(ProcessingError, match="ValueError: no"),
    ):
        driver.input_topic("g").pipe("v", key="k", timestamp=0)
    settings["processing.exception.handler.global.enabled"] = True
    with TopologyTestDriver(builder.build(), settings) as driver:
        driver.input_topic("g").pipe("v", key="k", timestamp=0)
        assert driver.dropped_records == 1


def test_settings_without_effect_are_named_once(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("missing").to("out")
    settings = {
        **SETTINGS,
        "application.id": "app",
        "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}",
        "state.dir": str(tmp_path),
        "task.assignor.class": "Own",
        "rocksdb.config.setter": "Tuned",
    }
    app = KafkaStreams(builder.build(), settings)
    with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(PenstockError):
        app.start()  # there is no topic
    (warning,) = [r.getMessage() for r in caplog.records if "without effect" in r.getMessage()]
    assert warning.endswith("Kafka Streams: rocksdb.config.setter, task.assignor.class")


@pytest.mark.parametrize("mode", ["continuous", "micro_batch"])
def test_settings_of_the_other_mode_are_named(caplog: pytest.LogCaptureFixture, tmp_path: Any, mode: str) -> None:
    builder = StreamsBuilder()
    builder.stream("missing").to("out")
    settings = {
        **SETTINGS,
        "application.id": "app",
        "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}",
        "state.dir": str(tmp_path),
        "processing.mode": mode,
        "penstock.max.records.per.batch": 100,
        "penstock.max.records.per.partition": 50,
        "max.poll.records": 10,
    }
    app = KafkaStreams(builder.build(), settings)
    with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(PenstockError):
        app.start()
    (warning,) = [r.getMessage() for r in caplog.records if "without effect" in r.getMessage()]
    others = {"continuous": "penstock.max.records.per.batch, penstock.max.records.per.partition"}
    assert warning == f"settings without effect with processing.mode={mode}: {others.get(mode, 'max.poll.records')}"
