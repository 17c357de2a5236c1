"""``KStream.sink_to``: a topic that a sink connector carries on."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Produced, StreamsBuilder
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology.nodes import SinkNode

TEXTS = {"default.key.serde": "string", "default.value.serde": "string"}


def test_in_a_test_driver_the_records_are_in_the_topic() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.sink_to(
        {"connector.class": "DeltaSink", "flush.size": 10},
        topic="kept",
        produced=Produced(key_serde="string", value_serde="string"),
    )
    with TopologyTestDriver(builder.build(), TEXTS) as driver:
        driver.input_topic("in").pipe("v", key="k")
        assert driver.output_topic("kept").read_key_value() == ("k", "v")


def test_settings_are_kept_as_texts_and_not_shown() -> None:
    builder = StreamsBuilder()
    settings = {"connector.class": "DeltaSink", "flush.size": 10, "compact": True, "storage.options": "secret"}
    builder.stream("in").sink_to(settings, topic="kept", name="sink")
    node = builder.build().nodes["sink"]
    assert isinstance(node, SinkNode)
    assert dict(node.connector) == {
        "connector.class": "DeltaSink",
        "flush.size": "10",
        "compact": "true",
        "storage.options": "secret",
    }
    assert "secret" not in repr(node)


@pytest.mark.parametrize(
    ("connector", "said"),
    [
        ({}, "has no connector.class"),
        ({"connector.class": ""}, "has no connector.class"),
        ({"connector.class": "DeltaSink", "topics": "other"}, "has topics"),
        ({"connector.class": "DeltaSink", "topics.regex": ".*"}, "has topics.regex"),
        ({"connector.class": "DeltaSink", "flush.size": None}, "setting 'flush.size' is None"),
        ({1: "DeltaSink"}, "setting 1 is"),
        ("DeltaSink", "a mapping of names and values"),
    ],
)
def test_what_is_no_connector_is_refused(connector: Any, said: str) -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=said):
        stream.sink_to(connector, topic="kept")


def test_the_topic_has_one_name() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError):
        stream.sink_to({"connector.class": "DeltaSink"}, topic=lambda _key, _value: "kept")  # type: ignore[arg-type]
