"""Steps that are taken back leave no trace in the maps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.state.changelog.formats import CurrentRecord, NotingOverlay
from penstock.state.maps import Journal, MemoryMap, Overlay

BASE = [(bytes([key]), b"base") for key in range(0, 12, 2)]
KEYS = st.integers(0, 11).map(lambda key: bytes([key]))
VALUES = st.sampled_from([b"x", b"y", None])
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("put_many"), st.lists(st.tuples(KEYS, VALUES), max_size=5)),
        st.tuples(st.just("expire"), KEYS),
        st.tuples(st.just("scan")),
    ),
    max_size=8,
)


def noting():
    current = CurrentRecord()
    current.note = (7, ())
    return NotingOverlay(MemoryMap(BASE), current)


MAPS = {"memory": lambda: MemoryMap(BASE), "overlay": lambda: Overlay(MemoryMap(BASE)), "noting": noting}


def write(entries, steps):
    for name, *arguments in steps:
        match name:
            case "put":
                entries.put(*arguments)
                if hasattr(entries, "puts"):
                    entries.puts.append((*arguments, 0))
            case "put_many":
                entries.put_many([key for key, _ in arguments[0]], [value for _, value in arguments[0]])
            case "expire":
                entries.expire(*arguments)
            case "scan":
                list(entries.scan())


def seen(entries):
    told = SimpleNamespace(rows=list(entries.scan()), backwards=list(entries.scan(reverse=True)), length=len(entries))
    for name in ("changes", "puts", "written", "is_touched"):
        if hasattr(entries, name):
            setattr(told, name, str(getattr(entries, name)))
    return told


@pytest.mark.parametrize("kind", MAPS)
@given(before=WRITES, taken_back=WRITES, after=WRITES)
@settings(max_examples=examples(60), deadline=None)
def test_a_step_that_is_taken_back_leaves_no_trace(kind, before, taken_back, after):
    entries, other, journal = MAPS[kind](), MAPS[kind](), Journal()
    for one in (entries, other):
        write(one, before)
    journal.begin([entries])
    write(entries, taken_back)
    journal.take_back()
    assert seen(entries).rows == seen(other).rows
    for one in (entries, other):
        write(one, after)
        if isinstance(one, Overlay):
            one.delete_expired()
    actual, expected = seen(entries), seen(other)
    assert (actual.rows, actual.backwards, actual.length) == (expected.rows, expected.backwards, expected.length)
    if isinstance(entries, Overlay):
        assert (entries.changes, entries.puts) == (other.changes, other.puts)
        assert getattr(entries, "written", {}) == getattr(other, "written", {})
    else:
        assert entries.is_touched == other.is_touched


@pytest.mark.parametrize("kind", MAPS)
def test_a_step_that_ends_stays_and_notes_nothing_more(kind):
    entries, journal = MAPS[kind](), Journal()
    journal.begin([entries])
    entries.put(b"\x01", b"x")
    journal.end()
    entries.put(b"\x03", b"y")
    journal.take_back()
    assert dict(entries.scan()) == {**dict(BASE), b"\x01": b"x", b"\x03": b"y"}
    assert entries.journal is None


def test_other_things_are_undone_in_turn():
    told, journal = [], Journal()
    journal.begin([])
    journal.on_take_back(lambda: told.append("first"))
    journal.on_take_back(lambda: told.append("second"))
    journal.take_back()
    journal.take_back()
    assert told == ["second", "first"]
