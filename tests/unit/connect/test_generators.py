from __future__ import annotations

import itertools
import json
import re

import pytest

from penstock.connect.record_generators import Generated, GeneratorSettings, access_log, clicks, paced, shop
from penstock.errors import ConfigError

START = 1_790_000_000_000
COMBINED = re.compile(r'\S+ - \S+ \[[^\]]+\] "[A-Z]+ \S+ HTTP/[\d.]+" \d{3} \d+ "[^"]*" "[^"]*"')


@pytest.mark.parametrize("make", [access_log, shop, clicks])
def test_equal_seeds_give_equal_records(make):
    settings = GeneratorSettings(seed=3, count=200, start_ms=START)
    other = GeneratorSettings(seed=4, count=200, start_ms=START)
    assert list(make(settings)) == list(make(settings))
    assert list(make(settings)) != list(make(other))


@pytest.mark.parametrize("make", [access_log, shop, clicks])
def test_disorder_has_its_bound(make):
    times = [
        r.timestamp_ms for r in make(GeneratorSettings(seed=1, count=2000, start_ms=START, rate=200, disorder_ms=3000))
    ]
    lateness = [high - now for high, now in zip(itertools.accumulate(times, max), times, strict=True)]
    assert 0 < max(lateness) <= 3000


def test_access_log_rate_and_format():
    records = list(access_log(GeneratorSettings(seed=2, count=5000, rate=100, start_ms=START)))
    bad = [r for r in records if not COMBINED.fullmatch(r.value)]
    assert 0 < len(bad) < 40
    seconds = (records[-1].timestamp_ms - START) / 1000
    assert 45 < seconds < 55


def test_shop_orders_refer_to_what_is_there():
    records = list(shop(GeneratorSettings(seed=1, count=500, start_ms=START), users=20, items=10))
    users = {r.key for r in records if r.topic == "users"}
    items = {r.key for r in records if r.topic == "items"}
    orders = [json.loads(r.value) for r in records if r.topic == "orders"]
    assert len(records) == 530
    assert all(o["user"] in users and o["item"] in items for o in orders)


def test_clicks_are_in_order_and_make_visits():
    records = list(clicks(GeneratorSettings(seed=1, count=2000, start_ms=START)))
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in itertools.pairwise(records))
    assert len({json.loads(r.value)["visit"] for r in records}) < 800


def test_paced_keeps_the_rate():
    now = [0.0]
    endless = (Generated("t", None, str(n), n) for n in itertools.count())
    groups = paced(
        endless, 1000, stopped=lambda: now[0] >= 2, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)
    )
    assert sum(map(len, groups)) == pytest.approx(2000, rel=0.05)


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"count": -1}, {"disorder_ms": -5}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError):
        GeneratorSettings(**wrong)
