"""A walk over all settings of an application: each is obeyed, refused with a sentence, or named as without effect at the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import StreamsConfig
from penstock.config.definitions import CONFIG_DEFS
from penstock.config.refused import REFUSED
from penstock.errors import ConfigError

ROOT = Path(__file__).parents[2]
SOURCES = "\n".join(
    path.read_text() for path in (ROOT / "src" / "penstock").rglob("*.py") if path.parent.name != "config"
)
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
OBEYED = [name for name, setting in CONFIG_DEFS.items() if setting.effect]
# Settings that are read, but that no test sets by itself yet. It must not grow.
WITHOUT_TEST = {
    "acceptable.recovery.lag", "buffered.records.per.partition", "connections.max.idle.ms", "key.schema.id.serializer",
    "key.subject.name.strategy", "max.warmup.replicas", "metrics.num.samples", "metrics.sample.window.ms",
    "penstock.alerts.hold.ms", "penstock.alerts.state.growth.percent", "penstock.batch.pause.ms",
    "penstock.console.enabled", "penstock.http.host", "penstock.max.batch.ms", "penstock.max.bytes.per.batch",
    "penstock.max.wait.ms", "penstock.min.records.per.batch", "penstock.shutdown.timeout.ms",
    "penstock.start.timestamp", "penstock.state.map.size", "penstock.tick.interval.ms",
    "probing.rebalance.interval.ms", "reconnect.backoff.max.ms", "send.buffer.bytes", "state.cleanup.delay.ms",
    "value.schema.id.serializer", "windowstore.changelog.additional.retention.ms",
}  # fmt: skip


def _names(name: str, text: str) -> bool:
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None


@pytest.mark.parametrize("name", OBEYED)
def test_a_setting_with_an_effect_is_read(name):
    assert _names(name, SOURCES), f"{name} is accepted, and nothing outside of penstock.config reads it"


def test_each_setting_is_set_by_a_test():
    assert {name for name in OBEYED if not _names(name, TESTS)} <= WITHOUT_TEST


@pytest.mark.parametrize("name", [name for name, setting in CONFIG_DEFS.items() if not setting.effect])
def test_a_setting_without_effect_is_named(name):
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "memory:", name: "x"})
    assert name in config.without_effect


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_setting_is_named_with_what_to_do(name):
    with pytest.raises(ConfigError, match=re.escape(name)) as refused:
        StreamsConfig({"application.id": "a", name: "HEADERS"})
    assert refused.value.hint


def test_a_name_that_nothing_knows_is_refused_or_warned_about_with_the_nearest():
    with pytest.raises(ConfigError, match=r"commit\.interval\.ms"):
        StreamsConfig({"application.id": "a", "comit.interval.ms": 5})
