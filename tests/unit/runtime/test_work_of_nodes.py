"""Rows and seconds of operators are counted by column and record by record alike."""

import time

import pytest

from penstock import StreamsBuilder, TopologyTestDriver
from penstock.api.processing.processor import Processor

TEXTS = {"default.key.serde": "string", "default.value.serde": "string"}
PAUSE_S = 0.01


class Twice(Processor):
    def init(self, context):
        self.context = context

    def process(self, record):
        self.context.forward(record)
        self.context.forward(record)


class Clock:
    """Stands still but for what `slowly` takes, and a little for each look at it."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1e-6
        return self.now_s


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def slowly(value):
    time.perf_counter.now_s += PAUSE_S
    return value


def figures(**how):
    """Return the rows in, rows out and seconds of each operator after three records."""
    builder = StreamsBuilder()
    doubled = builder.stream("in").process(Twice, name="twice")
    doubled.map_values(slowly, name="slow").filter(lambda _, value: value != "b", name="some").to("out")
    with TopologyTestDriver(builder.build(), TEXTS, **how) as driver:
        for value in "abc":
            driver.input_topic("in").pipe(value, "k")
        driver.flush()

        def of(node):
            names = ("rows-in", "rows-out", "seconds")
            return [driver.metrics.value(f"node-{name}-total", processor_node_id=node) for name in names]

        return {node: of(node) for node in ("twice", "slow", "some")}


@pytest.mark.parametrize("how", [{"batch_size": 1}, {"batch_size": 1, "by_column": True}, {"batch_size": 3}])
def test_rows_of_operators_are_counted(how):
    assert {node: rows for node, (*rows, _) in figures(**how).items()} == {
        "twice": [3, 6],
        "slow": [6, 6],
        "some": [6, 4],
    }


def test_the_time_of_a_processor_is_without_that_of_its_children():
    seconds = {node: each[2] for node, each in figures(batch_size=1).items()}
    assert seconds["slow"] >= 6 * PAUSE_S
    assert 0 < seconds["twice"] < 3 * PAUSE_S
    assert 0 < seconds["some"] < 3 * PAUSE_S
