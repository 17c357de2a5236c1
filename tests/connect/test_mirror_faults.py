"""The mirror's copies in real workers, whose tasks and workers are killed or stopped: nothing is lost or doubled."""

import os
import random
import signal
import threading
from collections import Counter

import pytest

from brokers import running_broker
from connect_group import committed_values, eventually
from connect_soak import FAULTS, ROUND_S, Soak
from penstock.log import Producer, open_log

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
COPY, PARTITIONS = "west.orders", 4


class MirrorSoak(Soak):
    """Workers at the target with a mirror of the source.

    Args:
        folder: Where everything is.
        source: The source's log.
        target: The target's log, which is also the workers'.
    """

    connectors = ("mirror",)

    def __init__(self, folder, source, target, workers=2):
        super().__init__(folder, target, random.Random(11), step=400, workers=workers)
        self.source = source
        with open_log(source) as log:
            log.create_topic("orders", PARTITIONS)

    def configure(self, tasks):
        servers = {"source.cluster.bootstrap.servers": self.source, "target.cluster.bootstrap.servers": self.url}
        converters = {f"{role}.converter": BYTES for role in ("key", "value", "header")}
        self.put("mirror", {
            "connector.class": "MirrorSource", "tasks.max": str(tasks), "topics": "orders", "source.cluster.alias": "west",
            "target.cluster.alias": "east", "consumer.max.poll.records": "20", **servers, **converters,
        })  # fmt: skip

    def write(self, count):
        """Write numbers that go on where the last ones ended."""
        with open_log(self.source) as log, Producer(log) as producer:
            for number in range(self.records, self.records + count):
                producer.send("orders", str(number).encode(), partition=number % PARTITIONS)
        self.records += count

    def round(self, fault):
        """Copy some records, let the fault come, copy more; raises AssertionError if one is lost or doubled."""
        self.configure(self.choice.randint(1, 3))
        self.write(self.step)
        eventually(lambda: self.heal() or any(worker.tasks() for worker in self.workers), ROUND_S, "a task runs")
        undo = getattr(self, fault.replace("-", "_"))()
        self.write(self.step)
        wanted = {str(number) for number in range(self.records)}
        eventually(lambda: self.heal() or set(self.copies()) >= wanted, ROUND_S, "all is copied")
        undo()
        self.write(1)  # a copier that has slept does not write what others have written
        eventually(lambda: self.heal() or str(self.records - 1) in self.copies(), ROUND_S, "it goes on")
        assert {value: count for value, count in Counter(self.copies()).items() if count > 1} == {}

    def copies(self):
        return committed_values(self.url, COPY)


def test_a_killed_copier_loses_and_doubles_nothing_between_embedded_logs(tmp_path):
    with MirrorSoak(tmp_path, f"sqlite:///{tmp_path}/west.db", f"sqlite:///{tmp_path}/east.db", workers=1) as soak:
        soak.round("kill-task")


@pytest.mark.whole
def test_faults_of_copiers_between_embedded_logs(tmp_path):
    with MirrorSoak(tmp_path, f"sqlite:///{tmp_path}/west.db", f"sqlite:///{tmp_path}/east.db") as soak:
        for fault in FAULTS:
            soak.round(fault)


@pytest.mark.whole
def test_faults_of_copiers_between_brokers(tmp_path):
    with running_broker(tmp_path / "west") as west, running_broker(tmp_path / "east") as east:
        servers = (broker.settings.bootstrap_servers for broker in (west, east))
        with MirrorSoak(tmp_path, *servers) as soak:
            for fault in FAULTS:
                soak.round(fault)


@pytest.mark.whole
def test_a_copier_that_sleeps_in_the_middle_of_a_batch_goes_on_after_it(tmp_path):
    with MirrorSoak(tmp_path, f"sqlite:///{tmp_path}/west.db", f"sqlite:///{tmp_path}/east.db", workers=1) as soak:
        soak.configure(1)
        soak.write(2000)
        eventually(soak.copies, ROUND_S, "the copy has begun")
        [task] = soak.workers[0].tasks()
        for _ in range(5):
            os.kill(task, signal.SIGSTOP)
            writing = threading.Thread(target=soak.write, args=[100])  # it may wait for a lock that the copier holds
            writing.start()
            writing.join(2)
            os.kill(task, signal.SIGCONT)
            writing.join()
        eventually(lambda: len(soak.copies()) >= soak.records, ROUND_S, "all is copied")
        assert sorted(map(int, soak.copies())) == list(range(soak.records))
