"""`MockProcessorContext`: the context of production, and what it keeps for the test."""

from __future__ import annotations

import pytest

from penstock import Processor, Record, Stores
from penstock.api.processing.processor import RecordMetadata
from penstock.errors import ConfigError, InvalidStateError, JavaNameError, TopologyError
from penstock.testing import CapturedForward, MockProcessorContext

COUNTS = Stores.key_value("counts", key_serde="string", value_serde="long")


class Counter(Processor):
    """Counts by key, and sends each count to one child, and each tenth to all."""

    def init(self, context):
        super().init(context)
        self.counts = context.get_state_store("counts")
        self.schedule = context.schedule("10s", "stream_time", self.punctuate)

    def process(self, record):
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count), child="counts")
        if count % 2 == 0:
            self.context.forward(record.with_value(-count))
            self.context.commit()

    def punctuate(self, now_ms):
        self.context.forward(Record("at", now_ms, now_ms))


@pytest.fixture
def context():
    made = MockProcessorContext({"application.id": "shop"}, task_id="1_3")
    made.add_state_store(COUNTS)
    return made


def test_forwards_stores_and_commits_are_kept(context):
    counter = Counter()
    counter.init(context)
    counter.process(Record("a", "x", 5))
    assert not context.committed
    counter.process(Record("a", "y", 6))
    sent = [(each.record.value, each.child) for each in context.forwarded()]
    assert sent == [(1, "counts"), (2, "counts"), (-2, None)]
    assert context.forwarded("counts") == context.forwarded()
    assert context.forwarded("others") == [CapturedForward(Record("a", -2, 6), None)]
    assert context.get_state_store("counts").get("a") == 2
    assert context.committed
    context.reset_commit()
    context.reset_forwards()
    assert not context.committed
    assert context.forwarded() == []


def test_punctuators_are_kept_and_run_by_the_test_alone(context):
    counter = Counter()
    counter.init(context)
    context.schedule("2s", "wall_clock_time", counter.punctuate, start=500)
    by_stream, by_clock = context.scheduled_punctuators()
    assert (by_stream.interval_ms, by_stream.type, by_stream.start_ms) == (10_000, "stream_time", None)
    assert (by_clock.interval_ms, by_clock.type, by_clock.start_ms) == (2_000, "wall_clock_time", 500)
    context.set_current_stream_time_ms(60_000)
    assert context.forwarded() == []
    by_stream.punctuator(60_000)
    assert [each.record for each in context.forwarded()] == [Record("at", 60_000, 60_000)]
    counter.schedule.cancel()
    assert (by_stream.cancelled, by_clock.cancelled) == (True, False)
    by_clock.cancel()
    assert [each.cancelled for each in context.scheduled_punctuators()] == [True, True]


def test_what_a_processor_asks_for(context):
    assert (context.application_id, context.task_id, context.config["application.id"]) == ("shop", "1_3", "shop")
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (-1, 0)
    assert context.record_metadata() is None
    context.set_record_metadata("orders", 3, 17)
    context.set_current_stream_time_ms(1_000)
    context.set_current_system_time_ms("1970-01-01T00:00:02Z")
    assert context.record_metadata() == RecordMetadata("orders", 3, 17)
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (1_000, 2_000)


def test_stores_have_the_default_serdes_and_follow_stream_time():
    context = MockProcessorContext({"default.key.serde": "string", "default.value.serde": "long"})
    brief = context.add_state_store(Stores.key_value("brief", ttl="1s"))
    windows = context.add_state_store(Stores.window("windows", retention="1 hour", size="1 minute"))
    context.set_current_stream_time_ms(0)
    brief.put("a", 1)
    windows.put("a", 7, 60_000)
    assert (brief.get("a"), windows.fetch("a", 60_000)) == (1, 7)
    context.set_current_stream_time_ms(5_000)
    assert brief.get("a") is None


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda c: c.get_state_store("count"), TopologyError, "asks for a state store 'count'"),
        (lambda c: c.add_state_store(COUNTS), TopologyError, "there is a state store 'counts' already"),
        (lambda c: c.add_state_store("counts"), TopologyError, "a store of penstock.Stores"),
        (lambda c: c.forward(("a", 1)), TopologyError, "which is not a Record"),
        (lambda c: c.schedule("0s", "stream_time", print), TopologyError, "at least 1 ms"),
        (lambda c: c.schedule("1s", "no_time", print), TopologyError, "'no_time' is not a punctuation type"),
        (lambda c: c.set_record_metadata("orders", -1, 0), (TopologyError, InvalidStateError), "partition"),
        (lambda _: MockProcessorContext(task_id="zero"), ConfigError, "'zero' is not the id of a task"),
        (lambda c: c.appConfigs, JavaNameError, "it is config here"),
        (lambda c: c.scheduledPunctuators, JavaNameError, "it is scheduled_punctuators here"),
    ],
)
def test_mistakes_are_those_of_production(context, wrong, error, message):
    with pytest.raises(error, match=message):
        wrong(context)
