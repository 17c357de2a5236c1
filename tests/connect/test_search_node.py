"""The sink to search clusters over OpenSearch itself."""

import pytest

from penstock.connect.connectors.search_sink import SearchSinkConnector
from penstock.connect.data import DataError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from search_node import search_node  # noqa: F401 - a fixture


@pytest.fixture
def node(search_node):  # noqa: F811 - the fixture
    return search_node


@pytest.fixture
def sink(node):
    """Makes drivers of sinks, which are stopped at the end."""
    drivers = []

    def make(topic, **more):
        config = {"topics": topic, "connection.url": node.url}
        config |= {name.replace("_", "."): value for name, value in more.items()}
        drivers.append(ConnectTestDriver(SearchSinkConnector, config))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.stop()


class Reporter:
    def __init__(self, driver):
        self.reported = []
        driver.sinks[0].task.context.errant_record_reporter = self

    def report(self, record, error):
        self.reported.append((record.key, error.message))


@pytest.mark.whole
def test_the_index_ends_with_the_last_record_of_each_key_whatever_crashes(node, sink):
    driver = sink("last", behavior_on_null_values="delete", batch_size=3)
    for crash in (Step.PUT, Step.FLUSHED, "node", None):
        for key, value in (("a", {"n": 1}), ("b", {"n": 1}), ("c", {"n": 3}), ("a", {"n": 2}), ("b", None)):
            driver.produce("last", value, key=key)
        if crash == "node":
            node.kill()
            assert driver.put() == []  # it is away
            node.start()
            driver.put()
        else:
            task = driver.sinks[0].task
            driver.put(crash=crash)
            if crash is not None:
                task.stop()  # whose connection its process would have closed
    driver.put_all()
    assert node.documents("last") == {"a": {"n": 2}, "c": {"n": 3}}
    assert driver.group_offsets().popitem()[1].offset == 20


def test_documents_without_keys_and_merged_fields(node, sink):
    places = sink("Places", key_ignore=True)
    places.produce("Places", {"n": 1}, {"n": 2})
    places.put()
    assert node.documents("places") == {"Places+0+0": {"n": 1}, "Places+0+1": {"n": 2}}
    merged = sink("merged", write_method="upsert", behavior_on_null_values="delete")
    for value in ({"x": 1, "o": {"p": 1}}, {"y": 2, "o": {"q": 1}}):
        merged.produce("merged", value, key="k")
    merged.put()
    assert node.documents("merged") == {"k": {"x": 1, "y": 2, "o": {"p": 1, "q": 1}}}
    merged.produce("merged", None, key="k")
    merged.put()
    assert node.documents("merged") == {}


def test_the_error_of_one_document_is_that_documents(node, sink):
    node.ask("PUT", "/numbers", {"mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}}}})
    driver = sink("numbers")
    for key, value in (("a", {"n": 1}), ("b", {"n": "x"}), ("c", {"m": 1}), ("d", {"n": {"x": 1}}), ("e", {"n": 5})):
        driver.produce("numbers", value, key=key)
    with pytest.raises(DataError, match='numbers-0, offset 1 is refused: For input string: "x"'):
        driver.put()
    reporter = Reporter(driver)
    assert len(driver.put()) == 5
    assert [key for key, _ in reporter.reported] == ["b", "c", "d"]
    assert node.documents("numbers") == {"a": {"n": 1}, "e": {"n": 5}}


def test_what_is_larger_than_the_node_takes_is_divided_until_one_document_is_refused(node, sink):
    driver = sink("large")
    for number in range(6):
        driver.produce("large", {"t": "x" * (300_000 if number == 3 else 60_000)}, key=str(number))
    reporter = Reporter(driver)
    assert len(driver.put()) == 6
    assert [key for key, _ in reporter.reported] == ["3"]
    assert sorted(node.documents("large")) == ["0", "1", "2", "4", "5"]


@pytest.mark.parametrize("block", ["read_only", "read_only_allow_delete", "write"])
def test_documents_of_a_blocked_index_come_again_until_it_takes_them(node, sink, block):
    index = f"blocked-{block}"
    node.ask("PUT", f"/{index}")
    node.ask("PUT", f"/{index}/_settings", {f"index.blocks.{block}": True})
    driver = sink(index, errors_tolerance="all")
    reporter = Reporter(driver)
    driver.produce(index, {"n": 1}, key="a")
    assert [driver.put(), driver.put()] == [[], []]
    node.ask("PUT", f"/{index}/_settings", {f"index.blocks.{block}": None})
    assert len(driver.put()) == 1
    assert (node.documents(index), reporter.reported) == ({"a": {"n": 1}}, [])


@pytest.mark.whole
def test_what_a_full_queue_refuses_comes_again(node, sink):
    driver = sink("Q", index="q", key_ignore=True)
    names = [f"queue-{n}" for n in range(12)]
    for name in names:
        node.ask("PUT", f"/{name}", {"settings": {"number_of_replicas": 0}})
    task = driver.sinks[0].task
    task._index = lambda record: names[record.original_offset % len(names)]  # many shards in one request
    reporter = Reporter(driver)
    driver.produce("Q", *({"n": n} for n in range(120)))
    for _ in range(100):
        if driver.put():
            break
    else:
        pytest.fail("the documents were never taken")
    assert sum(len(node.documents(name)) for name in names) == 120
    assert reporter.reported == []


@pytest.mark.parametrize("wrong", ["missing", "closed", "stream", "twice"])
def test_a_wrong_index_fails_the_task_and_makes_no_dead_letters(node, sink, wrong):
    index = f"{wrong}-wrong"
    if wrong == "closed":
        node.ask("PUT", f"/{index}")
        node.ask("POST", f"/{index}/_close")
    elif wrong == "stream":
        node.ask("PUT", "/_index_template/s", {"index_patterns": ["stream-*"], "data_stream": {}})
        node.ask("PUT", f"/_data_stream/{index}")
    elif wrong == "twice":
        for name in ("one-of-two", "two-of-two"):
            node.ask("PUT", f"/{name}", {"aliases": {index: {}}})
    driver = sink(index, errors_tolerance="all", key_ignore=wrong == "stream")
    reporter = Reporter(driver)
    driver.produce(index, {"@timestamp": 1}, key="a")
    with pytest.raises(ConnectError) as caught:
        driver.put()
    assert "refuses documents of the index" in f"{caught.value} {caught.value.__cause__}"
    assert reporter.reported == []


def test_nothing_is_to_delete_where_no_index_is(node, sink):
    for topic in ("nowhere", "missing-deleted"):
        driver = sink(topic, behavior_on_null_values="delete")
        driver.produce(topic, None, key="a")
        assert len(driver.put()) == 1
