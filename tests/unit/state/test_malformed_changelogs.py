"""Records of others in a changelog: a store that cannot be restored of them says so, and nothing is made of stray bytes."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

from penstock import Serdes
from penstock.errors import StateError
from penstock.state.changelog.changelog_restore import StoreRestorer
from penstock.state.changelog.formats import TaskNumbers
from penstock.topology.stores import StoreSpec

KINDS = {
    "key_value": {},
    "timestamped": {},
    "lru": {"max_entries": 5},
    "window": {"window_size_ms": 10, "retention_ms": 100, "timestamped": True},
    "session": {"retention_ms": 100},
    "versioned": {"history_ms": 100},
    "buffer": {},
    "record_buffer": {},
    "outer_join": {},
}


def restorer(kind: str) -> StoreRestorer:
    return StoreRestorer(StoreSpec("s", kind, Serdes.bytes(), Serdes.bytes(), **KINDS[kind]))  # type: ignore[arg-type]


def records(keys: list[bytes], values: list[bytes]) -> pa.RecordBatch:
    columns = {"timestamp": pa.array([5] * len(keys), pa.int64())}
    columns |= {name: pa.array(rows, pa.large_binary()) for name, rows in (("key", keys), ("value", values))}
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("kind", KINDS)
def test_any_bytes_end_in_rows_or_in_a_clear_error(kind: str) -> None:
    dice = random.Random(kind)
    extreme = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\0\0\0\0", b"\1", b"\xff\xff\xff\xfe")
    outcome = set()
    for _ in range(150):
        rows = [
            b"".join(dice.choices(extreme, k=dice.randrange(14))) + dice.randbytes(dice.randrange(9)) for _ in range(6)
        ]
        made = restorer(kind)
        made.add(records(rows[:3], rows[3:]))
        try:
            made.rows({"stream_time": 50}).validate(full=True)
            outcome.add("rows")
        except StateError as error:
            outcome.add("refused")
            assert "the changelog of store 's'" in error.message  # noqa: PT017 - either is right
    assert outcome <= {"rows", "refused"}
    assert outcome == {"rows"} or kind not in ("key_value", "timestamped", "lru", "versioned")


@pytest.mark.parametrize(("kind", "key"), [("window", b"short"), ("session", b"k" * 15), ("outer_join", b"")])
def test_keys_that_are_too_short_are_refused(kind: str, key: bytes) -> None:
    made = restorer(kind)
    made.add(records([key, b"k" * 40], [b"", b"v"]))
    with pytest.raises(StateError, match="the changelog of store 's' has a record that such a store does not write"):
        made.rows({"stream_time": 50})


def test_a_number_of_headers_is_no_promise() -> None:
    made = restorer("record_buffer")
    value = struct.pack(">qqiii", 1, 1, 0, 0, 0x7FFFFFFF)
    made.add(records([b"\0" * 20], [value]))
    with pytest.raises(StateError, match="headers that are cut short"):
        made.rows({})


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"batch":1,"checksum":"a","meta":5}', b"\xff", b"[" * 100_000])
def test_numbers_that_are_none(value: bytes) -> None:
    with pytest.raises(StateError, match="that Penstock did not write"):
        TaskNumbers.parse(value)
