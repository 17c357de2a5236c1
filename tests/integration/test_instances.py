"""Several instances of one application: its program, started more than once, over the embedded log and over a broker.

Each record has to be passed on once, and counted once, whatever happens to the instances.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventually import eventually
from penstock import KafkaStreams, StreamsBuilder
from penstock.errors import FencedError
from penstock.log.open import open_log
from penstock.log.streams_groups.description import DescribedMember, StreamsCoordinator, StreamsGroupDescription
from penstock.tools.broker.process import Broker

from .fed_words import TASKS, FedWords, word_of
from .shared_app import build

APP = Path(__file__).with_name("shared_app.py")
THREADS = 2  # of an instance
_NOTICED_S = 30.0  # the longest time until the group has heard of it
_numbers = itertools.count()


class Instance:
    """A running instance, with its workers and its JVM in a group of processes of their own."""

    def __init__(self, scene: Scene) -> None:
        self.lines = scene.root / f"instance-{next(scene.started)}.log"
        with self.lines.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(APP), scene.url, scene.application, scene.state, json.dumps(scene.settings)],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self) -> None:
        """Ctrl-C; wait until it has ended in order."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(120) == 0, self.lines.read_text()

    def kill(self) -> None:
        """Kill everything that belongs to it at once, as the end of its machine does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def kill_thread(self, has_gone: Callable[[], object]) -> None:
        """Kill the process of one of its threads: workers that Spark keeps idle are none, so the group is asked."""
        workers = [pid for pid in _below(self.process.pid) if b"pyspark.worker" in _command(pid)]
        for pid in (each for each in workers if not _children(each)):
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + _NOTICED_S
            while time.monotonic() < deadline:
                if has_gone():
                    return
                time.sleep(0.05)
        raise AssertionError("no process of a thread was found")


def _children(pid: int) -> list[int]:
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in map(int, _words(task / "children"))]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # it has ended
        return []


def _below(pid: int) -> list[int]:
    below = _children(pid)
    return [*below, *(each for child in below for each in _below(child))]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Scene(FedWords):
    """A log with the topics of an application, and its instances."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url, self.state = root, url, str(root / "state")
        self.settings = {"group.protocol": "streams"}
        super().__init__(open_log(url), f"shared-{os.getpid()}-{next(_numbers)}")
        self.coordinator: StreamsCoordinator = self.log.streams_coordinator()  # type: ignore[attr-defined] # both logs
        self.started = itertools.count()
        self.instances: list[Instance] = []

    def start(self, count: int = 1) -> list[Instance]:
        new = [Instance(self) for _ in range(count)]
        self.instances += new
        return new

    def close(self) -> None:
        for each in self.instances:
            if each.process.poll() is None:
                each.kill()
        self.coordinator.close()
        self.log.close()

    # The lease

    def is_alone(self, instance: Instance) -> bool:
        """Whether an instance has the lease, and the group has no members."""
        lease = self.log.lease(self.application)
        return lease is not None and not lease.released and lease.pid == instance.process.pid and not self.members()

    # The group

    def members(self) -> list[DescribedMember]:
        described = self.described()
        return [] if described is None else list(described.members)

    def described(self) -> StreamsGroupDescription | None:
        return self.coordinator.describe(self.application)

    def shares(self) -> list[int]:
        """The numbers of tasks of the group's members, while nothing moves; else none."""
        described = self.described()
        if described is None or described.state != "Stable":
            return []
        return sorted(len(each.assignment.active) for each in described.members)

    def until_shared_by(self, instances: int) -> None:
        """Wait until so many instances share all tasks, each of whose threads has as many as the others."""
        members = instances * THREADS
        eventually(
            lambda: self.shares() == [TASKS // members] * members,
            480.0,
            facts=lambda: (self.story(), self.described()),
        )

    def story(self) -> str:
        return "\n".join(each.lines.read_text()[-3000:] for each in self.instances)

    # Records

    def check(self) -> None:
        """Wait until all records are through, and count them again."""
        eventually(self.are_all_through, 480.0, facts=lambda: (self.story(), self.described()))
        passed = Counter(value for _, value in self.committed("passed"))
        assert passed == Counter(self.values())
        counts = self.counts()
        assert {word: each[-1] for word, each in counts.items()} == Counter(map(word_of, range(self.fed)))
        for each in counts.values():
            assert each == sorted(set(each)), "a count was written twice, or went back"


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        scene = Scene(tmp_path, f"sqlite:///{tmp_path / 'log.db'}")
        stack.callback(scene.close)
        yield scene


@pytest.fixture
def over_broker(tmp_path: Path, kafka: Broker) -> Iterator[Scene]:
    with ExitStack() as stack:
        scene = Scene(tmp_path, kafka.settings.bootstrap_servers)
        stack.callback(scene.close)
        yield scene


@pytest.mark.parametrize("where", [pytest.param("embedded", marks=pytest.mark.whole), "over_broker"])
def test_instances_share_the_tasks_and_take_over_from_each_other(where: str, request: pytest.FixtureRequest) -> None:
    """From a thread that dies, from an instance that is killed whole, and from one that ends."""
    scene: Scene = request.getfixturevalue(where)
    assert scene.coordinator.set_group_settings(scene.application, {"streams.session.timeout.ms": "6000"}) == {}
    scene.feed(1000)
    one, two = scene.start(2)
    scene.until_shared_by(2)
    scene.feed(1000)
    scene.check()

    before = {each.member for each in scene.members()}
    scene.feed(500)
    one.kill_thread(lambda: before - {each.member for each in scene.members()})
    scene.until_shared_by(2)
    scene.feed(500)
    scene.check()

    scene.feed(2000)
    two.kill()
    scene.until_shared_by(1)
    scene.feed(500)
    scene.check()
    [three] = scene.start()
    scene.until_shared_by(2)
    scene.feed(500)
    scene.check()

    scene.feed(500)
    three.end()
    scene.until_shared_by(1)
    scene.check()
    one.end()
    eventually(lambda: not scene.members(), facts=scene.described)


def test_tasks_with_much_state_move_to_another_place_once_it_is_there(embedded: Scene) -> None:
    scene = embedded
    scene.settings |= {"acceptable.recovery.lag": 5, "max.warmup.replicas": 1}
    scene.feed(1000)
    scene.start()
    scene.until_shared_by(1)
    scene.check()
    with sqlite3.connect(scene.root / "log.db") as log:
        log.execute("CREATE TABLE story (id INTEGER PRIMARY KEY, member TEXT, document TEXT)")
        for event in ("INSERT", "UPDATE"):
            log.execute(
                f"CREATE TRIGGER after_{event} AFTER {event} ON streams_members "
                "BEGIN INSERT INTO story (member, document) VALUES (NEW.member, NEW.document); END"
            )
    scene.state = str(scene.root / "another")
    first = {each.member for each in scene.members()}
    scene.start()
    scene.until_shared_by(2)
    scene.feed(1000)
    scene.check()
    with sqlite3.connect(scene.root / "log.db") as log:
        rows = log.execute("SELECT member, document FROM story ORDER BY id").fetchall()
    warm: set[tuple[str, str, int]] = set()
    moved = set()
    for member, document in rows:
        if member not in first:
            active, _, warmup = json.loads(document)["assigned"]
            moved |= {(member, *task) for task in active if task[0] == "1"}
            assert moved <= warm
            warm |= {(member, *task) for task in warmup}
    assert moved


@pytest.mark.parametrize("where", ["embedded", pytest.param("over_broker", marks=pytest.mark.whole)])
def test_a_second_start_shares_the_tasks_without_any_setting(where: str, request: pytest.FixtureRequest) -> None:
    scene: Scene = request.getfixturevalue(where)
    scene.settings = {}
    scene.feed(1000)
    [one] = scene.start()
    scene.check()
    assert scene.is_alone(one)
    [two] = scene.start()
    scene.feed(1000)
    scene.until_shared_by(2)
    scene.feed(1000)
    scene.check()

    builder = StreamsBuilder()
    builder.stream(scene.topic("words")).to(scene.topic("passed"))
    settings = {"application.id": scene.application, "bootstrap.servers": scene.url, "state.dir": scene.state}
    with pytest.raises(FencedError, match=r"runs already with group\.protocol=streams: 2 instances with 4 threads"):
        KafkaStreams(builder.build(), settings).run(until="latest")

    scene.feed(500)
    one.end()
    scene.until_shared_by(1)
    scene.check()
    killed = {each.member for each in scene.members()}
    two.kill()
    scene.settings = {"group.protocol": "streams"}  # else it runs alone, once the last request is two minutes old
    [three] = scene.start()  # which waits for no session: it leaves in the name of the killed one
    eventually(lambda: not killed & {each.member for each in scene.members()}, 480.0, facts=scene.described)
    scene.until_shared_by(1)
    scene.feed(500)
    scene.check()
    three.end()
    eventually(lambda: not scene.members(), facts=scene.described)


@pytest.mark.parametrize(
    ("where", "how"), [pytest.param("embedded", "end", marks=pytest.mark.whole), ("over_broker", "kill")]
)
def test_a_second_driver_of_micro_batches_waits_and_takes_over(
    where: str, how: str, request: pytest.FixtureRequest
) -> None:
    scene: Scene = request.getfixturevalue(where)
    scene.settings = {"processing.mode": "micro_batch"}
    scene.feed(300)
    [one] = scene.start()
    scene.check()
    [two] = scene.start()
    eventually(lambda: "this instance waits, and takes over" in two.lines.read_text(), 480.0, facts=scene.story)
    settings = {"application.id": scene.application, "bootstrap.servers": scene.url, "state.dir": scene.state}
    with pytest.raises(FencedError, match=f"runs already: .*process {one.process.pid} on "):
        KafkaStreams(build(scene.application), {**settings, **scene.settings}).run(wait=False)
    scene.feed(300)
    scene.check()
    assert scene.is_alone(one)

    if how == "kill":
        one.kill()
    else:
        one.end()
    eventually(lambda: scene.is_alone(two), 480.0, facts=scene.story)
    scene.feed(300)
    scene.check()
    two.end()
