"""Records as columns: the same outcome as record by record, whatever fails, and topics that come later."""

import threading
import time

import pytest

from penstock.connect.connectors import known_plugins
from penstock.connect.data import STRING, SinkBatch, SinkColumns, SourceBatch, SourceRecord
from penstock.connect.delivery import Pipeline, SourceSteps
from penstock.connect.delivery.local_run import ConnectorRun
from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConnectError
from penstock.log import Consumer, Producer
from penstock.log.open import open_log
from test_connect_worker import FILE_SINK, ask, settings, until

PLACE = "org.apache.kafka.connect.transforms."
PLUGINS = known_plugins(())
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CHAINS = {
    "none": {},
    "columns": {"transforms": "a", "transforms.a.type": f"{PLACE}HoistField$Value", "transforms.a.field": "line"},
    "rows": {"transforms": "a", "transforms.a.type": f"{PLACE}RegexRouter", "transforms.a.regex": "(.*)",
             "transforms.a.replacement": "to-$1"},
    "both": {"transforms": "a,b", "transforms.a.type": f"{PLACE}HoistField$Value", "transforms.a.field": "line",
             "transforms.b.type": f"{PLACE}InsertField$Value", "transforms.b.topic.field": "topic"},
    "drop": {"transforms": "a", "transforms.a.type": f"{PLACE}Filter"},
}  # fmt: skip


def batch(values, **more):
    return SourceBatch("lines", values, STRING, {"f": 1}, lambda row: {"at": row + 1}, **more)


def outcome(records, config):
    made = SourceSteps(Pipeline.of({"key.converter": STRINGS, **config}, PLUGINS), 2000).convert(records)
    columns = [(each.topic, each.values, each.keys or [None] * len(each.values)) for each in made.outgoing]
    positions = [record.source_offset for record in made.records]
    return columns, positions, made.dropped, made.skipped, str(made.failure)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("tolerance", ["none", "all"])
@pytest.mark.parametrize("values", [["a", "b"], ["a", 7, "c"], ["a", "x" * 3000, "c"], ["a", None], ['"\ud83d', "é"]])
def test_a_batch_ends_as_its_single_records_do(chain, tolerance, values):
    for converter in (STRINGS, BYTES, "org.apache.kafka.connect.json.JsonConverter"):
        config = {"value.converter": converter, "errors.tolerance": tolerance, **CHAINS[chain]}
        assert outcome(batch(values), config) == outcome(list(batch(values)), config)
        keyed = batch(values, keys=list(values), key_schema=STRING, timestamps=[1] * len(values), partition=0)
        assert outcome(keyed, config) == outcome(list(keyed), config)


def test_a_batch_is_a_sequence_of_records():
    made = batch(["a", "b", "c"])
    assert [record.value for record in made] == ["a", "b", "c"]
    assert made[-1] == made[2] == made[1:][1]
    assert isinstance(made[0], SourceRecord)
    with pytest.raises(IndexError):
        made[3]


def test_records_of_a_put_are_made_when_they_are_asked_for_and_can_be_taken_out_by_partition():
    parts = [SinkColumns("t", number, [5, 6], [1, 2], [None] * 2, None, ["a", "b"], None) for number in range(2)]
    whole = SinkBatch(parts)
    assert [(r.partition, r.offset, r.value) for r in whole][2:] == [(1, 5, "a"), (1, 6, "b")]
    assert [record.partition for record in whole.without([("t", 0)])] == [1, 1]


def test_what_stands_before_a_record_that_fails_is_written(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("good\n" + "x" * 2_000_000 + "\n")
    log = open_log("memory://")
    config = {
        "name": "f", "connector.class": "FileStreamSource", "file": str(file), "topic": "lines",
        "value.converter": STRINGS,
    }  # fmt: skip
    with pytest.raises(ConnectError, match=r"max\.request\.size"):
        ConnectorRun(log, config, PLUGINS).run(threading.Event(), once=True)
    with Consumer(log) as consumer:
        consumer.subscribe("lines")
        assert [record.value for record in consumer.poll()] == [b"good"]


def test_a_sink_waits_for_a_topic_that_does_not_exist_yet(tmp_path):
    given = settings(tmp_path, **{"tasks.in.process": "true"})
    server = WorkerServer(WorkerConfig.of(given, "distributed"))
    server.start()
    try:
        assert server.wait_until_ready(120)
        out = tmp_path / "out.txt"
        config = {"connector.class": FILE_SINK, "topics": "later,never", "file": str(out), "tasks.max": "1"}
        assert ask(server, "POST", "/connectors", {"name": "s", "config": config})[0] == 201
        until(lambda: _state(server) == "RUNNING")
        time.sleep(0.3)
        assert _state(server) == "RUNNING"
        with open_log(given["bootstrap.servers"]) as log, Producer(log) as producer:
            log.create_topic("later")
            producer.send("later", b"here")
        until(lambda: out.exists() and out.read_text() == "here\n")
    finally:
        server.stop()


def _state(server):
    tasks = ask(server, "GET", "/connectors/s/status")[1].get("tasks")
    return tasks[0]["state"] if tasks else None
