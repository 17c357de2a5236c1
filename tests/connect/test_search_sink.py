"""The sink to search clusters, over a server in this process that implements their bulk interface."""

import json
from pathlib import Path

import pytest

from http_servers import BulkServer, serving
from penstock.connect.connectors.search_sink import SearchSinkConnector
from penstock.connect.data import DataError, Headers, SettingError, SinkRecord
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError


@pytest.fixture
def cluster():
    with serving(BulkServer()) as made:
        yield made


def sink(cluster, **more):
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(SearchSinkConnector, {"topics": "Hits", "connection.url": cluster.url, **given})


def test_the_index_ends_with_the_last_record_of_each_key_wherever_the_task_crashes(cluster):
    driver = sink(cluster, behavior_on_null_values="delete")
    for crash in (Step.PUT, Step.FLUSHED, None):
        for key, value in (("a", {"n": 1}), ("b", {"n": 1}), ("a", {"n": 2}), ("b", None)):
            driver.produce("Hits", value, key=key)
        driver.put(crash=crash)
    driver.put_all()
    assert cluster.documents == {("hits", "a"): {"n": 2}}
    assert driver.group_offsets().popitem()[1].offset == 12


def test_documents_without_keys_have_their_place_as_id_and_upserts_keep_other_fields(cluster):
    driver = sink(cluster, key_ignore=True, batch_size=2)
    driver.produce("Hits", {"n": 1}, {"n": 2}, {"n": 3})
    driver.put()
    assert sorted(cluster.documents) == [("hits", f"Hits+0+{n}") for n in range(3)]
    assert len(cluster.requests) == 2
    both = sink(cluster, write_method="upsert", index="all")
    both.produce("Hits", {"x": 1}, key="k")
    both.produce("Hits", {"y": 2}, key="k")
    both.put()
    assert cluster.documents["all", "k"] == {"x": 1, "y": 2}


def test_what_the_cluster_is_too_busy_for_comes_again(cluster):
    driver = sink(cluster, authorization="ApiKey x")
    driver.produce("Hits", {"n": 1}, key="a")
    driver.produce("Hits", {"n": 2}, key="b")
    cluster.busy, cluster.busy_items = 1, 1
    assert [driver.put(), driver.put()] == [[], []]
    driver.put()
    assert len(cluster.documents) == 2
    assert cluster.requests[0][:2] == ("/_bulk", "ApiKey x")


def test_a_document_that_is_refused_is_reported_and_the_others_are_written(cluster):
    driver = sink(cluster)
    driver.produce("Hits", {"number": 1}, key="a")
    driver.produce("Hits", {"number": "x"}, key="b")
    with pytest.raises(DataError, match="Hits-0, offset 1 is refused: failed to parse number"):
        driver.put()
    reported = []

    class Reporter:
        def report(self, record, error):
            reported.append((record.key, error.message))

    driver.sinks[0].task.context.errant_record_reporter = Reporter()
    driver.put()
    assert [key for key, _ in reported] == ["b"]
    assert list(cluster.documents) == [("hits", "a")]


def test_wrong_records_and_addresses_say_what_to_do(cluster):
    driver = sink(cluster)
    driver.produce("Hits", {"n": 1})
    with pytest.raises(DataError, match="cannot be the id") as caught:
        driver.put()
    assert "key.ignore=true" in caught.value.hint
    driver = sink(cluster)
    driver.produce("Hits", "text", key="a")
    with pytest.raises(DataError, match="is not a document"):
        driver.put()
    far = sink(cluster, connection_url="http://127.0.0.1:9")
    far.produce("Hits", {"n": 1}, key="a")
    assert far.put() == []  # it may come back


def test_what_answers_but_is_no_cluster_fails_the_task(cluster):
    cluster.is_other = True
    driver = sink(cluster)
    driver.produce("Hits", {"n": 1}, key="a")
    with pytest.raises(ConnectError, match="does not answer as a bulk interface"):
        driver.put()


def test_numbers_that_json_does_not_have_are_texts_and_half_characters_do_not_kill_the_task(cluster):
    driver = sink(cluster)
    driver.produce("Hits", {"a": float("nan"), "b": [float("inf"), float("-inf")]}, key="a")
    driver.put()
    assert cluster.documents == {("hits", "a"): {"a": "NaN", "b": ["Infinity", "-Infinity"]}}


@pytest.mark.parametrize(
    ("topic", "index"), [("_audit", "audit"), ("-A.b", "a.b"), ("__x__", "x__"), ("a" * 249, "a" * 249)]
)
def test_indices_of_topics_have_legal_names(cluster, topic, index):
    driver = ConnectTestDriver(SearchSinkConnector, {"topics": topic, "connection.url": cluster.url})
    driver.produce(topic, {"n": 1}, key="a")
    driver.put()
    assert list(cluster.documents) == [(index, "a")]


def test_a_name_that_no_index_can_have_is_refused_or_reported(cluster):
    for wrong in ("a b", "x/${topic}", "..", "_", "a*", "a" * 250 + "ü" * 5):
        with pytest.raises(SettingError, match="an index with this name"):
            sink(cluster, index=wrong)
    chain = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    chain |= {"transforms.r.regex": "(.*)", "transforms.r.replacement": "a,b"}
    driver = sink(cluster, **chain)
    driver.produce("Hits", {"n": 1}, key="a")
    with pytest.raises(DataError, match="has ',', which indices cannot have"):
        driver.put()


def test_a_key_that_is_no_id_and_a_document_that_is_too_large_are_the_records_own_errors(cluster):
    for key in ("", "k" * 513):
        driver = sink(cluster)
        driver.produce("Hits", {"n": 1}, key=key)
        with pytest.raises(DataError, match="cannot be the id"):
            driver.put()
    cluster.most_bytes = 400
    driver = sink(cluster, errors_tolerance="all")
    for number in range(8):
        driver.produce("Hits", {"n": number, "text": "x" * (500 if number == 3 else 1)}, key=f"k{number}")
    reported = []

    class Reporter:
        def report(self, record, error):
            reported.append((record.key, error.message))

    driver.sinks[0].task.context.errant_record_reporter = Reporter()
    driver.put()
    assert sorted(key for _, key in cluster.documents) == ["k0", "k1", "k2", "k4", "k5", "k6", "k7"]
    assert [key for key, _ in reported] == ["k3"]


class Reporter:
    def __init__(self):
        self.reported = []

    def report(self, record, error):
        self.reported.append((record.key, error.message))


ANSWERS = json.loads((Path(__file__).parent / "search-answers.json").read_text())  # of OpenSearch: search_node.py


def result(case, at=0):
    """The result of a document, as OpenSearch gave it to a request of many."""
    ((_, found),) = ANSWERS[case]["body"]["items"][at].items()
    return {name: part for name, part in found.items() if name not in ("_index", "_id")}


def results(case):
    return [result(case, at) for at in range(len(ANSWERS[case]["body"]["items"]))]


BUSY = next(each for each in results("busy") if each["status"] == 429)


def test_what_is_refused_is_reported_once_though_its_batch_comes_again_with_what_the_cluster_is_busy_for(cluster):
    driver = sink(cluster, batch_size=2)
    for number, value in enumerate((1, "x", 3, 4)):
        driver.produce("Hits", {"number": value}, key=f"k{number}")
    reporter = driver.sinks[0].task.context.errant_record_reporter = Reporter()
    cluster.results = [None, None, BUSY, None]
    assert driver.put() == []
    assert reporter.reported == []
    assert len(driver.put()) == 4
    assert [key for key, _ in reporter.reported] == ["k1"]
    assert sorted(key for _, key in cluster.documents) == ["k0", "k2", "k3"]


@pytest.mark.parametrize("case", ["busy", "flood_stage", "read_only", "unwritable", "too_few_copies"])
def test_documents_that_the_cluster_cannot_take_now_come_again_and_are_no_dead_letters(cluster, case):
    driver = sink(cluster, errors_tolerance="all")
    driver.produce("Hits", {"n": 1}, key="a")
    driver.produce("Hits", {"n": 2}, key="b")
    reporter = driver.sinks[0].task.context.errant_record_reporter = Reporter()
    cluster.results = [None, BUSY if case == "busy" else result(case)]
    assert driver.put() == []
    assert len(driver.put()) == 2
    assert reporter.reported == []
    assert cluster.documents == {("hits", "a"): {"n": 1}, ("hits", "b"): {"n": 2}}


FORBIDDEN = {
    "status": 403,  # a node without the plugin of security does not say it
    "error": {
        "type": "security_exception",
        "reason": "no permissions for [indices:data/write/bulk] and User [name=ann]",
    },
}


@pytest.mark.parametrize("case", ["no_index", "closed", "invalid_index", "data_stream", "alias_of_two", "forbidden"])
def test_what_is_wrong_with_the_index_fails_the_task_and_makes_no_dead_letters(cluster, case):
    driver = sink(cluster, errors_tolerance="all")
    driver.produce("Hits", {"n": 1}, key="a")
    reporter = driver.sinks[0].task.context.errant_record_reporter = Reporter()
    cluster.results = [FORBIDDEN if case == "forbidden" else result(case)]
    with pytest.raises(ConnectError) as caught:
        driver.put()
    assert "refuses documents of the index hits" in f"{caught.value} {caught.value.__cause__}"
    assert reporter.reported == []


@pytest.mark.parametrize(
    ("case", "at", "reason"),
    [
        ("malformed", 1, 'For input string: "x"'),
        ("malformed_date", 0, "failed to parse date field [x]"),
        ("object_and_value", 0, "Current token (START_OBJECT) not numeric"),
        ("strict", 1, "mapping set to strict, dynamic introduction of [m]"),
        ("too_many_fields", 0, "Limit of total fields [2] has been exceeded"),
        ("too_deep", 0, "The depth of the field has exceeded the allowed limit"),
        ("dots", 0, "field name cannot contain only the character [.]"),
        ("empty_name", 0, "field name cannot be an empty string"),
        ("metadata_field", 0, "Field [_id] is a metadata field"),
        ("update_of_nothing", 0, "[nothing]: document missing"),
    ],
)
def test_the_error_of_one_document_is_that_documents(cluster, case, at, reason):
    driver = sink(cluster)
    for key in "abc":
        driver.produce("Hits", {"n": key}, key=key)
    reporter = driver.sinks[0].task.context.errant_record_reporter = Reporter()
    cluster.results = [None, result(case, at)]
    assert len(driver.put()) == 3
    ((key, message),) = reporter.reported
    assert key == "b"
    assert f"Hits-0, offset 1 is refused: {reason}" in message
    assert sorted(key for _, key in cluster.documents) == ["a", "c"]


@pytest.mark.parametrize("method", ["insert", "upsert"])
def test_nothing_is_to_delete_where_there_is_no_index_yet(cluster, method):
    driver = sink(cluster, behavior_on_null_values="delete", write_method=method)
    driver.produce("Hits", None, key="a")
    driver.produce("Hits", {"n": 1}, key="b")
    cluster.results = [result("deleted_nowhere")]
    assert len(driver.put()) == 2
    assert sorted(key for _, key in cluster.documents) == ["b"]


def test_a_document_of_an_older_version_is_no_error(cluster):
    driver = sink(cluster)
    driver.produce("Hits", {"n": 1}, key="a")
    cluster.results = [result("version_conflict")]
    assert len(driver.put()) == 1


def test_an_update_that_others_have_overtaken_comes_again(cluster):
    driver = sink(cluster, write_method="UPSERT")
    driver.produce("Hits", {"n": 1}, key="a")
    cluster.results = [result("version_conflict")]
    assert driver.put() == []
    assert len(driver.put()) == 1
    assert cluster.documents == {("hits", "a"): {"n": 1}}


def test_the_whole_answer_of_a_node_may_refuse_a_request(cluster):
    for case in ("id_too_long", "no_action", "no_end"):
        driver = sink(cluster)
        driver.produce("Hits", {"n": 1}, key="a")
        cluster.whole = ANSWERS[case]
        with pytest.raises(ConnectError, match="answers 400"):
            driver.put()


@pytest.mark.parametrize(
    ("behavior", "key", "documents"),
    [("ignore", "a", 1), ("ignore", None, 1), ("delete", "a", 0), ("DELETE", None, 1), ("fail", "a", None)],
)
def test_records_without_value_are_ignored_deleted_or_failures(cluster, behavior, key, documents):
    given = {} if behavior == "fail" else {"behavior_on_null_values": behavior}
    driver = sink(cluster, **given)
    driver.produce("Hits", {"n": 1}, key="a")
    driver.produce("Hits", None, key=key)
    if documents is None:
        with pytest.raises(DataError, match="has no value"):
            driver.put()
        return
    driver.put()
    assert len(cluster.documents) == documents


@pytest.mark.parametrize("key", [1.5, True, b"k", [1], {"a": 1}])
def test_keys_that_are_neither_texts_nor_whole_numbers_are_no_ids(cluster, key):
    driver = sink(cluster)
    with pytest.raises(DataError, match="cannot be the id"):
        driver.sinks[0].task.put([SinkRecord(topic="Hits", partition=0, offset=0, key=key, value={"n": 1})])


def test_documents_that_are_refused_and_records_that_are_none_are_left_out_if_the_settings_say_so(cluster, caplog):
    driver = sink(cluster, behavior_on_malformed_documents="warn", drop_invalid_message="true")
    driver.produce("Hits", {"n": 1}, key="a")
    driver.produce("Hits", "text", key="b")
    driver.produce("Hits", {"n": 3}, key="c")
    cluster.results = [None, result("malformed", 1)]
    assert len(driver.put()) == 3
    assert sorted(key for _, key in cluster.documents) == ["a"]
    assert [each.levelname for each in caplog.records if "left out" in each.getMessage()] == ["WARNING"] * 2


def test_versions_come_from_a_header_and_keys_of_some_topics_are_ignored(cluster):
    driver = sink(cluster, external_version_header="v", topic_key_ignore="Other")
    headers = Headers().add("v", "1").add("v", 70)
    task = driver.sinks[0].task
    task.put([SinkRecord(topic="Hits", partition=0, offset=3, key="a", value={"n": 1}, headers=headers)])
    assert cluster.versions == {("hits", "a"): 70}
    task.put([SinkRecord(topic="Other", partition=0, offset=3, key="a", value={"n": 1})])
    assert ("other", "Other+0+3") in cluster.documents
    with pytest.raises(DataError, match="the header v at Hits-0, offset 4 is not a version"):
        task.put([SinkRecord(topic="Hits", partition=0, offset=4, key="a", value={"n": 1})])


def test_the_only_node_is_not_asked_before_the_time_that_it_names(cluster):
    driver = sink(cluster)
    driver.produce("Hits", {"n": 1}, key="a")
    cluster.busy, cluster.retry_after = 1, "100"
    for _ in range(3):
        assert driver.put() == []
        assert driver.sinks[0].context.take_timeout_ms(1000) == 10_000
    assert len(cluster.requests) == 1
    driver.restart()
    assert len(driver.put()) == 1
    driver.stop()
