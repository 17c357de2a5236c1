"""Records that fail while the handler says to continue, in micro-batches: outputs, stores and dead letters are those of one by one.

The tasks are those that Spark's workers run, over the same log, segments and replicas; in half of the runs they die at any
step, and their batches run again.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stages import staged
from test_failures_in_batches import (
    RECORD,
    SETTINGS,
    cogroups,
    everything,
    flattened,
    hopping,
    join_with_a_derived_table,
    searched,
    several_sinks,
    stream_table_join,
    streams_join,
    suppressed,
    tables_join,
    timed,
    topology_of,
)

from batches import cut_in_order
from penstock import Serdes
from penstock.runtime.dead_letters import DeadLetter, error_headers
from penstock.runtime.exception_handlers import Response
from penstock.testing import TopologyTestDriver

TOPICS = ["a", "b", "out", "dead", "elsewhere", "partitioned"]
SHAPES = [
    flattened,
    hopping,
    streams_join("left_join"),
    stream_table_join,
    tables_join("outer_join"),
    join_with_a_derived_table,
    cogroups,
    suppressed,
    several_sinks,
]


def leave_out(context, record, error):
    """Leave the record out, and write a dead letter that says all about it but where in the code it was."""
    headers = [one for one in error_headers(context, error) if not one[0].endswith("stacktrace")]
    return Response.resume([DeadLetter("dead", context.raw_key, context.raw_value, context.timestamp, tuple(headers))])


CONFIG = {**SETTINGS, "processing.exception.handler": leave_out, "production.exception.handler": leave_out}


def one_by_one(topology, records):
    with TopologyTestDriver(topology, {"application.id": "app", **CONFIG}) as driver:
        for topic, key, value, time in records:
            driver.pipe_raw(topic, key.encode(), None if value is None else value.encode(), time)
        return {
            topic: [
                [
                    each.timestamp,
                    each.key.hex(),
                    shown(each.value),
                    [[name, value.hex()] for name, value in each.headers],
                ]
                for each in everything(driver, topic)
            ]
            for topic in TOPICS[2:]
        }


def shown(value):
    return None if value is None else value.hex()


def in_micro_batches(topology, records, seed, *, hurt):
    text = Serdes.of("string")
    run = SimpleNamespace(topology=topology, config=CONFIG, serdes=dict.fromkeys(TOPICS, (text, text)), stores=[])
    rows = [{"topic": topic, "key": key, "value": value, "timestamp": time} for topic, key, value, time in records]
    dice = random.Random(seed) if hurt else None
    with staged(run) as stages:
        for chunk in cut_in_order(rows, seed):
            stages.run(chunk, dice)
        stages.lose_worker()
        return {topic: stages.changelog(topic) for topic in TOPICS[2:]}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_outputs_and_dead_letters_are_those_of_one_by_one(shape):
    topology = topology_of(shape)
    letters = []

    @given(st.lists(RECORD, min_size=15, max_size=30), st.integers(0, 1000))
    @searched(6)
    def search(drawn, seed):
        records = timed(drawn)
        expected = one_by_one(topology, records)
        letters.extend(expected["dead"])
        assert in_micro_batches(topology, records, seed, hurt=bool(seed % 2)) == expected

    search()
    assert letters
