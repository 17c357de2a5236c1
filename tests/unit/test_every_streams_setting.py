"""A walk over all settings of an application: each is obeyed, refused with a sentence, or named as without effect at the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import StreamsConfig
from penstock.config.definitions import CONFIG_DEFS, REFUSED
from penstock.errors import ConfigError

ROOT = Path(__file__).parents[2]
SOURCES = "\n".join(
    path.read_text() for path in (ROOT / "src" / "penstock").rglob("*.py") if path.parent.name != "config"
)
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
OBEYED = [name for name, setting in CONFIG_DEFS.items() if setting.effect]


def _names(name: str, text: str) -> bool:
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None


def _is_set(name: str) -> bool:
    """Whether a test has the name, or an argument that stands for it: ``penstock_max_wait_ms=``."""
    return _names(name, TESTS) or re.search(rf"\b{re.escape(name.replace('.', '_'))}=", TESTS) is not None


@pytest.mark.parametrize("name", OBEYED)
def test_a_setting_with_an_effect_is_read(name):
    assert _names(name, SOURCES), f"{name} is accepted, and nothing outside of penstock.config reads it"


def test_each_setting_is_set_by_a_test():
    assert [name for name in OBEYED if not _is_set(name)] == []


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
