"""Where partitions that are new begin: by their time, all of them are asked for at once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.engines.offsets import start_positions
from penstock.engines.offsets.start_positions import ReadSettings, added_positions, first_positions
from penstock.log.base import OffsetAndTime, TopicPartition

PLACES = [TopicPartition("t", number) for number in range(4)]
BOUNDS = dict.fromkeys(PLACES, (2, 10))


class Times:
    """Answers from a table, and counts the questions."""

    def __init__(self, found: Mapping[TopicPartition, OffsetAndTime | None]) -> None:
        self.found = found
        self.asked: list[dict[TopicPartition, int]] = []

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        self.asked.append(dict(times))
        return {place: self.found.get(place) for place in times}


def test_a_start_time_is_one_question() -> None:
    times = Times({PLACES[1]: OffsetAndTime(4, 700), PLACES[2]: OffsetAndTime(5, 600)})
    found = first_positions(ReadSettings(start_ms=500), PLACES, BOUNDS, {PLACES[0]: 7}, times)
    assert found == {PLACES[0]: 7, PLACES[1]: 4, PLACES[2]: 5, PLACES[3]: 10}
    assert times.asked == [dict.fromkeys(PLACES[1:], 500)]


def test_policies_go_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_positions, "unix_ms", lambda: 1000)
    times, other = Times({PLACES[0]: OffsetAndTime(6, 950)}), TopicPartition("u", 0)
    reading = ReadSettings(offset_reset={"t": "by_duration:100"})
    found = first_positions(reading, [*PLACES[:2], other], {**BOUNDS, other: (1, 3)}, {}, times)
    assert found == {PLACES[0]: 6, PLACES[1]: 10, other: 1}
    assert times.asked == [dict.fromkeys(PLACES[:2], 900)]


def test_where_no_time_counts_nobody_is_asked() -> None:
    times = Times({})
    assert first_positions(ReadSettings(), PLACES, BOUNDS, {}, times) == dict.fromkeys(PLACES, 2)
    assert times.asked == []


def test_added_partitions_are_read_from_their_beginning_or_where_the_group_is() -> None:
    committed = {PLACES[1]: 7, PLACES[2]: 1, PLACES[3]: 11}  # the last two are no longer there
    found = added_positions(PLACES, BOUNDS, committed)
    assert found == {PLACES[0]: 2, PLACES[1]: 7, PLACES[2]: 2, PLACES[3]: 2}
