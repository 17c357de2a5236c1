"""Changelog records of suppress: those of stores that keep no headers all have the same one, made as a column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.state.changelog import buffers
from penstock.state.changelog.buffers import ChangeBufferFormat
from penstock.state.maps import CHANGES_SCHEMA
from penstock.state.views.change_buffer import BufferedChange


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_version_as_a_column_is_that_of_single_records(count):
    made = buffers._version_headers(count)
    made.validate(full=True)
    assert made.equals(buffers._record_headers([()] * count))


def test_each_record_has_the_version_of_the_format():
    keys = [b"k" + str(i).encode() for i in range(3)]
    rows = [BufferedChange(i, i, b"in", 0, i, (), None, None, b"value").pack() for i in range(2)]
    columns = zip([keys, [*rows, None]], CHANGES_SCHEMA, strict=True)
    changes = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=CHANGES_SCHEMA)
    records = ChangeBufferFormat().records(changes, {})
    found = {row["key"]: row["headers"] for row in records.to_pylist()}
    version = [{"key": "v", "value": b"\x03"}]
    assert found == {b"0": version, b"1": version, b"2": None}
