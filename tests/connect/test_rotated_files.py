"""Logs that are rotated while the file source runs, and while it does not: each line comes once."""

import bz2
import gzip
import hashlib
import json
import lzma
import shutil

import pyarrow as pa
import pytest

from penstock.connect.connectors.file_stream import FileStreamSourceConnector
from penstock.connect.data.stored_offsets import NotedOffset
from penstock.connect.delivery.source_writer import StoredOffsets
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from penstock.log.open import open_log


@pytest.fixture
def log():
    return open_log("memory://")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "app.log"


def source(log, file, size="2"):
    return ConnectTestDriver(
        FileStreamSourceConnector, {"file": str(file), "topic": "lines", "batch.size": size}, log=log
    )


def append(file, *lines):
    with file.open("a") as out:
        out.write("".join(f"{line}\n" for line in lines))


def beside(file, end):
    return file.with_name(file.name + end)


def polled(driver):
    for _ in range(3):
        while driver.poll():
            pass
    return [record.value for record in driver.read("lines")]


def run(log, file, polls=None):
    """What is in the topic after a source has run until there is nothing more, or for so many polls."""
    driver = source(log, file)
    for _ in range(polls or 0):
        driver.poll()
    if polls is None:
        polled(driver)
    driver.stop()
    return [record.value for record in driver.read("lines")]


def test_a_log_that_was_renamed_while_nothing_ran_is_read_to_its_end_and_then_the_new_one(log, file):
    append(file, "one", "two", "three")
    assert run(log, file, 1) == ["one", "two"]
    file.rename(beside(file, ".1"))
    append(file, "a much longer line than those before", "b", "c")
    assert run(log, file) == ["one", "two", "three", "a much longer line than those before", "b", "c"]
    append(file, "d")
    assert run(log, file)[-2:] == ["c", "d"]


def test_a_new_file_of_the_same_lengths_is_a_new_file(log, file):
    append(file, "1", "2")
    run(log, file)
    file.rename(file.with_name("old"))  # under any name
    append(file, "3", "4", "5")
    assert run(log, file) == list("12345")


def test_several_rotations_while_nothing_ran_lose_no_line(log, file):
    append(file, "1", "2", "3")
    assert run(log, file, 1) == ["1", "2"]
    for round_ in range(3):
        for number in (3, 2, 1):
            if beside(file, f".{number}").exists():
                beside(file, f".{number}").rename(beside(file, f".{number + 1}"))
        file.rename(beside(file, ".1"))
        append(file, f"{round_}a", f"{round_}b")
    packed = beside(file, ".2.gz")
    packed.write_bytes(gzip.compress(beside(file, ".2").read_bytes()))
    beside(file, ".2").unlink()
    assert run(log, file) == ["1", "2", "3", "0a", "0b", "1a", "1b", "2a", "2b"]


@pytest.mark.parametrize("step", [Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED])
def test_a_crash_in_the_middle_of_an_old_file_goes_on_there(log, file, step):
    append(file, *"abcdefg")
    assert run(log, file, 1) == ["a", "b"]
    file.rename(beside(file, ".1"))
    append(file, *"hijkl")
    driver = source(log, file)
    driver.poll()
    killed = driver.sources[0].task
    while driver.sources[0].task is killed:
        driver.poll(crash=step)
    killed.stop()  # a process of its own would be gone
    assert polled(driver) == list("abcdefghijkl")
    driver.restart()
    append(file, "m")
    assert polled(driver) == list("abcdefghijklm")
    driver.stop()


def test_a_copy_that_was_cut_is_read_on_in_the_copy_running_or_not(log, file):
    append(file, "1", "2", "3")
    assert run(log, file, 1) == ["1", "2"]
    shutil.copy(file, beside(file, ".1"))
    file.write_text("")
    append(file, "new 1", "new 2", "new 3")
    driver = source(log, file)
    assert polled(driver) == ["1", "2", "3", "new 1", "new 2", "new 3"]
    append(file, "new 4")
    shutil.copy(file, beside(file, "-20240501"))
    file.write_text("")
    append(file, "newer 1", "newer 2", "newer 3", "newer 4", "newer 5")  # longer than what was read
    assert polled(driver)[-7:] == ["new 3", "new 4", "newer 1", "newer 2", "newer 3", "newer 4", "newer 5"]
    driver.stop()


def test_a_file_that_an_editor_has_written_anew_is_gone_on_with(log, file):
    append(file, "1", "2")
    run(log, file)
    other = file.with_name(".swap")
    other.write_text("1\n2\n3\n")
    other.replace(file)
    assert run(log, file) == ["1", "2", "3"]


def test_a_file_that_was_cut_or_replaced_without_a_trace_is_read_from_its_start(log, file):
    append(file, "1", "2", "3", "4")
    run(log, file)
    file.write_text("5\n")
    assert run(log, file) == list("12345")
    file.unlink()
    append(file, *"678")
    assert run(log, file) == list("12345678")


@pytest.mark.parametrize("pattern", [".", "*", "app*"])
def test_a_folder_that_has_the_rotated_file_too_gives_each_line_once(log, file, pattern):
    where = file.parent if pattern == "." else file.parent / pattern
    append(file, "1", "2")
    driver = source(log, where)
    assert polled(driver) == ["1", "2"]
    append(file, "3")
    file.rename(beside(file, ".1"))  # while it runs
    append(file, "4")
    assert sorted(polled(driver)) == list("1234")
    driver.stop()
    append(file, "5")
    beside(file, ".1").rename(beside(file, ".2"))  # while it does not
    file.rename(beside(file, ".1"))
    append(file, "6")
    assert sorted(run(log, where)) == list("123456")
    beside(file, ".2.gz").write_bytes(gzip.compress(beside(file, ".2").read_bytes()))
    assert sorted(run(log, where)) == list("123456")  # while both are there
    beside(file, ".2").unlink()
    append(file, "7")
    assert sorted(run(log, where)) == list("1234567")


def test_a_file_that_is_packed_while_the_source_runs_gives_each_line_once(log, file):
    append(file, "1", "2")
    driver = source(log, file.parent)
    polled(driver)
    rotated = beside(file, ".1")
    file.rename(rotated)
    append(file, "3")
    append(rotated, "late")
    beside(file, ".1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    assert sorted(polled(driver)) == ["1", "2", "3", "late"]
    driver.restart()
    assert sorted(polled(driver)) == ["1", "2", "3", "late"]
    driver.stop()


def packed(name, data):
    if name.endswith(".zst"):
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, "zstd") as packer:
            packer.write(data)
        return out.getvalue().to_pybytes()
    return {"gz": gzip, "bz2": bz2, "xz": lzma}[name.rpartition(".")[2]].compress(data)


@pytest.mark.parametrize("end", ["gz", "bz2", "xz", "zst"])
def test_packed_files_are_unpacked_with_a_last_line_without_an_end(log, tmp_path, end):
    name = f"app.log.2.{end}"
    (tmp_path / name).write_bytes(packed(name, "one\r\ntwo ü😀\nlast".encode()))
    assert run(log, tmp_path / name) == ["one", "two ü😀", "last"]
    assert run(log, tmp_path / name) == ["one", "two ü😀", "last"]
    assert run(log, tmp_path) == ["one", "two ü😀", "last"]


def test_what_cannot_be_read_as_text_is_left_out_with_a_note(log, file, caplog):
    append(file, "1")
    half = packed("x.gz", b"2\n" * 1000)
    beside(file, ".2.gz").write_bytes(half[:-6])
    beside(file, ".zip").write_bytes(b"PK\3\4")
    beside(file, ".bin").write_bytes(bytes(range(256)) + bytes(1000))
    driver = source(log, file.parent, "5000")
    assert polled(driver) == ["1"]
    assert polled(driver) == ["1"]
    left = [record.getMessage() for record in caplog.records if "is left out" in record.getMessage()]
    assert len(left) == 3
    beside(file, ".2.gz").write_bytes(half)
    assert polled(driver) == ["1", *["2"] * 1000]
    driver.stop()


def test_what_comes_late_to_a_renamed_log_is_read_although_the_new_one_begins_alike(log, file):
    append(file, "#Fields: date time")
    driver = source(log, file)
    polled(driver)
    file.rename(beside(file, ".1"))
    append(file, "#Fields: date time", "1")
    assert "1" in polled(driver)
    append(beside(file, ".1"), "late")
    assert "late" in polled(driver)
    driver.stop()


@pytest.mark.parametrize("end", ["gz", "bz2", "xz", "zst"])
def test_a_packed_file_that_is_damaged_is_an_error_that_says_so(log, tmp_path, end):
    name = f"app.log.2.{end}"
    data = bytearray(packed(name, b"".join(b"%d\n" % (n * 7919 % 100_003) for n in range(20_000))))
    data[10:14] = b"\xff" * 4  # where the first block begins
    (tmp_path / name).write_bytes(data)
    driver = source(log, tmp_path / name)
    with pytest.raises(ConnectError, match="cannot be unpacked"):
        polled(driver)
    driver.stop()


def test_a_text_in_utf_16_with_its_mark_is_decoded(log, file):
    file.write_bytes("eins\r\nzwei ü😀\n".encode("utf-16"))
    assert run(log, file) == ["eins", "zwei ü😀"]


def test_positions_stay_those_of_kafkas_connector_and_need_no_note(log, file):
    append(file, "ü😀", "b", "c")
    driver = source(log, file)
    polled(driver)
    assert driver.offsets() == [({"filename": str(file)}, {"position": 8})]
    driver.stop()
    with log.transaction("other") as transaction:  # as a request stores it
        StoredOffsets(log, "test").write(transaction, [({"filename": str(file)}, {"position": 4})])
    assert run(log, file) == ["ü😀", "b", "c", "b", "c"]


def test_a_position_with_a_note_of_an_earlier_version_is_gone_on_from(log, file):
    append(file, "ü😀", "b")
    identity = file.stat()
    lines_sum = hashlib.blake2b("ü😀\nb\n".encode(), digest_size=12).hexdigest()
    note = json.dumps({"file": f"{identity.st_dev}:{identity.st_ino}:{lines_sum}"})
    with log.transaction("earlier") as transaction:
        offsets = [({"filename": str(file)}, NotedOffset({"position": 6}, note))]
        StoredOffsets(log, "test").write(transaction, offsets)
    append(file, "c")
    file.rename(beside(file, ".1"))
    append(file, "d")
    assert run(log, file) == ["c", "d"]


def test_what_is_written_to_a_renamed_file_comes_also_after_the_new_one_was_seen(log, file):
    append(file, "1")
    driver = source(log, file)
    polled(driver)
    with file.open("a") as daemon:
        file.rename(beside(file, ".1"))
        append(file, "new 1")
        assert polled(driver) == ["1", "new 1"]
        for number in range(3):
            daemon.write(f"late {number}\n")
            daemon.flush()
            assert polled(driver)[-1] == f"late {number}"
            append(file, f"new {number + 2}")
            assert polled(driver)[-1] == f"new {number + 2}"
            driver.restart()
    assert len(polled(driver)) == 8
    driver.stop()


def test_a_line_that_is_half_in_a_renamed_file_waits_for_its_other_half(log, file):
    append(file, "1")
    with file.open("a") as daemon:
        daemon.write("ha")
        daemon.flush()
        driver = source(log, file)
        polled(driver)
        file.rename(beside(file, ".1"))
        append(file, "2")
        assert polled(driver) == ["1", "2"]
        daemon.write("lf\n")
    assert polled(driver) == ["1", "2", "half"]
    driver.stop()
