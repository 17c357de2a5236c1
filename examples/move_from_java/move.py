"""Moves a running word count from Java to Python, on one machine and without a stop: python move.py.

Starts a broker in a folder of its own, the program in Java (WordCount.java), and a producer of lines that never pauses.
Then the program in Python (counting.py) is started beside it, and takes its share; the one in Java is ended, and
the one in Python has it all. At the end the counts are compared with what was produced. It needs a JDK (javac).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.base.jars import KAFKA_VERSION, fetch_jars, java_command
from penstock.errors import LogUnavailableError
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

HERE = Path(__file__).parent
JARS = (("org.apache.kafka", "kafka-streams", KAFKA_VERSION), ("org.slf4j", "slf4j-nop", "1.7.36"))
APPLICATION, PARTITIONS = "word-count", 4
TASKS = 2 * PARTITIONS  # of the words, and of their counts
WORDS = ("streams", "of", "words", "from", "java", "to", "python")
PATIENCE_S = 300.0


class Lines(threading.Thread):
    """Produces a line of a few words every 10 ms, and counts the words itself."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.words: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._ended = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._ended.wait(0.01):
            number += 1
            words = [WORDS[(number + each) % len(WORDS)] for each in range(number % 4 + 1)]
            self._producer.produce("lines", " ".join(words), str(number))
            self._producer.poll(0)
            self.words.update(words)

    def end(self) -> None:
        """Produce no more, and wait until the brokers have all."""
        self._ended.set()
        self.join()
        assert self._producer.flush(PATIENCE_S) == 0


class Counts:
    """The committed counts, as they come."""

    def __init__(self, servers: str) -> None:
        self.newest: dict[str, int] = {}
        self.wrong: list[str] = []
        self._consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "move", "isolation.level": "read_committed",
            "enable.auto.commit": False,
        })  # fmt: skip
        self._consumer.assign([TopicPartition("counts", number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def read(self) -> None:
        """Read what has come; a count that does not grow was counted twice, or lost."""
        for message in self._consumer.consume(1000, 0.2):
            assert not message.error(), message.error()
            key, value = message.key(), message.value()
            if key is None or value is None:
                raise ValueError("a count has no word, or was deleted")
            word, count = str(key, "utf-8"), int.from_bytes(value, "big")
            if count <= self.newest.get(word, 0):
                self.wrong.append(f"{word}: {count} after {self.newest[word]}")
            self.newest[word] = count

    def close(self) -> None:
        self._consumer.close()


def compiled(folder: Path) -> str:
    """Compile the program in Java; return its class path."""
    beside = Path(java_command()).with_name("javac")
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    if compiler is None:
        sys.exit("there is no javac: a JDK is needed, not a JRE alone")
    path = f"{folder}:{fetch_jars(f'kafka-streams-{KAFKA_VERSION}', JARS)}/*"
    subprocess.run([compiler, "-cp", path, "-d", str(folder), str(HERE / "WordCount.java")], check=True)  # noqa: S603
    return path


class Move:
    """The two programs, and what the group says of them."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self.started: list[subprocess.Popen[bytes]] = []
        self._log = open_log(servers)
        self._group = self._log.streams_coordinator()  # type: ignore[attr-defined] # brokers have one
        # Members in Java ask every 5 s by default, also whether there is a task to give up.
        self._group.set_group_settings(APPLICATION, {"streams.heartbeat.interval.ms": "500"})

    def start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a program, whose messages go to a file."""
        with (self.folder / f"{name}.log").open("w") as file:
            command = [*command, self.servers, str(self.folder / f"state-{name}")]
            self.started.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))  # noqa: S603
        return self.started[-1]

    def end(self, program: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """End a program in order."""
        program.send_signal(how)
        program.wait(PATIENCE_S)
        self.started.remove(program)

    def shares(self) -> dict[str, int]:
        """Return the number of tasks of each instance; none while tasks move."""
        try:
            group = self._group.describe(APPLICATION)
        except LogUnavailableError:  # the broker has just been started
            return {}
        if group is None or group.state != "Stable":
            return {}
        shares: Counter[str] = Counter()
        for member in group.members:
            shares[member.process] += len(member.assignment.active)
        return dict(shares) if sum(shares.values()) == TASKS else {}

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, and say it."""
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            if any(each.poll() is not None for each in self.started) or time.monotonic() > end:
                said = [f"{log.name}: {log.read_text()[-2000:]}" for log in self.folder.glob("*.log")]
                sys.exit("\n".join([f"not so: {what}", *said]))
            time.sleep(0.2)
        print(what, flush=True)

    def close(self) -> None:
        for each in self.started:
            if each.poll() is None:
                each.kill()
                each.wait()
        self._group.close()
        self._log.close()


def run(folder: Path) -> None:
    """Do it all in a folder."""
    class_path = compiled(folder)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(BrokerSettings(folder / "broker", free_port(), free_port())))
        servers = broker.settings.bootstrap_servers
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics(topics).values():
            made.result()
        move = Move(servers, folder)
        stack.callback(move.close)
        lines = Lines(servers)
        lines.start()

        java = move.start("java", [java_command(), "-Xmx256m", "-cp", class_path, "WordCount"])
        move.wait(f"Java has all {TASKS} tasks", lambda: [*move.shares().values()] == [TASKS])
        python = move.start("python", [sys.executable, str(HERE / "counting.py")])
        move.wait(
            "Python has joined, and both share the tasks", lambda: sorted(map(bool, move.shares().values())) == [1, 1]
        )
        move.end(java, signal.SIGTERM)
        move.wait(f"Java has ended, and Python has all {TASKS} tasks", lambda: [*move.shares().values()] == [TASKS])

        lines.end()
        counts = Counts(servers)
        stack.callback(counts.close)

        def are_all_counted() -> bool:
            counts.read()
            return sum(counts.newest.values()) >= lines.words.total()

        move.wait("all words that were produced meanwhile are counted", are_all_counted)
        move.end(python, signal.SIGINT)
        if counts.wrong or counts.newest != lines.words:
            sys.exit(f"wrong: {counts.wrong}, {counts.newest} for {dict(lines.words)}")
        print(f"{lines.words.total():,} words, none lost, none counted twice")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="move-from-java-") as made:
        run(Path(made))
