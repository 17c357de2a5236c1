from __future__ import annotations

import pyarrow as pa

from penstock.log.base import TopicPartition
from penstock.log.groups.group_admin import lag
from penstock.log.open import open_log


def test_lag():
    with open_log("memory://") as log:
        log.create_topic("a", 2)
        log.create_topic("b")
        log.append("a", 0, pa.RecordBatch.from_pydict({"value": [b"x"] * 5}))
        log.append("b", 0, pa.RecordBatch.from_pydict({"value": [b"x"] * 3}))
        log.delete_records("b", 0, 1)
        log.commit_offsets("g", {TopicPartition("a", 0): 2, TopicPartition("gone", 0): 9})
        found = lag(log, "g", ["b"])
    assert [(each.topic, each.partition, each.committed, each.end_offset, each.lag) for each in found] == [
        ("a", 0, 2, 5, 3),
        ("a", 1, None, 0, 0),
        ("b", 0, None, 3, 2),
    ]
