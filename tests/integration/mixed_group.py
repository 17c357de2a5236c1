"""An application whose instances are programs in Python and in Java, in one group: `MixedGroup`.

Both kinds run one topology (``shared_app.build``, ``java/StreamsProgram.java``). Each record has to be passed on once, and
counted once, and the changelog has to say what the outputs say, whatever happens to the instances.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from penstock.base.jars import java_command
from penstock.errors import LogUnavailableError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.log.streams_groups.description import StreamsCoordinator, StreamsGroupDescription

from .fed_words import TASKS, FedWords, word_of

__all__ = ["SETTINGS", "Feeder", "MixedGroup", "MixedInstance"]

APP = Path(__file__).with_name("shared_app.py")
SETTINGS = {"streams.session.timeout.ms": "6000", "streams.heartbeat.interval.ms": "500"}  # so kills are noticed soon
MORE = '{"group.protocol": "streams", "num.stream.threads": 1, "statestore.cache.max.bytes": 0}'  # outputs = changelog
_END_S = 120
_INTERRUPTED = (0, 130, -signal.SIGINT)  # while it is starting, or even importing
_FEED_S, _FED = 0.1, 20
Instances = list["MixedInstance"]


class MixedInstance:
    """A running instance, with all that belongs to it in a group of processes of its own."""

    def __init__(self, kind: str, number: int, command: list[str], lines: Path) -> None:
        self.kind, self.number, self.lines = kind, number, lines
        with lines.open("w") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self, *, is_starting: bool = False) -> None:
        """End it in order, and wait until it has ended; one that is starting may be interrupted where it stands."""
        if self.kind == "python":
            self.process.send_signal(signal.SIGINT)
        self._close_input()  # at which the program in Java ends
        assert self.process.wait(_END_S) in (_INTERRUPTED if is_starting else (0,)), self.said()

    def kill(self) -> None:
        """Kill everything that belongs to it at once, as the end of its machine does."""
        if self.is_running:
            os.killpg(self.process.pid, signal.SIGKILL)
        self._close_input()
        self.process.wait(_END_S)

    def _close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def said(self) -> str:
        """Return what it has said at last."""
        return f"{self.kind} {self.number} ({self.process.poll()}): {self.lines.read_text()[-3000:]}"


class MixedGroup(FedWords):
    """The topics of an application, its instances, and what has been fed.

    Args:
        root: A folder for logs and state.
        bootstrap: The brokers.
        application: Its ``application.id``.
        class_path: The class path of the program in Java; "": there is none.
    """

    def __init__(self, root: Path, bootstrap: str, application: str, class_path: str) -> None:
        self.root, self.bootstrap, self._class_path = root, bootstrap, class_path
        super().__init__(open_log(bootstrap), application, open_log(bootstrap))  # another thread feeds
        self.coordinator: StreamsCoordinator = self.log.streams_coordinator()  # type: ignore[attr-defined] # both logs
        self.instances: Instances = []
        assert self.coordinator.set_group_settings(application, SETTINGS) == {}

    def start(self, kind: str) -> MixedInstance:
        """Start an instance: "java" or "python"."""
        number = len(self.instances)
        if kind == "java":
            topics = [self.topic(name) for name in ("words", "passed", "out")]
            options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dgroup.protocol=streams", "-cp", self._class_path]
            program = [java_command(), *options, "StreamsProgram", self.bootstrap, self.application]
            command = [*program, str(self.root / f"java-{number}"), "shared", *topics]
        else:
            command = [sys.executable, str(APP), self.bootstrap, self.application, str(self.root / "state"), MORE]
        instance = MixedInstance(kind, number, command, self.root / f"{kind}-{number}.log")
        self.instances.append(instance)
        return instance

    def running(self, kind: str = "") -> Instances:
        """Return the instances that run, of one kind or of both."""
        return [each for each in self.instances if each.is_running and kind in ("", each.kind)]

    def close(self) -> None:
        """Kill what runs, and close the log."""
        for each in self.instances:
            each.kill()
        self.coordinator.close()
        self._fed_log.close()
        self.log.close()

    # The group

    def described(self) -> StreamsGroupDescription | None:
        with suppress(LogUnavailableError):  # the coordinator is being loaded
            return self.coordinator.describe(self.application)
        return None

    def sharing(self) -> dict[str, int]:
        """Return the tasks of each process of the group while nothing moves, and all tasks are somewhere; else none."""
        described = self.described()
        if described is None or described.state != "Stable":
            return {}
        shares: dict[str, int] = {}
        for member in described.members:
            shares[member.process] = shares.get(member.process, 0) + len(member.assignment.active)
        return shares if sum(shares.values()) == TASKS else {}

    def is_shared_by(self, instances: int) -> bool:
        """Return whether so many instances share all tasks, each with some."""
        shares = self.sharing()
        return len(shares) == instances and all(shares.values())

    def story(self) -> str:
        return "\n".join([str(self.described()), *(each.said() for each in self.instances)])

    # Records

    def ends(self) -> dict[TopicPartition, int]:
        """Return the present ends of what is fed."""
        return self.log.end_offsets([self.topic("words")])

    def has_read(self, ends: dict[TopicPartition, int]) -> bool:
        """Return whether the group has committed these ends, or more."""
        committed = self.log.committed_offsets(self.application)
        return all(committed.get(place, 0) >= end for place, end in ends.items())

    def problems(self) -> list[str]:
        """Recount everything; return what is lost, doubled or at variance."""
        found = []
        expected = Counter(self.values())
        passed = Counter(value for _, value in self.committed("passed"))
        for what, rows in (("lost", expected - passed), ("doubled", passed - expected)):
            if rows:
                found.append(f"{rows.total()} {what}, such as {sorted(rows)[:5]}")
        counts = self.counts()
        last = {word: each[-1] for word, each in counts.items()}
        if last != (wanted := dict(Counter(map(word_of, range(self.fed))))):
            found.append(f"counts are {last}, and should be {wanted}")
        found += [f"counts of {word!r} go back: {each}" for word, each in counts.items() if each != sorted(set(each))]
        # A changelog has a record a key and commit in Penstock, and a record an update in Java.
        changelog = self.counts("counts-changelog")
        for word in sorted(changelog.keys() | counts.keys()):
            noted, sent = changelog.get(word, []), counts.get(word, [])
            if noted[-1:] != sent[-1:] or noted != sorted({*noted} & {*sent}):
                found.append(f"{word!r} in the changelog {noted}, and sent {sent}")
        return found


class Feeder(threading.Thread):
    """Feeds records steadily until it is stopped, which waits until all are there."""

    def __init__(self, group: MixedGroup) -> None:
        super().__init__(daemon=True)
        self._group, self._done = group, threading.Event()

    def run(self) -> None:
        while not self._done.wait(_FEED_S):
            self._group.feed(_FED)

    def stop(self) -> None:
        """Stop, and wait until all records are there."""
        self._done.set()
        self.join()
