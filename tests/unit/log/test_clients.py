from __future__ import annotations

import pytest

from penstock.errors import InvalidStateError
from penstock.log.base import TopicPartition
from penstock.log.consumer import Consumer
from penstock.log.producer import Producer
from penstock.serde.partitioner import partition_for


def test_produce_and_consume(log):
    log.create_topic("t", 3)
    keys = [b"k%d" % i for i in range(50)]
    with Producer(log, linger_ms=10_000) as producer:
        for i, key in enumerate(keys):
            producer.send("t", b"v%d" % i, key=key, timestamp=i, headers=[("h", b"x")])
        assert sum(log.end_offsets(["t"]).values()) == 0
    consumer = Consumer(log, group="g")
    consumer.subscribe(["t"])
    found = list(consumer.records())
    assert sorted(record.timestamp for record in found) == list(range(50))
    assert all(record.partition == partition_for(record.key, 3) for record in found)
    assert found[0].headers == (("h", b"x"),)
    assert list(consumer.records()) == []
    consumer.commit()
    again = Consumer(log, group="g")
    again.subscribe(["t"])
    assert again.positions == consumer.positions
    with pytest.raises(InvalidStateError):
        producer.send("t", b"late")


def test_linger_and_size(log):
    log.create_topic("t")
    producer = Producer(log, linger_ms=0)
    producer.send("t", b"a")
    assert log.end_offset("t", 0) == 1
    producer = Producer(log, linger_ms=60_000, batch_bytes=1_000)
    producer.send("t", b"b" * 500)
    assert log.end_offset("t", 0) == 1
    producer.send("t", b"c" * 500)
    assert log.end_offset("t", 0) == 3


def test_batches_go_where_single_records_go(log, batch):
    log.create_topic("t", 4)
    keys = [b"k%d" % i for i in range(40)] + [None]
    Producer(log).send_batch("t", batch([b"v"] * 41, keys))
    consumer = Consumer(log)
    consumer.subscribe(["t"])
    found = list(consumer.records())
    assert len(found) == 41
    assert all(record.key is None or record.partition == partition_for(record.key, 4) for record in found)


def test_ranges(log, batch):
    log.create_topic("t")
    log.append("t", 0, batch([b"%d" % i for i in range(10)], timestamps=list(range(0, 100, 10))))
    place = TopicPartition("t", 0)
    consumer = Consumer(log)
    consumer.assign({place: 2}, {place: 5})
    assert [record.offset for record in consumer.records()] == [2, 3, 4]
    assert consumer.finished
    assert consumer.poll(timeout_s=60) == []
    consumer.assign({place: 0})
    consumer.seek_to_time(15, until=50)
    assert [record.offset for record in consumer.records()] == [2, 3, 4]
    log.delete_records("t", 0, 7)
    consumer.assign({place: 0})
    assert [record.offset for record in consumer.records()] == [7, 8, 9]
    latest = Consumer(log, auto_offset_reset="latest")
    latest.subscribe(["t"])
    assert latest.poll(timeout_s=0.01) == []
