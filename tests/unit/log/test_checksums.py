"""A changed bit in the file of an embedded log is noticed where it is read."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import LogError
from penstock.log.open import open_log

ROWS = 300


def written(path: Path) -> str:
    """A log with two rows of records; gives its URL."""
    url = f"sqlite:///{path}"
    with open_log(url) as log:
        log.create_topic("orders", 2)
        for start in (0, ROWS):
            rows = range(start, start + ROWS)
            columns = {"key": [b"k%d" % i for i in rows], "value": [b"value %d" % (i * 7) for i in rows]}
            log.append("orders", 1, pa.RecordBatch.from_pydict({**columns, "timestamp": list(rows)}))
    return url


def values(url: str) -> list[bytes]:
    with open_log(url) as log:
        found: list[bytes] = log.read("orders", 1, 0, 10_000).records.column("value").to_pylist()
        return found


def change(path: Path, statement: str, *arguments: object) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, arguments)
    connection.commit()
    connection.close()


def payload(path: Path) -> tuple[int, bytes]:
    """Id and payload of the second row."""
    connection = sqlite3.connect(path)
    row: tuple[int, bytes] = connection.execute("SELECT id, payload FROM batches ORDER BY id DESC LIMIT 1").fetchone()
    connection.close()
    return row


def test_every_changed_bit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    url = written(path)
    number, data = payload(path)
    dice = random.Random(5)
    for _ in range(80):
        at = dice.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << dice.randrange(8)
        change(path, "UPDATE batches SET payload = ? WHERE id = ?", bytes(changed), number)
        with pytest.raises(LogError, match=r"orders-1: the records from offset 300 to 599 are damaged") as caught:
            values(url)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 1, 300)
    change(path, "UPDATE batches SET payload = ? WHERE id = ?", data, number)
    assert len(values(url)) == 2 * ROWS


@pytest.mark.parametrize("column", ["count", "flags", "raw_bytes", "last_offset"])
def test_numbers_are_part_of_the_checksum(tmp_path: Path, column: str) -> None:
    path = tmp_path / "log.db"
    url = written(path)
    change(path, f"UPDATE batches SET {column} = {column} + 1 WHERE id = ?", payload(path)[0])
    with pytest.raises(LogError, match="its checksum is wrong"):
        values(url)


def test_rows_of_earlier_versions_are_read_and_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    url = written(path)
    change(path, "ALTER TABLE batches DROP COLUMN checksum")
    before = values(url)
    assert len(before) == 2 * ROWS
    number, data = payload(path)
    dice = random.Random(6)
    for _ in range(200):  # nothing but an error of the log, or what the bytes say
        at = dice.randrange(len(data))
        changed = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        change(path, "UPDATE batches SET payload = ? WHERE id = ?", changed, number)
        try:
            assert len(values(url)) == 2 * ROWS
        except LogError as error:
            assert "orders-1" in error.message  # noqa: PT017 - either is right
    change(path, "UPDATE batches SET raw_bytes = 1 << 50 WHERE id = ?", number)
    with pytest.raises(LogError, match="cannot be"):
        values(url)


def test_what_compaction_writes_has_a_checksum_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(url) as log:
        log.create_topic("orders", 1, {"cleanup.policy": "compact"})
        for _ in range(3):
            log.append("orders", 0, pa.RecordBatch.from_pydict({"key": [b"a", b"b"], "value": [b"1", b"2"]}))
        log.compact("orders", 0)
        assert log.read("orders", 0, 0, 10).records.num_rows == 2
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute("SELECT count(*), count(checksum) FROM batches").fetchone() == (1, 1)
    connection.close()
