"""Few records of a changelog become the rows that many become: there are two ways, for lists and for columns."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from penstock import Serdes
from penstock.log.base import RECORD_SCHEMA
from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.changelog import changelog_format
from penstock.state.changelog import changelog_restore as following
from penstock.state.changelog.changelog_restore import StoreFollower
from penstock.state.changelog.formats import changes_of
from penstock.state.maps import MemoryMap
from penstock.state.views.change_buffer import BufferedChange
from penstock.topology.stores import StoreSpec

Record = dict[str, Any]
KEYS = [b"", b"a", b"a\0", b"b", b"\xff" * 9]
META = {"stream_time": 300, "s/observed-stream-time": 300}
KINDS: dict[str, dict[str, Any]] = {
    "key_value": {},
    "timestamped": {"keeps_headers": True},
    "lru": {"max_entries": 3},
    "window": {"window_size_ms": 10, "retention_ms": 100, "timestamped": True, "retain_duplicates": True},
    "session": {"retention_ms": 100},
    "versioned": {"history_ms": 100},
    "buffer": {},
    "outer_join": {},
}


def number(value: int, width: int = 8) -> bytes:
    return value.to_bytes(width, "big", signed=True)


def bytes_of(dice: random.Random, kind: str) -> tuple[bytes, bytes]:
    """The key and the value of a record as such a store writes it."""
    key, value, time = dice.choice(KEYS), dice.randbytes(dice.randrange(4)), dice.randrange(400)
    match kind:
        case "window":
            return key + number(time) + number(dice.randrange(2), 4), value
        case "session":
            return key + number(time + dice.randrange(30)) + number(time), value
        case "outer_join":
            side = bytes([dice.randrange(2)])
            return number(time) + side + key, b"\1" + number(1, 4) + number(len(value) + 1, 4) + side + value
        case "buffer":
            return key, buffered(time // 100 * 100)
    return key, value


@cache
def buffered(time: int) -> bytes:
    """A change that waits, as the changelog has it."""
    change = BufferedChange(time, time + 5, b"t", 0, time, (("h", None),), None, None, number(time))
    rows = changes_of(bytes_column([b"k"]), bytes_column([change.pack()]))
    (record,) = changelog_format(spec("buffer")).records(rows, META).to_pylist()
    data: bytes = record["value"]
    return data


def spec(kind: str) -> StoreSpec:
    return StoreSpec("s", kind, Serdes.bytes(), Serdes.bytes(), **KINDS[kind])  # type: ignore[arg-type]


def records(dice: random.Random, kind: str, count: int) -> list[Record]:
    """Records with deletions, several of a key, equal ones, and some without a key, as other programs write them."""
    found: list[Record] = []
    for offset in range(count):
        key, value = bytes_of(dice, kind)
        headers = [{"key": "h", "value": dice.choice([None, b"1"])}] if dice.random() < 0.3 else None
        record = {
            "offset": offset, "timestamp": dice.randrange(-1, 400), "key": None if dice.random() < 0.1 else key,
            "value": None if dice.random() < 0.3 else value, "headers": headers,
        }  # fmt: skip
        found.append({**dice.choice(found), "offset": offset} if found and dice.random() < 0.2 else record)
    return found


def restored(kind: str, pieces: list[list[Record]]) -> tuple[Any, ...]:
    follower, held, counts, written = StoreFollower(spec(kind), {}, META), MemoryMap(), [], []
    for piece in pieces:
        batches = [pa.RecordBatch.from_pylist(part, RECORD_SCHEMA) for part in (piece[:0], piece[:3], piece[3:])]
        changes, count = follower.changes(batches, held)
        for each in changes:
            keys, values = to_bytes_list(each.column(0)), to_bytes_list(each.column(1))
            assert keys == sorted(keys)  # type: ignore[type-var]
            written.append((len(held) > 0, dict(zip(keys, values, strict=True))))
            held.put_many(keys, values)  # type: ignore[arg-type]
        counts.append(count)
    return dict(held.scan()), counts, dict(follower.numbers), [each for each in written if each[1]]


@pytest.mark.parametrize("kind", KINDS)
def test_lists_and_columns_become_the_same_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(kind)
    for _ in range(12):
        pieces = [records(dice, kind, dice.choice([1, 2, 20, 64, 65])) for _ in range(3)]
        by_list = restored(kind, pieces)
        with monkeypatch.context() as patched:
            patched.setattr(following, "_FEW", -1)
            by_column = restored(kind, pieces)
        assert by_list == by_column
        assert by_list[0]
