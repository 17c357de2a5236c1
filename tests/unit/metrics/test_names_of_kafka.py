"""The names, groups, tags and levels of an application's metrics are those that Kafka Streams 4.3.1 registers.

``kafka_metrics.json.xz`` lists them as we recorded them from running applications: group, name, levels, sets of tags,
and whether the figure exists here (now, small, medium: at hand, with some work; no: it has no meaning).
"""

import json
import lzma
from collections import defaultdict
from pathlib import Path

import pytest
from measured_application import measured

RECORDED = json.loads(lzma.decompress(Path(__file__).with_name("kafka_metrics.json.xz").read_bytes()))
BY_NAME = {(group, name): (levels, tags, status) for group, name, levels, tags, status in RECORDED}
OWN = {"penstock-metrics"}
ONLY_HERE = {("stream-task-metrics", "function-errors-rate"), ("stream-task-metrics", "function-errors-total")}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return measured("TRACE", tmp_path_factory.mktemp("trace"))


def of_kafka(tags):
    return frozenset(tag.replace("lmdb", "rocksdb") for tag in tags)


def test_every_figure_that_is_at_hand_exists(trace):
    wanted = {key for key, (_, _, status) in BY_NAME.items() if status in ("now", "small")}
    found = {(name.group, name.name) for name in trace}
    assert wanted - found == set()


def test_what_has_no_meaning_here_does_not_exist(trace):
    meaningless = {key for key, (_, _, status) in BY_NAME.items() if status == "no"}
    assert {(name.group, name.name) for name in trace} & meaningless == set()


def test_every_metric_is_one_of_kafkas_or_in_the_group_of_penstock(trace):
    found = {(name.group, name.name) for name in trace if name.group not in OWN}
    assert found - BY_NAME.keys() - ONLY_HERE == set()


def test_tags_are_those_of_kafka(trace):
    wrong = defaultdict(set)
    for name in trace:
        if (name.group, name.name) in BY_NAME:
            tags = of_kafka(tag for tag, _ in name.tags)
            if tags not in {frozenset(each) for each in BY_NAME[name.group, name.name][1]}:
                wrong[name.group, name.name].add(tags)
    # Kafka has these of one kind of store alone.
    stores = {key: tags for key, tags in wrong.items() if key[0] == "stream-state-metrics"}
    assert {key: tags for key, tags in wrong.items() if key not in stores} == {}
    assert all(any(tag.endswith("state-id") for tag in tags) for each in stores.values() for tags in each)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_the_recording_level_selects_as_in_kafka(level, tmp_path, trace):
    order = ["INFO", "DEBUG", "TRACE"]
    found = {(name.group, name.name) for name in measured(level, tmp_path)}
    everything = {(name.group, name.name) for name in trace if (name.group, name.name) in BY_NAME}
    below = {
        key for key in everything if min(map(order.index, BY_NAME[key][0])) <= order.index(level)
    }  # fmt: skip
    assert everything & found == below
