from __future__ import annotations

import os

import pytest

from penstock.engines.micro_batches.planned_batch import inputs_checksum
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.spark_log import (
    committed_batches,
    drop_damaged,
    newest_planned,
    noted_inputs,
    planned_batches,
    sync_offsets,
)
from penstock.log.base import TopicPartition
from penstock.state.checkpoint import write_document

A, B, TABLE = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("names", 0)


def test_the_newest_note_is_synced_with_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "offsets"
    folder.mkdir()
    for name in ("9", "10", ".10.crc", "tmp"):
        (folder / name).write_text("x")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    assert sync_offsets(str(tmp_path)) == 10
    assert synced == [(folder / "10").stat().st_ino, folder.stat().st_ino]


def test_without_a_note_there_is_nothing_to_sync(tmp_path):
    assert sync_offsets(str(tmp_path / "missing")) is None
    assert sync_offsets("memory://query") is None


def test_only_empty_notes_at_the_end_are_removed(tmp_path):
    for folder, contents in (("offsets", ["", "v1", b"\0" * 512, ""]), ("commits", ["v1", "v1"])):
        (tmp_path / folder).mkdir()
        for number, text in enumerate(contents):
            (tmp_path / folder / str(number)).write_bytes(text if isinstance(text, bytes) else text.encode())
    removed = drop_damaged(str(tmp_path))
    assert removed == [str(tmp_path / "offsets" / "3"), str(tmp_path / "offsets" / "2")]
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == ["0", "1"]
    assert drop_damaged(str(tmp_path / "missing")) == []


@pytest.mark.parametrize("left", [b"", b"\0" * 45])
def test_an_empty_id_of_the_query_is_removed_with_its_checksum(tmp_path, left):
    for name in ("metadata", ".metadata.crc"):
        (tmp_path / name).write_bytes(left)
    assert drop_damaged(str(tmp_path)) == [str(tmp_path / "metadata")]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "metadata").write_text('{"id":"1"}')
    assert drop_damaged(str(tmp_path)) == []


def test_the_query_s_id_is_synced_with_the_first_note(tmp_path, monkeypatch):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("x")
    (tmp_path / "metadata").write_text("x")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    sync_offsets(str(tmp_path))
    places = [path.stat().st_ino for path in (tmp_path / "metadata", tmp_path)]
    assert [each for each in synced if each in places] == places


def test_what_is_noted_goes_by_the_sources_alone(tmp_path):
    (tmp_path / "offsets").mkdir()
    for number, (time, end) in enumerate([("1", "7"), ("2", "7"), ("1", "8")]):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs":{time}}}\n{{"a":{end}}}')
    first, second, third = (noted_inputs(str(tmp_path), number) for number in range(3))
    assert first == second != third
    assert noted_inputs(str(tmp_path), 3) == ""


def test_the_inputs_of_a_batch():
    before = SourceOffset({A: 3, B: 5, TABLE: 1}, ids={"in": "x"})
    end = SourceOffset({A: 9, B: 5, TABLE: 4}, tick=1, ids={"in": "x"})
    found = inputs_checksum(before, end, ["names"])
    alike = [
        SourceOffset({A: 9, B: 5, TABLE: 7}, tick=2, ids={"in": "x"}),
        SourceOffset({A: 9, B: 5, TABLE: 4}, lost={A: 1}, ids={"in": "x", "other": "y"}),
    ]
    others = [
        SourceOffset({A: 10, B: 5}, ids={"in": "x"}),
        SourceOffset({A: 9, B: 6}, ids={"in": "x"}),
        SourceOffset({A: 9, B: 5}, starts={A: 4}, ids={"in": "x"}),
        SourceOffset({A: 9, B: 5}, ids={"in": "z"}),
    ]
    assert {inputs_checksum(before, each, ["names"]) for each in alike} == {found}
    assert found not in {inputs_checksum(before, each, ["names"]) for each in others}


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_numbers_of_batches_are_read_in_order(tmp_path, is_remote):
    checkpoint = f"memory://{tmp_path.name}/{is_remote}" if is_remote else str(tmp_path)
    query = f"{checkpoint}/spark"
    assert (planned_batches(query), committed_batches(checkpoint), newest_planned(query)) == ([], [], None)
    for number in (10, 9, 2):
        write_document(query, f"offsets/{number}", "v1")
    write_document(query, "offsets/.10.crc", "sum")
    write_document(query, "offsets/11.tmp", "half")
    write_document(checkpoint, "spark/commits/9", "v1")
    assert planned_batches(query) == [2, 9, 10]
    assert committed_batches(checkpoint) == [9]
    assert newest_planned(query) == 10
