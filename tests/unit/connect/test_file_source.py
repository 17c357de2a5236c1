from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest

from eventually import eventually
from penstock.connect.connectors.file_stream import FileStreamSourceConnector
from penstock.connect.delivery.source_writer import StoredOffsets
from penstock.connect.file_source import FileSource
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import LogError
from penstock.log.open import open_log

OFFSETS = "connect-offsets"


@pytest.fixture
def log():
    with open_log("memory://") as log:
        yield log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "access.log"


@pytest.fixture
def source_of(log, path):
    made = []

    def make(**options):
        made.append(FileSource(log, path, "lines", **options))
        return made[-1]

    yield make
    for source in made:
        source.close()


def values(log, topic="lines"):
    out = []
    for partition in range(log.partitions(topic)):
        end = log.end_offset(topic, partition)
        for batch in log.read_range(topic, partition, 0, end):
            out += batch.column("value").to_pylist()
    return out


def test_goes_on_where_it_stopped(source_of, log, path):
    path.write_bytes(b"a\nb\n")
    assert source_of().run_once() == 2
    with path.open("ab") as file:
        file.write(b"c\nd")
    source = source_of()
    assert source.poll() == 1
    assert source.poll() == 0, "d is not whole"
    with path.open("ab") as file:
        file.write(b"dd\r\n")
    assert source.poll() == 1
    assert values(log) == [b"a", b"b", b"c", b"ddd"]
    assert source.status().total_lines == 4
    assert source.status().lines == 2
    assert source.status().behind_bytes == 0


def test_lines_go_round_the_partitions_across_runs(source_of, log, path):
    path.write_text("".join(f"{n}\n" for n in range(5)))
    source_of(partitions=3).run_once()
    with path.open("a") as file:
        file.write("5\n6\n")
    source_of().run_once()
    assert values(log) == [b"0", b"3", b"6", b"1", b"4", b"2", b"5"]


def test_position_and_lines_are_one_transaction(source_of, log, path, monkeypatch):
    path.write_text("a\nb\n")
    source = source_of()
    monkeypatch.setattr("penstock.connect.file_source.StoredOffsets.write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        source.poll()
    assert values(log) == []
    assert log.end_offset(OFFSETS, 0) == 0


def test_positions_are_source_offsets_as_kafka_connect_writes_them(source_of, log, path):
    path.write_text("a\nb\n")
    source_of(name="logs").run_once()
    stored = [
        (json.loads(row["key"]), json.loads(row["value"]))
        for batch in log.read_range(OFFSETS, 0, 0, log.end_offset(OFFSETS, 0))
        for row in batch.to_pylist()
    ]
    assert [key for key, _ in stored] == [["logs", {"filename": str(path)}]]
    assert stored[0][1]["position"] == 4
    assert StoredOffsets(log, "logs").offset({"filename": str(path)}) == stored[0][1]


def test_goes_on_from_a_position_in_a_topic_of_many_partitions(source_of, log, path):
    log.create_topic(OFFSETS, 25, {"cleanup.policy": "compact"})
    path.write_text("a\nb\n")
    source_of().run_once()
    assert source_of().run_once() == 0


def test_goes_on_from_a_position_of_an_earlier_version_and_replaces_it(source_of, log, path):
    path.write_text("a\nb\nc\n")
    log.create_topic(OFFSETS, 1, {"cleanup.policy": "compact"})
    columns = {"timestamp": pa.array([1, 1, 1])}
    for name, texts in (
        ("key", [b"logs", b"other", b"logs"]),
        ("value", [b'{"offset_bytes": 2, "lines": 1}', b'{"offset_bytes": 0}', b'{"offset_bytes": 4, "lines": 2}']),
    ):
        columns[name] = pa.array(texts, pa.large_binary())
    log.append(OFFSETS, 0, pa.RecordBatch.from_pydict(columns))
    source = source_of(name="logs")
    assert source.run_once() == 1
    assert values(log) == [b"c"]
    assert source.status().total_lines == 3
    newest = {}
    for batch in log.read_range(OFFSETS, 0, 0, log.end_offset(OFFSETS, 0)):
        newest |= {row["key"]: row["value"] for row in batch.to_pylist()}
    assert newest[b"logs"] is None
    assert newest[b"other"] == b'{"offset_bytes": 0}'
    assert source_of(name="logs").run_once() == 0


def test_rotation_reads_the_old_file_to_its_end(source_of, log, path, tmp_path):
    path.write_text("a\nb\n")
    source = source_of()
    source.poll()
    with path.open("a") as old:
        path.rename(tmp_path / "access.log.1")
        path.write_text("d\n")
        old.write("c\n")
    while source.poll():
        pass
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_rotation_while_stopped(source_of, log, path, tmp_path):
    path.write_text("a\nb\n")
    source = source_of()
    source.poll()
    source.close()
    with path.open("a") as old:
        old.write("c\n")
    path.rename(tmp_path / "access.log.1")
    path.write_text("d\n")
    source = source_of()
    while source.poll():
        pass
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_truncation_starts_anew(source_of, log, path):
    path.write_text("aaaa\nb\n")
    notes = []
    source = source_of(on_note=notes.append)
    source.poll()
    path.write_text("c\n")
    source.poll()
    assert values(log) == [b"aaaa", b"b", b"c"]
    assert "truncated" in notes[0]


def test_bytes_that_do_not_decode_are_kept(source_of, log, path):
    path.write_bytes(b"\xff\xfe\n\n")
    source_of().run_once()
    assert values(log) == [b"\xff\xfe", b""]


def test_a_missing_file_is_an_error_once_and_awaited_when_following(source_of, log, path):
    notes = []
    source = source_of(on_note=notes.append)
    with pytest.raises(LogError, match="there is no file"):
        source.run_once()
    thread = threading.Thread(target=source.follow, kwargs={"interval_s": 0.01})
    thread.start()
    eventually(lambda: notes)
    path.write_text("late\n")
    eventually(lambda: values(log))
    source.stop()
    thread.join()
    assert values(log) == [b"late"]
    assert "waiting" in notes[0]


def test_a_line_longer_than_a_piece(source_of, log, path):
    path.write_bytes(b"x" * 5_000_000 + b"\nshort\n")
    source_of().run_once()
    assert [len(v) for v in values(log)] == [5_000_000, 5]


def test_a_folder_is_refused(log, tmp_path):
    with pytest.raises(LogError, match="folder"):
        FileSource(log, tmp_path, "lines")


def test_goes_on_from_a_position_with_the_inode_and_the_first_bytes_of_the_file(source_of, log, path, tmp_path):
    path.write_bytes(b"\xc3\xbc\xff\nb\n")
    with log.transaction("earlier") as transaction:
        facts = {"position": 4, "inode": path.stat().st_ino, "lines": 1, "head": b"\xc3\xbc\xff\n".hex()}
        StoredOffsets(log, "logs").write(transaction, [({"filename": str(path)}, facts)])
    path.rename(tmp_path / "access.log.1")
    path.write_text("c\n")
    source = source_of(name="logs")
    assert source.run_once() == 2
    assert values(log) == [b"b", b"c"]
    assert source.status().total_lines == 3
    assert source_of(name="logs").run_once() == 0
    assert StoredOffsets(log, "logs").offset({"filename": str(path)}) == {"position": 2}


def test_a_position_of_a_file_that_is_gone_is_none(source_of, log, path):
    path.write_bytes(b"a\n")
    with log.transaction("earlier") as transaction:
        facts = {"position": 2, "inode": 1, "lines": 1, "head": b"a\n".hex()}
        StoredOffsets(log, "logs").write(transaction, [({"filename": str(path)}, facts)])
    assert source_of(name="logs").run_once() == 1


def test_the_connector_goes_on_where_the_command_has_stopped(source_of, log, path):
    path.write_bytes("ü😀\nb\n".encode())
    source_of(name="test").run_once()
    with path.open("a") as file:
        file.write("c\n")
    settings = {"file": str(path), "topic": "lines"}
    driver = ConnectTestDriver(FileStreamSourceConnector, settings, log=log)
    driver.poll()
    driver.stop()
    assert values(log)[2:] == [b'"c"']
    with path.open("a") as file:
        file.write("d\n")
    assert source_of(name="test").run_once() == 1
