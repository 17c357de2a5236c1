"""Random topologies: how the input is cut into batches changes nothing, and caching changes nothing in the end.

A failure prints its case as JSON. Written to a file it can be run again, without Hypothesis, as ``PENSTOCK_CASE=file``;
tests/conformance interprets the same text, and so does the Java library.
"""

from __future__ import annotations

import pytest
from agreement import agreements
from driving import differences, drive
from support import cases, searching

from interpreter import interpret
from penstock.runtime.task import StreamTask


@searching(share=1.0)
def test_batches_change_nothing(case, split):
    run = interpret(case)
    outputs, stores = agreements(case)
    one_by_one = drive(case, run)
    assert differences(outputs, stores, one_by_one, drive(case, run, by_column=True)) == []
    assert differences(outputs, stores, one_by_one, drive(case, run, split)) == []


@searching(share=0.5)
def test_a_record_by_itself_is_a_batch_of_one(case, split):
    run = interpret(case)
    cache_bytes = (split % 2) << 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamTask, "_path", lambda task, topic: None)
        in_batches = drive(case, run, cache_bytes=cache_bytes)
    assert drive(case, run, cache_bytes=cache_bytes) == in_batches


@searching(share=0.7)
def test_caching_ends_with_the_same_tables(case, split):
    run = interpret(case)
    outputs, stores = agreements(case, cached=True)
    cached = drive(case, run, split, cache_bytes=1 << 20)
    assert differences(outputs, stores, drive(case, run), cached) == []


def test_nearly_everything_is_compared():
    """The rules of what may be compared leave out little."""
    levels = [level for case in cases(60) for found in agreements(case) for level in found.values()]
    assert sum(level > 0 for level in levels) > 0.9 * len(levels)
