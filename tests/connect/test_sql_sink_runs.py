"""Two runs of a sink's task to SQL at a time, as when one hangs and goes on: each record is a row once."""

from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, text

from penstock.connect.connectors.sql_sink import SqlSinkTask
from penstock.connect.data import INT64, RetriableError, SinkRecord, Struct, struct
from penstock.log.base import TopicPartition

PLACE, ROW = TopicPartition("t", 0), struct({"n": INT64})


class Run:
    """A run of the task, and the offsets that it asks for."""

    def __init__(self, url):
        self.asked = {}
        self.task = SqlSinkTask()
        self.task.context = SimpleNamespace(log_identity="log", offset=self.asked.update, timeout=lambda ms: None)
        self.task.start({"name": "s", "connection.url": url, "auto.create": "true", "topics": "t"})
        self.task.open([PLACE])

    def put(self, *numbers):
        rows = [
            SinkRecord(topic="t", partition=0, offset=n, value=Struct(ROW, {"n": n}), value_schema=ROW) for n in numbers
        ]
        self.task.put(rows)


@pytest.mark.parametrize("first", [(), (0, 1, 2)], ids=["from the start", "later"])
def test_a_run_that_goes_on_after_another_has_begun_writes_nothing_twice(first, tmp_path):
    url = f"sqlite:///{tmp_path}/out.db"
    begun = Run(url)
    if first:
        begun.put(*first)
    old = Run(url)  # it has records 3 to 5, and hangs
    new = Run(url)
    assert new.asked == ({PLACE: 3} if first else {})
    new.put(3, 4, 5)
    new.put(6, 7)
    with pytest.raises(RetriableError, match="another run"):
        old.put(3, 4, 5)
    old.put(3, 4, 5)
    new.put(8)
    with create_engine(url).connect() as connection:
        assert sorted(connection.execute(text("SELECT n FROM t")).scalars()) == [*first, *range(3, 9)]
        assert connection.execute(text("SELECT next_offset FROM penstock_sink_offsets")).scalars().all() == [9]
    for run in (begun, old, new):
        run.task.stop()


def test_records_of_a_topic_that_was_made_again_are_written(tmp_path):
    url = f"sqlite:///{tmp_path}/out.db"
    old = Run(url)
    old.put(0, 1, 2)
    old.task.stop()
    new = Run(url)
    assert new.asked == {PLACE: 3}
    new.put(0, 1)  # the log has no offset 3, and so begins at the first
    new.put(2)
    with create_engine(url).connect() as connection:
        assert sorted(connection.execute(text("SELECT n FROM t")).scalars()) == [0, 0, 1, 1, 2, 2]
    new.task.stop()
