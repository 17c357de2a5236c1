"""A transaction that has ended for its coordinator and is still open in a partition: the application goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eventually import eventually
from penstock.log.base import TopicPartition
from penstock.log.kafka.clients import fetcher as fetcher_module
from penstock.log.kafka.transactions.ledger import ledger_topic, partition_of
from penstock.log.kafka.wire.transactions import ProducerTransactions
from penstock.log.open import open_log
from penstock.tools.broker.process import Broker

CHECKS = "transaction.partition.verification.enable"


class LosesAnEnd(ProducerTransactions):
    """Tells the coordinator of one partition only, so that only this one gets a marker, as if the others' had been lost."""

    def __init__(self, known: TopicPartition, committed: bool, *given) -> None:
        super().__init__(*given)
        self.known = known
        self.committed = committed

    def init(self, timeout_ms: int, *, again: bool = False) -> None:
        super().init(timeout_ms, again=again)
        self._is_of_kafka_4 = False  # else records add their partitions by themselves

    def _add(self, places, *, with_offsets: bool) -> None:
        super()._add({self.known}, with_offsets=with_offsets)

    def _end(self, *, committed: bool) -> None:
        del committed
        super()._end(committed=self.committed)


@contextmanager
def a_broker_that_does_not_check(broker: Broker) -> Iterator[None]:
    """While it is open, records may come into partitions that are not part of their transaction."""

    def say(value: str) -> None:
        with open_log(broker.settings.bootstrap_servers) as log:
            entry = ConfigEntry(CHECKS, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            log.clients.admin().incremental_alter_configs([resource])[resource].result(30)

    say("false")
    try:
        yield
    finally:
        say("true")


@pytest.mark.parametrize("committed", [True, False])
def test_what_the_broker_has_left_open_ends_as_it_was_decided(kafka, committed, caplog):
    application = f"hanging-{committed}"
    with open_log(kafka.settings.bootstrap_servers) as log, a_broker_that_does_not_check(kafka):
        log.create_topic(f"{application}-out", 1)
        log.release_lease(log.acquire_lease(application, "test", 30_000))
        out = TopicPartition(f"{application}-out", 0)
        entry = TopicPartition(ledger_topic(application), partition_of("0_0"))
        clients = log.clients
        writer = LosesAnEnd(out, committed, clients.cluster(), f"{application}-0_0", "", clients.limits())
        writer.init(30_000)
        value = json.dumps({"batch": 7, "epoch": 1}).encode()
        record = pa.RecordBatch.from_pydict(
            {
                "timestamp": pa.array([1]),
                "key": pa.array([b"0_0"], pa.large_binary()),
                "value": pa.array([value], pa.large_binary()),
            }
        )
        writer.write([(out, record), (entry, record)], {})
        writer.end()
        assert log.end_offsets([entry.topic])[entry] < log._topics.ends([entry.topic], committed=False)[entry]

        assert log.ledger(application) == ({"0_0": 7} if committed else {})

        assert log.end_offsets([entry.topic]) == log._topics.ends([entry.topic], committed=False)
        assert f"transaction of {application}-0_0 was open in {entry.topic}-{entry.partition}" in caplog.text


def hang(log, application: str, committed: bool) -> TopicPartition:
    """Leave a transaction of a stream thread open in a topic of its application; return the partition."""
    topics = [f"{application}-out", f"{application}-changelog"]
    for topic in topics:
        log.create_topic(topic, 1)
    known, lost = (TopicPartition(topic, 0) for topic in topics)
    clients = log.clients
    writer = LosesAnEnd(known, committed, clients.cluster(), f"{application}-thread-0", "", clients.limits())
    writer.init(30_000)
    columns = {
        "timestamp": [1],
        "key": pa.array([b"k"], pa.large_binary()),
        "value": pa.array([b"v"], pa.large_binary()),
    }
    record = pa.RecordBatch.from_pydict(columns)
    writer.write([(known, record), (lost, record)], {})
    writer.end()
    assert log.end_offsets([lost.topic])[lost] == 0
    return lost


@pytest.mark.parametrize("committed", [True, False])
def test_a_changelog_is_whole_before_threads_restore_it(kafka, committed):
    application = f"hanging-threads-{committed}"
    with open_log(kafka.settings.bootstrap_servers) as log, a_broker_that_does_not_check(kafka):
        lease = log.acquire_lease(application, "test", 30_000)
        lost = hang(log, application, committed)
        log.fence_threads(application, ["thread-0"], lease.epoch)
        assert log.read(lost.topic, 0, 0).records.num_rows == committed
        assert log.end_offsets([lost.topic]) == log._topics.ends([lost.topic], committed=False)


def test_a_thread_that_waits_for_its_own_transaction_ends_it(kafka, monkeypatch, caplog):
    monkeypatch.setattr(fetcher_module, "_STUCK_S", 0.5)
    application = "hanging-fetcher"
    with open_log(kafka.settings.bootstrap_servers) as log, a_broker_that_does_not_check(kafka):
        lost = hang(log, application, committed=True)
        with log.fetcher(application) as fetcher:
            fetcher.assign({lost: 0})
            found = eventually(lambda: fetcher.poll(0.2))
        assert found[lost].records.column("value").to_pylist() == [b"v"]
        assert f"{lost.topic}-0: a transaction has been open at offset 0" in caplog.text
