"""The names, groups, tags, units and levels of an application's metrics are those that Kafka Streams 4.3.1 registers.

``kafka_metrics.json.xz`` lists them as we recorded them from running applications: group, name, levels, sets of tags,
whether the figure exists here (now, small, medium: at hand, with some work; no: it has no meaning), whether its meaning
differs from Kafka's, and the fingerprint of Kafka's description.
"""

import hashlib
import json
import lzma
import re
from collections import defaultdict
from pathlib import Path

import pytest
from meanings import MEANINGS
from measured_application import measured

RECORDED = json.loads(lzma.decompress(Path(__file__).with_name("kafka_metrics.json.xz").read_bytes()))
BY_NAME = {(group, name): (levels, tags, status) for group, name, levels, tags, status, _, _ in RECORDED}
OF_KAFKA = {(group, name): fingerprint for group, name, *_, fingerprint in RECORDED}
DIFFERING = {(group, name) for group, name, _, _, _, differs, _ in RECORDED if differs}
UNITS = [  # (groups, names) -> the unit that the description names
    (r"stream-thread-metrics|consumer-.*|producer-.*", r".*-(latency|time)-(avg|max|total)", "milliseconds"),
    (r"stream-task-metrics|stream-state-metrics", r".*-latency-(avg|max)", "nanoseconds"),
    (r"stream-processor-node-metrics", r".*-latency-(avg|min|max)", "milliseconds"),
    (r".*", r"record-lateness-.*|time-between-poll-.*", "milliseconds"),
    (r".*", r".*-ns-.*", "[Nn]anoseconds"),
    (r".*", r".*-seconds-ago|metadata-age", "Seconds"),
    (r".*", r".*bytes?-.*|.*-size-.*", "[Bb]ytes"),
    (r"[sc].*", r".*-ratio(-avg)?", "share"),
    (r".*", r".*-rate", "per second|for each|compressed size"),
    (r".*", r".*-rate-per-hour", "per hour"),
]
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
    of_persistent_stores = wrong.pop(("stream-state-metrics", "num-keys"))  # Kafka counts those in memory alone
    assert wrong == {}
    assert all(any(tag.startswith("rocksdb") for tag in tags) for tags in of_persistent_stores)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_the_recording_level_selects_as_in_kafka(level, tmp_path, trace):
    order = ["INFO", "DEBUG", "TRACE"]
    found = {(name.group, name.name) for name in measured(level, tmp_path)}
    everything = {(name.group, name.name) for name in trace if (name.group, name.name) in BY_NAME}
    below = {
        key for key in everything if min(map(order.index, BY_NAME[key][0])) <= order.index(level)
    }  # fmt: skip
    assert everything & found == below


def test_what_differs_from_kafka_says_its_own_meaning(trace):
    described = {(name.group, name.name): name.description for name in trace if (name.group, name.name) in DIFFERING}
    assert {key for key in DIFFERING if BY_NAME[key][2] in ("now", "small")} <= described.keys()
    silent = [
        (key, words)
        for key, words in described.items()
        if not any(re.fullmatch(names, ":".join(key)) and said in words for names, said in MEANINGS.items())
    ]
    assert silent == []
    assert [key for key, words in described.items() if _fingerprint(words) == OF_KAFKA[key]] == []


def test_every_description_is_a_sentence(trace):
    described = {name.description for name in trace}
    assert [words for words in described if not re.fullmatch(r"[A-Z].*\S\.", words) or len(words) > 170] == []


@pytest.mark.parametrize(("groups", "names", "unit"), UNITS)
def test_descriptions_name_the_unit(trace, groups, names, unit):
    of_it = [name for name in trace if re.fullmatch(groups, name.group) and re.fullmatch(names, name.name)]
    assert of_it
    assert [str(name) for name in of_it if not re.search(unit, name.description)] == []


def test_units_are_those_of_kafka(trace):
    """The counts: two batches of five records; reading and writing took 0.1 s each, processing 0.2 s, or 0.1 s by task."""

    def value(group, name, **tags):
        return trace.value(name, group=f"{group}-metrics", **tags)

    assert value("stream-thread", "process-latency-avg") == pytest.approx(40)
    assert value("stream-task", "process-latency-avg", task_id="0_0") == pytest.approx(20e6)
    assert value("stream-thread", "poll-latency-max") == value("stream-thread", "commit-latency-max") == 100
    assert value("stream-thread", "blocked-time-ns-total") == pytest.approx(400e6)
    assert value("producer", "txn-commit-time-ns-total") == pytest.approx(2 * 4e6)
    assert value("consumer-fetch-manager", "fetch-latency-avg") == 2
    assert value("consumer-coordinator", "rebalance-latency-total") == 8
    assert 0 < value("consumer-coordinator", "last-heartbeat-seconds-ago") < 60


def _fingerprint(description):
    words = re.sub(r"\W+", " ", description.lower()).strip()
    return hashlib.sha256(words.encode()).hexdigest()[:16]
