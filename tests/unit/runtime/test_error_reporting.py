"""Dropped records have one line a second for each reason, with their number; none is forgotten."""

from __future__ import annotations

import logging
import re

from penstock import StreamsBuilder
from penstock.runtime.error_reporting import DropLines
from penstock.testing import TopologyTestDriver


def test_one_line_a_second_with_the_number(caplog):
    now = [100.0]
    lines = DropLines("0_0", logging.getLogger("penstock.test"), lambda: now[0])
    for number in range(30):
        now[0] += 0.1
        lines.add(("node", "late"), 1, "late", ("t", 0, number))
        lines.write()
    lines.add(("node", "null"), 2, "null", None)
    lines.write()  # another reason has its own line at once
    lines.write(closing=True)
    said = [record.getMessage() for record in caplog.records]
    counts = [int(re.search(r"dropped (\d+)", text)[1]) for text in said if "late" in text]
    assert counts[0] == 1
    assert len(counts) in (4, 5)
    assert sum(counts) == 30
    assert [text for text in said if "null" in text] == ["task 0_0: node dropped 2 records: null"]
    assert "offset 29" in [text for text in said if "late" in text][-1]


def test_record_by_record_in_the_driver(caplog):
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count()
    config = {"default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.input_topic("in")
        for _ in range(200):
            topic.pipe("x")
        assert driver.dropped_records == 200
    said = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert len(said) < 20
    assert sum(int(re.search(r"dropped (\d+)", text)[1]) for text in said) == 200
