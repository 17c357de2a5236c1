"""Every public method of Kafka Streams is there in snake_case, or its name ends in an error that says what is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import StreamsConfig
from penstock.base.java_names import JAVA_CLASSES, JAVA_NAMES, camel_case, snake_case
from penstock.errors import JavaNameError

METHODS = dict(
    line.split(": ", 1)
    for line in (Path(__file__).parent / "java_methods.txt").read_text().splitlines()
    if not line.startswith("#")
)
CONSTANTS = dict(constant.split("=", 1) for constant in METHODS.pop("StreamsConfig constants").split())

# Where the classes are that `penstock` itself does not name, by Java's name.
ELSEWHERE = {
    "BranchedKStream": "api.stream",
    "CogroupedKStream": "api.groups.grouped",
    "KGroupedStream": "api.groups.grouped",
    "KGroupedTable": "api.groups.grouped",
    "SessionWindowedCogroupedKStream": "api.groups.grouped",
    "SessionWindowedKStream": "api.groups.grouped",
    "TimeWindowedCogroupedKStream": "api.groups.grouped",
    "TimeWindowedKStream": "api.groups.grouped",
    "FixedKeyProcessorContext": "runtime.processors:NodeContext",
    "ProcessorContext": "runtime.processors:NodeContext",
    "HostInfo": "query.instances",
    "RecordHeaders": "serde",
    "KeyQueryMetadata": "query.instances",
    "StreamsMetadata": "query.instances",
    "KeyValueStore": "state.views:KeyValueView",
    "ReadOnlyKeyValueStore": "query.stores",
    "ReadOnlySessionStore": "query.stores",
    "ReadOnlyWindowStore": "query.stores",
    "SessionStore": "state.views:SessionView",
    "TimestampedKeyValueStore": "state.views:TimestampedView",
    "AggregationWithHeaders": "state.views",
    "ValueAndTimestamp": "state.views",
    "ValueTimestampHeaders": "state.views",
    "VersionedKeyValueStore": "state.views:VersionedView",
    "VersionedRecord": "state.views",
    "WindowStore": "state.views:WindowView",
    "TestInputTopic": "testing",
    "TestOutputTopic": "testing",
    "TestRecord": "testing",
}


def ours(java: str) -> Any:
    place = ELSEWHERE.get(java)
    if place is None:
        return (
            getattr(penstock, java)
            if java in penstock.__all__
            else getattr(importlib.import_module("penstock.query"), java)
        )
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"penstock.{module}"), name or java)


def is_there(kind: Any, name: str) -> bool:
    """Whether objects have it, or an error that says what they have."""
    if name in getattr(kind, "__dataclass_fields__", ()) or name in getattr(kind, "__annotations__", ()):
        return True
    try:
        getattr(kind, name)
    except JavaNameError as error:
        return re.search(r" has no \w+(: it is .+ here|, and there is no replacement: .+)", error.message) is not None
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("java", METHODS)
def test_every_method_of_java_is_here_or_said_to_be_elsewhere(java: str) -> None:
    kind = ours(java)
    names = {name for method in METHODS[java].split() for name in (method, snake_case(method))}
    assert {name for name in names if not is_there(kind, name)} == set()


def test_every_name_in_the_table_is_one_of_java() -> None:
    """A name that no Java class has would be a slip of the pen."""
    older = {  # of versions before 4.0, or of what Java's tools and base classes have
        "CapturedForward": {"childName"},  # of MockProcessorContext, in Kafka's test-utils
        "CapturedPunctuator": {"getInterval"},
        "KStream": {"toStream"},  # of tables
        "KTable": {"print"},
        "MockProcessorContext": {
            "appConfigs",
            "appConfigsWithPrefix",
            "getStateStoreContext",
            "keySerde",
            "metrics",
            "stateDir",
            "valueSerde",
        },
        "ProcessorContext": {"headers", "offset", "partition", "timestamp", "topic"},
        "SessionWindows": {"with"},
        "StreamsConfig": {"EXACTLY_ONCE"},
        "TimeWindows": {"grace"},
    }
    unknown = {
        f"{java}.{name}"
        for java, names in JAVA_NAMES.items()
        for name in names
        if name not in METHODS.get(java, "").split() and name not in CONSTANTS and name not in older.get(java, ())
    }
    assert unknown == set(), sorted(unknown)


@pytest.mark.parametrize(("constant", "value"), CONSTANTS.items())
def test_constants_of_settings_say_their_names(constant: str, value: str) -> None:
    with pytest.raises(JavaNameError, match=re.escape(f"it is {value} here")):
        getattr(StreamsConfig, constant)


def test_fields_answer_to_getters() -> None:
    from penstock.query import KeyQuery

    with pytest.raises(JavaNameError, match="KeyQuery has no getKey: it is key here"):
        _ = KeyQuery.with_key("a").getKey


def test_what_has_no_counterpart_says_why() -> None:
    with pytest.raises(JavaNameError, match="there is no replacement: Spark runs the tasks"):
        _ = penstock.KafkaStreams.addStreamThread
    assert not hasattr(penstock.KafkaStreams, "addStreamThread")


def test_completion_is_free_of_java_names() -> None:
    stream = penstock.StreamsBuilder().stream("a")
    assert "map_values" in dir(stream)
    assert "mapValues" not in dir(stream)


@pytest.mark.parametrize("name", JAVA_CLASSES)
def test_classes_that_are_not_here_say_what_is(name: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"penstock has no {name}: it is {JAVA_CLASSES[name]} here")):
        exec(f"from penstock import {name}", {})
    place = re.fullmatch(r"in (penstock\.\w+)", JAVA_CLASSES[name])
    if place is not None:
        assert hasattr(importlib.import_module(place[1]), name)


def test_names_change_their_case() -> None:
    assert camel_case("map_values") == "mapValues"
    assert [snake_case(name) for name in ("mapValues", "as", "NOT_AVAILABLE")] == ["map_values", "as_", "NOT_AVAILABLE"]


def test_the_guide_speaks_of_methods_that_java_has() -> None:
    page = (Path(__file__).parents[3] / "docs" / "java-to-python.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"\.?\b([a-z][a-zA-Z]+)\(", row)}
    known = {name for names in METHODS.values() for name in names.split()}
    of_others = {
        "compile",
        "ofHours",
        "configure",
        "byDuration",
        "metricName",
        "metricValue",
        "onWindowClose",
        "pair",
        "stores",
        "tags",
        "toString",
        "withQuery",
    }
    assert named - known - of_others == set()
