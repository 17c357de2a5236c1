"""The sink to search clusters, over a server in this process that implements their bulk interface."""

import pytest

from http_servers import BulkServer, serving
from penstock.connect.connectors.search_sink import SearchSinkConnector
from penstock.connect.data import DataError, SettingError
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
