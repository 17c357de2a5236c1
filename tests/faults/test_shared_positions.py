"""Positions that two may write: file sources and mirrors that race, and whose answers are lost, write every record once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_proxy import END_TXN, PRODUCE, KafkaProxy, kafka_proxy
from penstock.connect.file_source import FileSource
from penstock.connect.mirror.maker import Mirror
from penstock.connect.mirror.replication import MirrorSource
from penstock.errors import FencedError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.tools.broker.process import Broker

LOGS = ("embedded", "kafka")
_names = itertools.count()


@pytest.fixture
def proxy(kafka: Broker) -> Iterator[KafkaProxy]:
    with kafka_proxy(kafka) as running:
        yield running


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], TopicLog]]:
    """Opens the same log again and again, as processes do."""
    with ExitStack() as stack:

        def open_again() -> TopicLog:
            if request.param == "embedded":  # another path to the same file: another connection
                (folder := tmp_path / f"at-{next(_names)}").symlink_to(tmp_path, target_is_directory=True)
                return stack.enter_context(open_log(f"sqlite:///{folder / 'log.db'}"))
            url = request.getfixturevalue("kafka").settings.bootstrap_servers
            return stack.enter_context(open_log(url))

        yield open_again


def contents(log: TopicLog, topic: str) -> list[str]:
    place = TopicPartition(topic, 0)
    rows = log.iterate(topic, 0, 0, log.settled_ends([place])[place])
    return [value.decode() for batch in rows for value in batch.column("value").to_pylist()]


def race(*actions: Callable[[], object]) -> list[FencedError]:
    """Run actions at the same time, each until it is fenced or done."""
    gate, fenced = threading.Barrier(len(actions)), []

    def run(action: Callable[[], object]) -> None:
        gate.wait(60)
        try:
            action()
        except FencedError as error:
            fenced.append(error)

    threads = [threading.Thread(target=run, args=[each]) for each in actions]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return fenced


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_two_sources_of_one_file_write_each_line_once(opened: Callable[[], TopicLog], tmp_path: Path) -> None:
    logs, topic, path = [opened() for _ in range(2)], f"shared-lines-{next(_names)}", tmp_path / "in.txt"
    written: list[str] = []
    for round_ in range(6):
        sources = [FileSource(log, path, topic, name=topic) for log in logs]
        lines = [f"{round_} {number}" for number in range(50)]
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        written += lines
        race(*(each.run_once for each in sources))
        assert contents(logs[0], topic) == written


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_a_source_that_another_one_has_overtaken_says_so(opened: Callable[[], TopicLog], tmp_path: Path) -> None:
    logs, topic, path = [opened() for _ in range(2)], f"shared-lines-{next(_names)}", tmp_path / "in.txt"
    path.write_text("1\n")
    paused, other = (FileSource(log, path, topic, name=topic) for log in logs)
    assert other.run_once() == 1
    path.write_text("1\n2\n")
    with pytest.raises(FencedError, match="another process reads"):
        paused.run_once()
    path.write_text("1\n2\n3\n")
    assert other.run_once() == 2
    assert contents(logs[0], topic) == ["1", "2", "3"]


@pytest.mark.parametrize("request_kind", [PRODUCE, END_TXN])
def test_lines_whose_answers_are_lost_are_written_once(proxy: KafkaProxy, tmp_path: Path, request_kind: int) -> None:
    path, topic = tmp_path / "in.txt", f"shared-lines-{next(_names)}"
    with open_log(proxy.servers) as log:
        source = FileSource(log, path, topic, name=topic)
        for number in range(4):
            with path.open("a") as file:
                file.write(f"{number}\n")
            if number:
                proxy.lose_answers(request_kind, number)
            assert source.run_once() == 1
        assert proxy.lost == 6
        assert contents(log, topic) == ["0", "1", "2", "3"]


def mirror_of(topic: str, source: TopicLog, target: TopicLog) -> MirrorSource:
    logs = {"west": source, "east": target}
    servers = {f"{alias}.bootstrap.servers": "-" for alias in logs}
    settings = {"clusters": "west, east", "west->east.enabled": "true", "west->east.topics": topic, **servers}
    found = Mirror(settings, lambda cluster: logs[cluster.alias]).flows[0].source
    assert found is not None
    return found


@pytest.mark.parametrize("opened", LOGS, indirect=True)
def test_two_mirrors_of_one_flow_copy_each_record_once(opened: Callable[[], TopicLog], tmp_path: Path) -> None:
    targets, topic = [opened() for _ in range(2)], f"shared-orders-{next(_names)}"
    with open_log(f"sqlite:///{tmp_path / 'west.db'}") as source:
        source.create_topic(topic, 1)
        sent: list[str] = []
        for round_ in range(5):
            mirrors = [mirror_of(topic, source, target) for target in targets]
            for mirror in mirrors:
                mirror.refresh()
            for number in range(10):
                sent.append(f"{round_} {number}")
                with source.transaction("") as transaction:
                    transaction.append(topic, 0, pa.RecordBatch.from_pydict({"value": [sent[-1].encode()]}))
            race(*(each.copy for each in mirrors))
            assert contents(targets[0], f"west.{topic}") == sent
