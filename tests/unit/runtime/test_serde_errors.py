"""Stores whose types nobody has named take the defaults' serdes, and say so when a value does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Consumed, Materialized, SessionWindows, StreamsBuilder, TimeWindows, TopologyTestDriver
from penstock.errors import SerializationError
from penstock.serde import BaseSerde

TEXTS = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
NUMBERS = Consumed(key_serde="string", value_serde="long")


def summed(stream: Any, kept: Materialized) -> None:
    """A column of sums: ``reduce`` would take over the serde of the values."""
    stream.group_by_key().aggregate(int, lambda key, value, total: total + value, kept)


@pytest.mark.parametrize("batch_size", [1, 20])
def test_a_value_that_the_default_does_not_write_names_operator_store_and_way_out(batch_size: int) -> None:
    builder = StreamsBuilder()
    summed(builder.stream("in", NUMBERS), Materialized("sums"))
    with TopologyTestDriver(builder.build(), TEXTS, batch_size=batch_size) as driver:
        topic = driver.input_topic("in", "string", "long")
        wanted = r"KSTREAM-AGGREGATE-\d+ \(store 'sums'\): .*string serde writes"
        with pytest.raises(SerializationError, match=wanted) as e:
            topic.pipe_many([(f"k{number}", number) for number in range(20)])
        assert "default.value.serde" in e.value.hint
        assert "penstock.untyped.stores=auto" in e.value.hint
        assert e.value.facts["stores"] == ["sums"]


def test_a_named_serde_that_does_not_fit_is_not_blamed_on_the_default() -> None:
    builder = StreamsBuilder()
    summed(builder.stream("in", NUMBERS), Materialized("sums", value_serde="string"))
    with TopologyTestDriver(builder.build(), TEXTS) as driver:
        with pytest.raises(SerializationError, match="'sums'") as e:
            driver.input_topic("in", "string", "long").pipe(1, key="k")
        assert "default" not in e.value.hint


def test_counts_are_longs_whatever_the_default() -> None:
    builder = StreamsBuilder()
    builder.stream("in", NUMBERS).map_values(str).group_by_key().count(Materialized("counts"))
    with TopologyTestDriver(builder.build(), TEXTS) as driver:
        driver.input_topic("in", "string", "long").pipe(1, key="k")
        assert driver.get_state_store("counts").get("k").value == 1


@pytest.mark.parametrize(
    "settings", [{**TEXTS, "penstock.untyped.stores": "auto"}, {"default.key.serde": "string"}], ids=["asked", "none"]
)
def test_auto_takes_all_types_when_it_is_asked_for_or_there_is_no_default(settings: dict[str, Any]) -> None:
    builder = StreamsBuilder()
    summed(builder.stream("in", NUMBERS), Materialized("sums"))
    with TopologyTestDriver(builder.build(), settings) as driver:
        driver.input_topic("in", "string", "long").pipe(7, key="k")
        assert driver.get_state_store("sums").get("k").value == 7


class Mutable(BaseSerde):
    """A user's serde whose bytes are no ``bytes``, which columns of bytes take as they are."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def serialize(self, value: str | None) -> Any:
        return None if value is None else self.kind(value)

    def deserialize(self, data: bytes | None) -> str | None:
        return None if data is None else data.decode()


@pytest.mark.parametrize("kind", [str, lambda text: bytearray(text, "ascii")], ids=["text", "bytearray"])
@pytest.mark.parametrize("windows", [None, TimeWindows.of("5s"), SessionWindows.of("5s")], ids=["", "time", "session"])
@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_what_a_users_serde_returns_in_place_of_bytes_is_stored_as_bytes(
    kind: Any, windows: Any, cache_bytes: int
) -> None:
    serde = Mutable(kind)
    builder, seen = StreamsBuilder(), []
    grouped: Any = builder.stream("in", Consumed(key_serde="string", value_serde="string")).group_by_key()
    grouped = grouped if windows is None else grouped.windowed_by(windows)
    kept = Materialized("kept", key_serde=serde, value_serde=serde)
    merger = (lambda _key, one, two: one + two,) if isinstance(windows, SessionWindows) else ()
    counted = grouped.aggregate(str, lambda _key, value, text: text + value, *merger, kept)
    counted.to_stream().foreach(lambda _key, text: seen.append(text))
    with TopologyTestDriver(builder.build(), {**TEXTS, "statestore.cache.max.bytes": cache_bytes}) as driver:
        for value in "xyz":
            driver.input_topic("in", "string", "string").pipe(value, key="k", timestamp=1)
        rows = list(driver.get_state_store("kept")._map.scan())
    assert [text for text in seen if text is not None] == ["x", "xy", "xyz"]
    assert [tuple(map(type, row)) for row in rows] == [(bytes, bytes)]
