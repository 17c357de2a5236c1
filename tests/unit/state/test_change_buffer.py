"""The buffer of a suppressed table, whose changes leave in the order of their times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.serde import Serdes
from penstock.state.maps import MemoryMap
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView
from penstock.topology.stores import StoreSpec


class CountingMap(MemoryMap):
    """Counts how often its entries are put in order."""

    __slots__ = ("scans",)

    def __init__(self) -> None:
        super().__init__()
        self.scans = 0

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self.scans += 1
        return super().scan(start, end, reverse=reverse)


@pytest.fixture
def entries() -> CountingMap:
    return CountingMap()


@pytest.fixture
def buffer(entries: CountingMap) -> ChangeBufferView:
    return ChangeBufferView(StoreSpec("held", "buffer", Serdes.string(), Serdes.string()), entries, {})


def change(time: int) -> BufferedChange:
    return BufferedChange(time, time, b"in", 0, time, (), None, None, b"new")


def test_all_that_is_due_leaves_in_order_and_the_entries_are_read_once(
    buffer: ChangeBufferView, entries: CountingMap
) -> None:
    for time in (30, 10, 20, 40):
        buffer.put(b"key-%d" % time, change(time), None)
    left = []
    for time, key in buffer.due(30):
        assert buffer.get(key) == change(time)  # it waits until the next step
        left.append((time, key))
        buffer.remove(key, change(time))
    assert left == [(10, b"key-10"), (20, b"key-20"), (30, b"key-30")]
    assert entries.scans == 1
    assert (buffer.records, buffer.first()) == (1, (40, b"key-40"))


def test_before_the_first_is_due_no_entry_is_read(buffer: ChangeBufferView, entries: CountingMap) -> None:
    buffer.put(b"key", change(50), None)
    assert list(buffer.due(49)) == []
    buffer.remove(b"key", change(50))
    buffer.put(b"other", change(90), None)  # the bound is that of the one that has gone: one look moves it
    assert list(buffer.due(60)) == list(buffer.due(60)) == []
    assert entries.scans == 1
    assert [key for _, key in buffer.due(90)] == [b"other"]


def test_who_stops_in_between_finds_the_rest_again(buffer: ChangeBufferView) -> None:
    for time in (1, 2, 3):
        buffer.put(b"%d" % time, change(time), None)
    first = next(buffer.due(3))
    buffer.remove(first[1], change(1))
    assert next(buffer.due(3)) == buffer.first() == (2, b"2")
