"""The HTTP source: pages, cursors, what is new, and addresses that fail."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from http_servers import JsonServer, serving
from penstock.connect.connectors.http_source import http_poll
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError


def source(server, **more):
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(http_poll, {"url": server.url, "topic": "items", "interval.ms": 1, **given})


def poll(driver, rounds=4):
    for _ in range(rounds):
        driver.poll()
    return [record.value for record in driver.read("items")]


def feed(total):
    def answer(query, _):
        first = int(query.get("cursor", 0))
        return 200, {"items": list(range(first, min(first + 3, total))), "next": min(first + 3, total)}

    return answer


@settings(max_examples=5, deadline=None)
@given(st.lists(st.sampled_from([None, Step.POLLED, Step.WRITTEN, Step.COMMITTED]), max_size=3))
def test_a_feed_with_a_cursor_comes_once_wherever_the_task_crashes(crashes):
    with serving(JsonServer(feed(10))) as server:
        driver = source(server, pagination="cursor", records_path="items")
        for crash in crashes:
            driver.poll(crash=crash)
        assert poll(driver) == list(range(10))


def test_pages_end_with_an_empty_one_and_links_with_the_last():
    def pages(query, _):
        page = int(query["page"])
        return 200, [page * 10, page * 10 + 1] if page < 3 else []

    with serving(JsonServer(pages)) as server:
        assert poll(source(server, pagination="page", interval_ms=60_000), 1) == [10, 11, 20, 21]

    def links(query, _):
        page = int(query.get("p", 1))
        return 200, [{"id": page}], [("Link", f'</items?p={page + 1}>; rel="next"')] if page < 3 else ()

    with serving(JsonServer(links)) as server:
        driver = source(server, pagination="link", key_path="id", interval_ms=60_000)
        assert poll(driver, 1) == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert [record.key for record in driver.read("items")] == ["1", "2", "3"]


def test_an_answer_with_the_same_etag_is_read_once_also_after_a_restart():
    def answer(_, headers):
        return (304, b"") if headers.get("If-None-Match") == '"a"' else (200, [1, 2], [("ETag", '"a"')])

    with serving(JsonServer(answer)) as server:
        driver = source(server)
        poll(driver)
        driver.restart()
        assert poll(driver) == [1, 2]


def test_only_what_is_newer_is_taken_and_equal_times_are_not_lost():
    rows = [{"id": 1, "at": "2024-01-01"}, {"id": 2, "at": "2024-01-02"}]

    def answer(query, _):
        return 200, [row for row in rows if row["at"] >= query.get("since", "")]

    with serving(JsonServer(answer)) as server:
        driver = source(server, since_path="at")
        poll(driver)
        rows.append({"id": 3, "at": "2024-01-02"})  # at the same time as the newest
        driver.restart()
        assert [each["id"] for each in poll(driver)] == [1, 2, 3]
        assert server.asked[-1] == {"since": "2024-01-02"}


def test_an_address_that_is_busy_is_asked_later_and_one_that_refuses_fails_the_task():
    answers = [(503, b""), (429, b"", [("Retry-After", "0")]), (200, {"id": 7})]

    def answer(*_):
        return answers.pop(0) if answers else (404, b"gone")

    with serving(JsonServer(answer)) as server:
        driver = source(server)
        for _ in range(60):
            if answers:
                driver.poll()
        with pytest.raises(ConnectError, match="answers 404: gone"):
            poll(driver)
        assert [record.value for record in driver.read("items")] == [{"id": 7}]


def test_answers_that_are_not_what_the_settings_say_are_explained():
    with serving(JsonServer(lambda *_: (200, {"data": []}))) as server, pytest.raises(ConnectError) as caught:
        source(server, records_path="items").poll()
    assert (caught.value.message.split(" has ")[1], caught.value.hint) == ("nothing at items", "It has data.")
    with (
        serving(JsonServer(lambda *_: (200, b"<html>"))) as server,
        pytest.raises(ConnectError, match="not answer JSON"),
    ):
        source(server).poll()
    far = (200, [1], [("Link", '<http://elsewhere.example/x>; rel="next"')])
    with serving(JsonServer(lambda *_: far)) as server, pytest.raises(ConnectError, match="another host"):
        source(server, pagination="link").poll()
