"""The console and the metrics of an application show the same record of its batches, also after a restart."""

import time

import pytest

from penstock import StreamsBuilder, StreamsConfig
from penstock.console.recorder import Recorder, Watched
from penstock.engines.app_metrics import AppMetrics
from penstock.engines.lifecycle import State
from penstock.engines.spark.progress import BatchProgress


class Running:
    """The metrics of an application and its recorder, as an application joins them."""

    def __init__(self, checkpoint):
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        config = StreamsConfig({"application.id": "app", "bootstrap.servers": "memory://m"})
        self.metrics = AppMetrics(builder.build(), config, lambda: State.RUNNING)
        self.recorder = Recorder.of(config, lambda: "RUNNING", self.metrics.batches)
        self.metrics.also = self.recorder.take
        facts = (dict, dict, {}, dict)
        self.recorder.begin(Watched(str(checkpoint), *facts, catch_up=self.metrics.catch_up))

    def batch(self, number):
        task = {"task": "0_0", "records_read": 3, "seconds": {"read": 0.25, "process": 0.5}, "replica": ["worker-1", 0]}
        self.metrics(BatchProgress(number, 3, 2, 1, 0, tasks=(task,), segment_bytes=70, seconds=1.0))

    def shown(self, number):
        """Wait until the recorder shows a batch; return the numbers of the batches that it shows."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            numbers = [line[0] for line in self.recorder.document().get("lines", ())]
            if number in numbers:
                return numbers
            time.sleep(0.02)
        raise TimeoutError(number)


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path


def test_a_batch_that_the_metrics_have_counted_is_shown_as_they_have_it(checkpoint):
    running = Running(checkpoint)
    running.batch(0)
    assert running.shown(0) == [0]
    (record,) = running.metrics.batches
    ((number, ended_ms, seconds, *done, _, skew, size, steps),) = running.recorder.document()["lines"]
    assert (number, ended_ms, seconds, *done) == (0, record.ended_ms, 1.0, 3, 2, 1)
    assert (skew, size, steps) == (record.skew, 70, {"read": 0.25, "process": 0.5})
    (chart,) = running.recorder.document()["tasks"]
    assert [(task["task"], task["host"], task["records"]) for task in chart["tasks"]] == [("0_0", "worker-1", 3)]
    running.recorder.close()


def test_the_batches_of_the_run_before_are_shown_after_a_restart(checkpoint):
    before = Running(checkpoint)
    for number in range(3):
        before.batch(number)
    before.recorder.close()  # with what nobody has counted yet
    after = Running(checkpoint)
    after.batch(0)  # stream threads count anew
    assert after.shown(0)[:3] == [0, 1, 2]
    deadline = time.monotonic() + 120
    while len(after.recorder.document()["lines"]) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [line[0] for line in after.recorder.document()["lines"]] == [0, 1, 2, 0]
    history = after.metrics.batches
    assert [batch.number for batch in history] == [0]
    assert [batch.number for batch in history.earlier] == [0, 1, 2]
    assert [batch.number for batch in history.after(-1)] == [0]
    assert (history.earlier[0].records_in, history.earlier[0].seconds) == (3, 1.0)
    after.recorder.close()
