"""Files that vanish, are cut, rotated or replaced while they are read or written: no line is lost, cut or doubled."""

import threading

import pytest

from penstock.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from penstock.connect.testing import ConnectTestDriver, Step


@pytest.fixture
def file(tmp_path):
    return tmp_path / "in.txt"


@pytest.fixture
def driver(file):
    made = ConnectTestDriver(FileStreamSourceConnector, {"file": str(file), "topic": "lines", "batch.size": "2"})
    yield made
    made.stop()


def append(file, *lines):
    with file.open("a") as out:
        out.write("".join(f"{line}\n" for line in lines))


def polled(driver):
    while driver.poll():
        pass
    return [record.value for record in driver.read("lines")] if known(driver) else []


def known(driver):
    return any(topic.name == "lines" for topic in driver.log.topics())


def test_a_file_that_comes_late_goes_and_comes_back_is_read_each_time(driver, file):
    assert polled(driver) == []
    append(file, "a", "b", "c")
    assert polled(driver) == ["a", "b", "c"]
    append(file, "d")
    file.unlink()
    assert polled(driver) == ["a", "b", "c", "d"]  # the rest of a file that was deleted while it was open
    append(file, "e")
    assert polled(driver) == ["a", "b", "c", "d", "e"]


def test_a_file_that_is_cut_is_read_from_its_start_also_in_the_middle_of_a_batch(driver, file):
    append(file, *"abcdef")
    assert len(driver.poll()) == 2
    file.write_text("")
    append(file, "x")
    assert polled(driver) == ["a", "b", "c", "d", "e", "f", "x"]
    file.write_text("y\n")
    append(file, "z")
    file.write_text("")
    assert polled(driver)[-1] == "x"
    append(file, "1")
    assert polled(driver)[-2:] == ["x", "1"]


def test_rotated_files_are_read_to_their_end_first(driver, file):
    append(file, "a", "b")
    assert len(driver.poll()) == 2
    append(file, "c")
    file.rename(file.with_suffix(".1"))
    append(file, "e")
    append(file.with_suffix(".1"), "d")
    assert polled(driver) == ["a", "b", "c", "d", "e"]


def test_a_file_that_is_replaced_by_another_with_a_last_line_without_its_end_loses_nothing(driver, file):
    append(file, "a")
    with file.open("a") as out:
        out.write("half")
    assert polled(driver) == ["a"]
    other = file.with_suffix(".new")
    append(other, "b")
    other.replace(file)
    assert polled(driver) == ["a", "half", "b"]


@pytest.mark.parametrize("step", list(Step)[:4])
def test_a_task_that_dies_while_its_file_is_away_goes_on_where_it_was(file, step):
    driver = ConnectTestDriver(FileStreamSourceConnector, {"file": str(file), "topic": "lines", "batch.size": "2"})
    append(file, *"abcd")
    driver.poll()
    killed = driver.sources[0].task
    driver.poll(crash=step)
    killed.stop()  # a process of its own would be gone
    away = file.with_suffix(".away")
    file.rename(away)
    assert driver.poll() == []
    driver.restart()
    assert driver.poll() == []
    away.rename(file)
    append(file, "e")
    assert polled(driver) == list("abcde")
    driver.stop()


def test_a_folder_whose_files_come_and_go_is_read_to_the_end(tmp_path):
    folder = tmp_path / "logs"
    driver = ConnectTestDriver(FileStreamSourceConnector, {"file": f"{folder}/*.log", "topic": "lines"})
    assert polled(driver) == []
    folder.mkdir()
    append(folder / "1.log", "a")
    append(folder / "2.log", "b")
    assert sorted(polled(driver)) == ["a", "b"]
    (folder / "1.log").unlink()
    append(folder / "2.log", "c")
    assert sorted(polled(driver)) == ["a", "b", "c"]
    (folder / "2.log").unlink()
    folder.rmdir()
    assert driver.poll() == []
    folder.mkdir()
    append(folder / "3.log", "d")
    assert sorted(polled(driver)) == ["a", "b", "c", "d"]
    driver.stop()


def test_bytes_that_are_no_text_are_read_and_the_lines_behind_them_too(driver, file):
    file.write_bytes(b"a\xff\xfeb\n\x00\n" + "ü😀\n".encode() + b"\xf0\x9f")
    assert polled(driver) == ["a\ufffd\ufffdb", "\x00", "ü😀"]
    append(file, "c")
    driver.restart()
    assert polled(driver)[-1] == "\ufffdc"


# Sinks


def sink(out, topic="in"):
    return ConnectTestDriver(FileStreamSinkConnector, {"file": str(out), "topics": topic})


def test_a_target_that_is_deleted_is_made_anew_and_gets_what_follows(tmp_path):
    out = tmp_path / "out.txt"
    driver = sink(out)
    driver.produce("in", "a")
    driver.put()
    out.unlink()
    driver.produce("in", "b")
    driver.put()
    assert out.read_text() == "b\n"
    driver.stop()


def test_blocks_of_several_tasks_do_not_mix(tmp_path):
    out = tmp_path / "out.txt"
    long = ["x" * 9000 + str(number) for number in range(8)]

    def write(name):
        driver = sink(out, name)
        driver.produce(name, *[f"{name}{line}" for line in long])
        driver.put()
        driver.stop()

    threads = [threading.Thread(target=write, args=[name]) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(out.read_text().splitlines()) == sorted(f"{name}{line}" for name in "abc" for line in long)
