"""Sinks to lakehouses against a model: appends, upserts, tombstones, new columns, crashes and restarts in random order."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakehouses import KINDS, Lakehouse
from penstock.connect.testing import ConnectTestDriver, Step

KEYS = st.sampled_from("abcd")
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-5, 5)},
    optional={
        "text": st.none() | st.text(max_size=3),
        "price": st.integers(-9, 9).map(lambda quarters: quarters / 4),
        "deep": st.fixed_dictionaries({"x": st.integers(0, 3)}, optional={"y": st.text("yz", max_size=2)}),
        "many": st.lists(st.integers(0, 9), min_size=1, max_size=3),
    },
)
BATCHES = st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=6)
ENDS = st.sampled_from([None, None, Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED, "restart"])
SCHEDULES = st.lists(st.tuples(BATCHES, ENDS), min_size=1, max_size=6)


def plain(value):
    """A value without its nulls: a column that came later is null in earlier rows, and so is a field of a struct."""
    if isinstance(value, dict):
        return {name: plain(value[name]) for name in sorted(value) if value[name] is not None}
    return value


def written(row):
    return repr(plain(row))


def follow(folder, kind, mode, size, schedule):
    table = Lakehouse(kind, folder) / "t"
    config = {"topics": "hits", "flush.size": size, "flush.interval.ms": 600_000, **table.config}
    if mode == "upsert":
        config |= {"insert.mode": "upsert", "pk.fields": "id"}
    driver = ConnectTestDriver(table.lake.connector, config)
    rows, appended = {}, []
    for batch, end in schedule:
        for key, value in batch:
            driver.produce("hits", value, key=key)
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = {"id": key, **value}
                appended.append(value)
        driver.put(crash=end if isinstance(end, Step) else None)
        if end == "restart":
            driver.restart()
    driver.put_all()
    driver.restart()
    found = table.rows() if table.exists else []
    assert Counter(map(written, found)) == Counter(map(written, rows.values() if mode == "upsert" else appended))


SETTINGS = {
    "phases": [Phase.explicit, Phase.generate],
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
GIVEN = {"mode": st.sampled_from(["insert", "upsert"]), "size": st.integers(1, 6), "schedule": SCHEDULES}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, **SETTINGS)
@given(**GIVEN)
def test_tables_are_those_of_the_model(tmp_path_factory, kind, mode, size, schedule):
    follow(tmp_path_factory.mktemp("lake"), kind, mode, size, schedule)


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, **SETTINGS)
@given(**GIVEN)
def test_tables_are_those_of_the_model_in_many_schedules(tmp_path_factory, kind, mode, size, schedule):
    follow(tmp_path_factory.mktemp("lake"), kind, mode, size, schedule)
