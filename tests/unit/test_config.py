from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import penstock
from penstock.config import CONFIG_DEFS, StreamsConfig
from penstock.config.definitions import REFUSED
from penstock.errors import ConfigError


def test_defaults_and_types():
    config = StreamsConfig(
        {
            "application.id": "a",
            "commit.interval.ms": "1 second",
            "num.partitions": "4",
            "statestore.cache.max.bytes": "10 MB",
        }
    )
    assert config["commit.interval.ms"] == 1000
    assert config["num.partitions"] == 4
    assert config["statestore.cache.max.bytes"] == 10 << 20
    assert config["processing.guarantee"] == "exactly_once_v2"
    assert config.get("no.such.setting") is None
    assert StreamsConfig({"commit.interval.ms": timedelta(seconds=2)})["commit.interval.ms"] == 2000
    assert set(CONFIG_DEFS) <= set(config)


def test_every_default_is_valid():
    for definition in CONFIG_DEFS.values():
        if definition.default is not None:
            assert definition.kind.read(definition.default) == definition.default, definition.name


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.partitions", 0), ("num.partitions", "x"), ("num.partitions", True), ("commit.interval.ms", "soon"), ("commit.interval.ms", -1),
     ("processing.guarantee", "twice"), ("application.id", "a b"), ("statestore.cache.max.bytes", "10 XB"), ("statestore.cache.max.bytes", -1),
     ("processing.exception.handler", "shrug"), ("default.key.serde", 5), ("topology.optimization", "some")],
)  # fmt: skip
def test_bad_values_name_the_setting(name, value):
    with pytest.raises(ConfigError, match=name):
        StreamsConfig({name: value})


def test_unknown_names():
    with pytest.raises(ConfigError, match=r"Did you mean application\.id"):
        StreamsConfig({"aplication.id": "x"})
    with pytest.raises(ConfigError, match=r"Did you mean num\.partitions"):
        StreamsConfig({"num_partitions": 1})


def test_aliases_and_contradictions():
    config = StreamsConfig({"cache.max.bytes.buffering": 0})
    assert config["statestore.cache.max.bytes"] == config["cache.max.bytes.buffering"] == 0
    with pytest.raises(ConfigError, match="two values"):
        StreamsConfig({"cache.max.bytes.buffering": 0, "statestore.cache.max.bytes": 5})


def test_handlers():
    def own(context, error):
        return "continue"

    name = "deserialization.exception.handler"
    package = "org.apache.kafka.streams.errors"
    for given, read in (("log-and-continue", "continue"), (f"{package}.LogAndContinueExceptionHandler", "continue"), ("fail", "fail"),
                        (f"{package}.LogAndFailProcessingExceptionHandler", "fail"), (f"{package}.DefaultProductionExceptionHandler", "fail"), (own, own)):  # fmt: skip
        assert StreamsConfig({name: given})[name] is read


def test_settings_of_recorded_cases():
    settings = {
        "__emit.interval.ms.kstreams.windowed.aggregation__": 0, "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
        "topology.optimization": "all", "statestore.cache.max.bytes": 0,
    }  # fmt: skip
    config = StreamsConfig(
        {**settings, "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde"}
    )
    assert {name: config[name] for name in settings} == settings
    assert config["default.key.serde"] is not None


def test_prefixes_pass_through():
    config = StreamsConfig({"producer.linger.ms": 5, "spark.master": "local[2]", "topic.retention.ms": -1})
    assert config.with_prefix("producer.") == {"linger.ms": 5}
    assert config["spark.master"] == "local[2]"


def test_immutable_and_pickles():
    config = StreamsConfig({"application.id": "a"})
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.x = 1
    other = config.with_settings({"cache.max.bytes.buffering": 0})
    assert (other["statestore.cache.max.bytes"], config["statestore.cache.max.bytes"]) == (0, 10 << 20)


def test_required_at_start():
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        StreamsConfig({"application.id": "a"}).require("application.id", "bootstrap.servers")


def test_secrets_stay_secret():
    config = StreamsConfig(
        {
            "ssl.keystore.password": "hunter2",
            "sasl.jaas.config": "hunter2",
            "bootstrap.servers": "kafka://me:hunter2@host",
            "num.partitions": 1,
        }
    )
    assert "hunter2" not in config.explain() + repr(config) + str(config)
    assert "num.partitions" not in config.explain()


def test_config_loads_no_columns():
    code = "import sys, penstock.config; sys.exit(bool({'polars', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_setting_is_read_or_refused_or_named_in_the_warning():
    """A setting that is accepted and does nothing would be worse than one that is not there."""
    package = Path(penstock.__file__).parent
    not_readers = {"config", "connect", "tools", "base"}  # Connect has settings of its own
    files = [f for f in package.rglob("*.py") if f.relative_to(package).parts[0] not in not_readers]
    source = "\n".join(file.read_text() for file in files)
    read = {name for name in CONFIG_DEFS if f'"{name}"' in source}
    by_prefix = {"schema.registry.url"}  # the registry's client takes all of schema.registry.*
    without_effect = {name for name, definition in CONFIG_DEFS.items() if not definition.effect}
    assert set(CONFIG_DEFS) - read - by_prefix == without_effect
    assert not read & without_effect
    assert not REFUSED.keys() & CONFIG_DEFS.keys()
    config = StreamsConfig({"poll.ms": 4, "num.partitions": 2})
    assert config.without_effect == ("poll.ms",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.task.idle.ms", 100),
        ("max.task.idle.ms", 60_000),
        ("dsl.store.format", "HEADERS"),
        ("windowed.inner.class.serde", "string"),
        ("window.size.ms", 1000),
    ],
)
def test_what_cannot_be_had_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value} is not supported"):
        StreamsConfig({name: value, "processing.mode": "micro_batch"})


def test_plain_is_another_word_for_the_default_format_of_stores():
    for mode in ("micro_batch", "continuous"):
        config = StreamsConfig({"dsl.store.format": "Plain", "processing.mode": mode})
        assert config["dsl.store.format"] == "DEFAULT"


def test_stream_threads_are_the_default_and_wait_for_topics_that_are_empty():
    config = StreamsConfig({"max.task.idle.ms": 100})
    assert (config["processing.mode"], config["max.task.idle.ms"]) == ("continuous", 100)


@pytest.mark.parametrize(
    ("name", "value"), [("max.task.idle.ms", 0), ("max.task.idle.ms", -1), ("dsl.store.format", "DEFAULT")]
)
def test_what_is_done_anyway_is_accepted(name, value):
    assert StreamsConfig({name: value, "processing.mode": "micro_batch"})[name] == value


def test_realtime_names_the_mode_that_took_its_place():
    with pytest.raises(
        ConfigError, match="it must be micro_batch or continuous, which has taken the place of realtime"
    ):
        StreamsConfig({"processing.mode": "realtime"})
    assert StreamsConfig({"processing.mode": "Continuous"})["processing.mode"] == "continuous"
