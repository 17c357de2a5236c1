"""Rotation at random: whatever happens to the files, and whenever the source stops, each line comes once and in order.

What no reader can know is left out: lines that are written and deleted, or cut off, between two looks, and that a line
without an end had become longer when its file was cut.

``PENSTOCK_EXAMPLES=500`` searches long, and each time elsewhere.
"""

from __future__ import annotations

import codecs
import gzip
import itertools
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from examples import examples
from penstock.connect.connectors import line_reader
from penstock.connect.connectors.file_stream import FileStreamSourceConnector
from penstock.connect.testing import ConnectTestDriver, Step

ENDS = re.compile(rb"\r\n|\n|\r")
FILLERS = (b"", b"x" * 90, "ü😀".encode() * 3, b"\xc3\xff\xf0\x9f", b"y" * 300)
CRASHES = (Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED)


class Written:
    """One file of a log as it was written, under whatever name it is now."""

    def __init__(self, log: str, *, is_utf16: bool) -> None:
        self.log, self.is_utf16 = log, is_utf16
        self.data = b""
        self.turn: int | None = 0  # 0: under the log's own name; None: deleted
        self.is_packed = self.is_copy = False
        self.looked_at: int | None = None  # its size at the last look
        self.may_be_lost = False
        self.seen_rests: set[str] = set()  # of a file that is cut these may be taken for its last lines

    @property
    def text(self) -> bytes:
        """What was written, in UTF-8."""
        return self.data.decode("utf-16").encode() if self.is_utf16 else self.data

    def lines(self) -> list[str]:
        data = self.text
        found = [end for end in ENDS.finditer(data) if end[0] != b"\r" or end.end() < len(data)]
        starts = [0, *(end.end() for end in found)]
        return [shown(data[start : end.start()]) for start, end in zip(starts, found, strict=False)]

    def rest(self) -> str:
        data = self.text
        found = [end.end() for end in ENDS.finditer(data) if end[0] != b"\r" or end.end() < len(data)]
        return shown(data[found[-1] if found else 0 :].removesuffix(b"\r"))

    @property
    def ends_here(self) -> bool:
        """Whether nobody writes to it any more, so its last line may come without an end."""
        return self.turn is None or self.turn > 1 or self.is_packed or self.is_copy


def shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")


LOGS = st.integers(0, 2)


class Rotation(RuleBasedStateMachine):
    """Logs, what is done to them, and the source that follows them.

    Attributes:
        pattern: What the source follows; empty: the path of the only log.
        chunk: The bytes of a read.
        logs: The names of the logs.
    """

    pattern = ""
    chunk = 1 << 20
    logs = ("app.log",)

    @initialize(is_utf16=st.sampled_from([False, False, False, True]))
    def start(self, is_utf16: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rotation-"))
        self.is_utf16 = is_utf16
        self.numbers = itertools.count(1000)
        self.clock = 1_700_000_000
        self.files: list[Written] = []
        self.currents: dict[str, Written | None] = dict.fromkeys(self.logs)
        file = self.folder / (self.pattern or self.logs[0])
        self.driver = ConnectTestDriver(
            FileStreamSourceConnector, {"file": str(file), "topic": "lines", "batch.size": "2"}
        )
        self.driver.log.create_topic("lines", 1)
        self.create(0)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            try:
                for name in self.logs:
                    if self.currents[name] is None:
                        self.add_log(name)
                self.drain()
            finally:
                self.driver.stop()
                shutil.rmtree(self.folder)

    # Files

    def name(self, file: Written) -> Path:
        end = f".{file.turn}" if file.turn else ""
        return self.folder / f"{file.log}{end}{'.gz' if file.is_packed else ''}"

    def touch(self, path: Path) -> None:
        self.clock += 1
        os.utime(path, (self.clock, self.clock))

    def write(self, file: Written, data: bytes) -> None:
        if file.is_utf16:
            mark = b"" if file.data else codecs.BOM_UTF16_LE
            data = mark + data.decode("utf-8", "replace").encode("utf-16-le")
        with self.name(file).open("ab") as out:
            out.write(data)
        file.data += data
        self.touch(self.name(file))

    def line(self, filler: bytes, end: bytes) -> bytes:
        number = b"%d" % next(self.numbers)
        return filler + number + filler + number + end

    def of_log(self, log: int) -> str:
        return self.logs[log % len(self.logs)]

    def all_of(self, name: str) -> list[Written]:
        return [each for each in self.files if each.log == name]

    def shift(self, name: str) -> None:
        for file in sorted((each for each in self.all_of(name) if each.turn), key=lambda each: -(each.turn or 0)):
            before = self.name(file)
            file.turn = (file.turn or 0) + 1
            before.rename(self.name(file))

    def lose(self, file: Written) -> None:
        file.may_be_lost = True

    def leave(self, file: Written) -> None:
        """A file stops to be the log: the source must know of it, or of one before it, to find it again."""
        if not self.pattern and not self.delivered() and file.looked_at is None:
            self.lose(file)

    def add_log(self, name: str) -> Written:
        file = self.currents[name] = Written(name, is_utf16=self.is_utf16)
        self.files.append(file)
        (self.folder / name).touch()
        self.touch(self.folder / name)
        return file

    @precondition(lambda self: None in self.currents.values())
    @rule(log=LOGS)
    def create(self, log: int) -> None:
        if self.currents[self.of_log(log)] is None:
            self.add_log(self.of_log(log))

    @rule(
        log=LOGS,
        fillers=st.lists(st.sampled_from(FILLERS), min_size=1, max_size=5),
        end=st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n", b"\r"]),
        part=st.sampled_from([None, None, b"", "ü😀".encode(), "😀".encode()[:2]]),
    )
    def append(self, log: int, fillers: list[bytes], end: bytes, part: bytes | None) -> None:
        current = self.currents[self.of_log(log)]
        if current is None:
            return
        lines = [self.line(filler, end) for filler in fillers]
        if part is not None:
            lines.append(self.line(b"", part))
        self.write(current, b"".join(lines))

    @precondition(lambda self: any(each.turn == 1 and not (each.is_packed or each.is_copy) for each in self.files))
    @rule(end=st.sampled_from([b"\n", b""]))
    def append_late(self, end: bytes) -> None:
        file = next(each for each in self.files if each.turn == 1 and not (each.is_packed or each.is_copy))
        self.write(file, self.line(b"late", end))

    @precondition(lambda self: len(self.files) < 30)
    @rule(log=LOGS, data=st.booleans(), at_once=st.booleans())
    def rename(self, log: int, data: bool, at_once: bool) -> None:
        name = self.of_log(log)
        current = self.currents[name]
        if current is None:
            return
        self.leave(current)
        self.shift(name)
        (self.folder / name).rename(self.folder / f"{name}.1")
        current.turn, self.currents[name] = 1, None
        if at_once:
            added = self.add_log(name)
            if data:
                self.write(added, self.line(b"", b"\n"))

    @precondition(lambda self: len(self.files) < 30)
    @rule(log=LOGS, look=st.booleans(), data=st.booleans())
    def copy_and_truncate(self, log: int, look: bool, data: bool) -> None:
        name = self.of_log(log)
        copied = self.currents[name]
        if copied is None or not copied.data:
            return
        self.leave(copied)
        if copied.looked_at == 0 and not self.pattern:
            self.lose(copied)  # it was empty, and nothing shows that it was not when it was cut
        self.shift(name)
        shutil.copy2(self.folder / name, self.folder / f"{name}.1")
        if look:
            self.look(3)
        os.truncate(self.folder / name, 0)
        copied.turn, copied.is_copy = 1, True
        self.currents[name] = after = Written(name, is_utf16=self.is_utf16)
        self.files.append(after)
        self.touch(self.folder / name)
        if data:
            self.write(after, self.line(b"x" * 200, b"\n"))

    @precondition(lambda self: any(each.turn and not each.is_packed for each in self.files))
    @rule()
    def pack(self) -> None:
        file = next(each for each in self.files if each.turn and not each.is_packed)
        before = self.name(file)
        facts = before.stat()
        file.is_packed = True
        self.name(file).write_bytes(gzip.compress(before.read_bytes()))
        os.utime(self.name(file), ns=(facts.st_atime_ns, facts.st_mtime_ns))
        before.unlink()

    @precondition(lambda self: any(each.turn for each in self.files))
    @rule()
    def delete_oldest(self) -> None:
        file = max((each for each in self.files if each.turn), key=lambda each: each.turn)
        self.name(file).unlink()
        file.turn = None
        self.lose(file)

    @rule(log=LOGS, at_once=st.booleans())
    def delete(self, log: int, at_once: bool) -> None:
        name = self.of_log(log)
        current = self.currents[name]
        if current is None:
            return
        self.lose(current)
        (self.folder / name).unlink()
        current.turn, self.currents[name] = None, None
        if at_once:
            self.add_log(name)

    @rule(log=LOGS)
    def cut(self, log: int) -> None:
        name = self.of_log(log)
        current = self.currents[name]
        if current is None or not current.data:
            return
        self.lose(current)
        os.truncate(self.folder / name, 0)
        current.turn = None
        self.currents[name] = after = Written(name, is_utf16=self.is_utf16)
        self.files.append(after)
        self.touch(self.folder / name)

    # The source

    @rule(polls=st.integers(1, 4))
    def look(self, polls: int) -> None:
        for _ in range(polls):
            self.driver.poll()
        for current in self.currents.values():
            if current is not None:
                current.looked_at = len(current.data)
                current.seen_rests.add(current.rest())

    def started(self) -> None:
        if not self.pattern and not self.delivered():
            for file in self.files:
                if file not in self.currents.values():
                    self.lose(file)
                file.looked_at = None

    @rule()
    def restart(self) -> None:
        self.driver.restart()
        self.started()

    @rule(step=st.sampled_from(CRASHES))
    def crash(self, step: Step) -> None:
        killed = self.driver.sources[0].task
        self.driver.poll(crash=step)
        is_killed = self.driver.sources[0].task is not killed
        if is_killed:
            killed.stop()  # a process of its own would be gone
        self.started()
        knows_it = not is_killed or self.pattern or self.delivered()
        for current in self.currents.values():
            if current is not None:
                current.seen_rests.add(current.rest())
                if not current.data and knows_it:
                    current.looked_at = 0  # before or after the crash

    @rule()
    def drain(self) -> None:
        for _ in range(4):
            while self.driver.poll():
                pass
        for current in self.currents.values():
            if current is not None:
                current.looked_at = len(current.data)
                current.seen_rests.add(current.rest())
        self.check()

    def delivered(self) -> list[str]:
        return [record.value for record in self.driver.read("lines")]

    def check(self) -> None:
        delivered = [text for text in self.delivered() if text]
        assert len(set(delivered)) == len(delivered), "a line came twice"
        places = {
            text: (number, row)
            for number, file in enumerate(self.files)
            for row, text in enumerate(file.lines())
            if text
        }
        rests = {
            file.rest(): number
            for number, file in enumerate(self.files)
            if file.rest() and (file.ends_here or sum(each.log == file.log for each in self.files[number:]) > 2)
        }
        halves = {rest for file in self.files if file.turn is None for rest in file.seen_rests}
        known = places.keys() | rests.keys() | halves
        assert [text for text in delivered if text not in known] == [], "lines that are none"
        for number, file in enumerate(self.files):
            texts = [text for text in file.lines() if text]
            own = [text for text in delivered if places.get(text, (-1,))[0] == number]
            assert own == [text for text in texts if text in set(own)], "lines are out of order"
            waits = self.currents[file.log] is None and not self.pattern  # the next file may be on its way
            assert waits or file.may_be_lost or own == texts, "lines are lost"


LOGS_OF_A_FOLDER = ("app.log", "web.log", "app.err.log")


@pytest.mark.parametrize(
    ("pattern", "chunk", "logs"),
    [
        ("", 5, ("app.log",)),
        ("", 1 << 20, ("app.log",)),
        (".", 5, ("app.log",)),
        ("app.log*", 1 << 20, ("app.log",)),
        (".", 1 << 20, LOGS_OF_A_FOLDER),
        ("*.log*", 5, LOGS_OF_A_FOLDER),
    ],
)
def test_each_line_comes_once_whatever_happens_to_the_files(monkeypatch, pattern, chunk, logs):
    monkeypatch.setattr(line_reader, "_CHUNK_BYTES", chunk)
    monkeypatch.setattr(line_reader, "_EDGE_BYTES", 64)
    machine = type("RotationOf", (Rotation,), {"pattern": pattern, "logs": logs})
    always_the_same = not os.environ.get("PENSTOCK_EXAMPLES")
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(75), stateful_step_count=25, deadline=None, derandomize=always_the_same
        ),
    )


LINE = {"end": b"\n", "fillers": [b""], "log": 0, "part": None}
HALF = {**LINE, "part": b""}
SCHEDULES = {  # of which each once lost a line, or brought one twice
    "a copy is cut, and then deleted, before the next look": ([""], [
        ("rename", {"at_once": True, "data": True}), ("drain", {}), ("append", LINE),
        ("copy_and_truncate", {"data": False, "look": False}), ("delete", {"at_once": True}), ("drain", {}),
    ]),
    "a log is copied while it is empty to the source, and the copy is deleted": ([""], [
        ("drain", {}), ("delete", {"at_once": True}), ("append", HALF),
        ("copy_and_truncate", {"data": False, "look": True}), ("delete_oldest", {}), ("drain", {}),
    ]),
    "a log is cut, and has a copy of what came then": ([""], [
        ("rename", {"at_once": True, "data": True}), ("drain", {}), ("cut", {}), ("append", LINE),
        ("copy_and_truncate", {"data": False, "look": False}),
    ]),
    "a packed file has the inode of an empty one": ([""], [
        ("drain", {}), ("rename", {"at_once": True, "data": True}), ("drain", {}), ("restart", {}),
        ("copy_and_truncate", {"data": True, "look": False}), ("rename", {"at_once": False, "data": False}),
        ("pack", {}), ("pack", {}),
    ]),
    "a copy has the inode of an empty file": ([""], [
        ("drain", {}), ("rename", {"at_once": True, "data": True}), ("drain", {}), ("restart", {}), ("append_late", {"end": b"\n"}),
        ("rename", {"at_once": True, "data": False}), ("rename", {"at_once": True, "data": False}), ("append", LINE),
        ("pack", {}), ("copy_and_truncate", {"data": False, "look": False}), ("drain", {}),
    ]),
    "a file is written to late, and packed": (["", "app.log*"], [
        ("drain", {}), ("rename", {"at_once": True, "data": False}), ("drain", {}), ("append_late", {"end": b"\n"}),
        ("pack", {}), ("delete", {"at_once": True}), ("drain", {}),
    ]),
    "a place that is stored beside another outlives two restarts": (["app.log*"], [
        ("rename", {"at_once": True, "data": True}), ("drain", {}), ("copy_and_truncate", {"data": True, "look": False}),
        ("drain", {}), ("restart", {}), ("append", LINE), ("drain", {}), ("restart", {}),
    ]),
    "a log is cut when the one before was written to late, and packed": ([""], [
        ("drain", {}), ("rename", {"at_once": True, "data": False}), ("append", LINE), ("drain", {}),
        ("append_late", {"end": b"\n"}), ("pack", {}), ("cut", {}), ("drain", {}), ("restart", {}),
        ("rename", {"at_once": False, "data": False}), ("look", {"polls": 1}),
    ]),
    "a log is deleted when the one before was written to late, and packed": ([""], [
        ("append", LINE), ("drain", {}), ("restart", {}), ("rename", {"at_once": True, "data": False}),
        ("append_late", {"end": b"\n"}), ("pack", {}), ("drain", {}), ("delete", {"at_once": True}), ("drain", {}),
    ]),
    "a copy is read before its log is cut, and rotated": ([""], [
        ("drain", {}), ("delete", {"at_once": True}), ("append", HALF), ("copy_and_truncate", {"data": False, "look": True}),
        ("drain", {}), *[("rename", {"at_once": True, "data": True}), ("drain", {})] * 2,
    ]),
    "a log is deleted, and the one before it is written to late": (["", "app.log*"], [
        ("drain", {}), ("rename", {"at_once": True, "data": False}), ("drain", {}), ("delete", {"at_once": True}),
        ("look", {"polls": 1}), ("append_late", {"end": b"\n"}), ("drain", {}),
    ]),
    "a log that was cut is copied before the next look, and the copy is deleted": ([""], [
        ("drain", {}), ("append", LINE), ("copy_and_truncate", {"data": False, "look": True}), ("append", {**LINE, "end": b"\r"}),
        ("delete_oldest", {}), ("copy_and_truncate", {"data": False, "look": True}), ("delete_oldest", {}), ("drain", {}),
    ]),
    "a packed file has the inode of a deleted one": (["*.log*"], [
        ("append", LINE), ("drain", {}), ("append", LINE), ("copy_and_truncate", {"data": False, "look": False}), ("drain", {}),
        ("delete", {"at_once": True}), ("drain", {}), ("pack", {}), ("drain", {}), ("restart", {}), ("drain", {}),
    ]),
    "a copy is deleted, and the next one has its inode": (["*.log*"], [
        ("append", LINE), ("copy_and_truncate", {"data": False, "look": True}), ("delete_oldest", {}), ("append", LINE),
        ("copy_and_truncate", {"data": False, "look": False}), ("drain", {}),
    ]),
    "an empty file is written to and packed before the next look": (["*.log*"], [
        ("append", LINE), ("copy_and_truncate", {"data": False, "look": False}), ("drain", {}),
        ("rename", {"at_once": False, "data": False}), ("delete_oldest", {}), ("append_late", {"end": b"\n"}), ("pack", {}),
        ("drain", {}),
    ]),
    "a copy is packed before the next look": ([".", "app.log*"], [
        ("append", LINE), ("drain", {}), ("copy_and_truncate", {"data": False, "look": False}), ("pack", {}), ("drain", {}),
    ]),
    "a copy has the name and the size of the one before": ([".", "app.log*"], [
        ("append", LINE), ("copy_and_truncate", {"data": False, "look": True}), ("rename", {"at_once": True, "data": True}),
        ("copy_and_truncate", {"data": False, "look": False}), ("drain", {}),
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "pattern"), [(name, each) for name in SCHEDULES for each in SCHEDULES[name][0]])
def test_a_schedule_that_once_failed(monkeypatch, name, pattern):
    monkeypatch.setattr(line_reader, "_EDGE_BYTES", 64)
    state = type("RotationOf", (Rotation,), {"pattern": pattern})()
    try:
        state.start(is_utf16=False)
        for what, options in SCHEDULES[name][1]:
            needs_log = what in ("append", "copy_and_truncate", "cut", "delete", "rename")
            getattr(state, what)(**({"log": 0} if needs_log else {}) | options)
    finally:
        state.teardown()
