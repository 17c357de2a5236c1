"""Records that fail: batches put again one by one, and dead letters of sinks and sources."""

import pytest

from penstock.connect.data import DataError, RetriableError, SinkRecord, SourceRecord
from penstock.connect.delivery.record_errors import FailedRecord
from penstock.connect.delivery.sink import put_by_record
from penstock.connect.tasks.dead_letters import DeadLetters
from penstock.log.open import open_log

BATCH = [SinkRecord(topic="t", partition=0, offset=at, value=value) for at, value in enumerate(["a", "b", "c"])]


def refusing(values, error):
    def put(records):
        for record in records:
            if record.value in values:
                raise error

    return put


def test_the_records_at_fault_are_found_and_the_others_put():
    failed = put_by_record(refusing({"b"}, ValueError("no")), BATCH, ValueError("no"))
    assert [(each.record.offset, str(each.error)) for each in failed] == [(1, "no")]
    failed = put_by_record(refusing({"a", "b", "c"}, DataError("no")), BATCH, DataError("no"))
    assert [each.record.offset for each in failed] == [0, 1, 2]


def test_a_target_that_refuses_everything_is_at_fault_itself():
    assert put_by_record(refusing({"a", "b", "c"}, ValueError("away")), BATCH, ValueError("away")) is None
    assert put_by_record(refusing({"a"}, ValueError("away")), BATCH[:1], ValueError("away")) is None
    assert [
        each.record.offset for each in put_by_record(refusing({"a"}, DataError("x")), BATCH[:1], DataError("x"))
    ] == [0]
    assert put_by_record(refusing({}, ValueError("x")), [], ValueError("flush")) is None
    with pytest.raises(RetriableError):
        put_by_record(refusing({"c"}, RetriableError("later")), BATCH, ValueError("no"))


def test_a_record_of_a_source_is_a_dead_letter_as_json_with_its_place():
    log = open_log("memory://")
    letters = DeadLetters(log, "dead", ("reader", 1), headers=True)
    record = SourceRecord(
        topic="rows", key="k", value={"n": 1}, source_partition={"table": "users"}, source_offset={"id": 7}
    )
    letters.report(FailedRecord("VALUE_CONVERTER", "x.Converter", DataError("no schema"), None, record))
    letters.close()
    row = log.read("dead", 0, 0).records.to_pylist()[0]
    headers = {each["key"]: each["value"] for each in row["headers"]}
    assert (row["key"], row["value"]) == (b"k", b'{"n": 1}')
    assert headers["__connect.errors.topic"] == b"rows"
    assert headers["__connect.errors.source.partition"] == b'{"table": "users"}'
    assert headers["__connect.errors.source.offset"] == b'{"id": 7}'
    assert headers["__connect.errors.exception.message"] == b"no schema"
