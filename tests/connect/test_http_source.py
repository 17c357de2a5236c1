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


def poll_until(driver, count):
    """The values when there are so many, however many calls that takes, and after two more calls."""
    for _ in range(200):
        driver.poll()
        if any(topic.name == "items" for topic in driver.log.topics()) and len(driver.read("items")) >= count:
            break
    return poll(driver, 2)


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
        assert poll_until(source(server, pagination="page", interval_ms=60_000), 4) == [10, 11, 20, 21]

    def links(query, _):
        page = int(query.get("p", 1))
        return 200, [{"id": page}], [("Link", f'</items?p={page + 1}>; rel="next"')] if page < 3 else ()

    with serving(JsonServer(links)) as server:
        driver = source(server, pagination="link", key_path="id", interval_ms=60_000)
        assert poll_until(driver, 3) == [{"id": 1}, {"id": 2}, {"id": 3}]
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


def rounds(*answers, **more):
    """What comes of a source that is given these answers, one after another, the last one again and again."""
    left = list(answers)

    def answer(*_):
        return 200, left.pop(0) if len(left) > 1 else left[0]

    with serving(JsonServer(answer)) as server:
        driver = source(server, **{"since_path": "at", **more})
        return [each["id"] for each in poll(driver, len(answers) + 4)]


def at(*times):
    return [{"id": number, "at": time} for number, time in enumerate(times, 1)]


def test_times_are_compared_as_times():
    assert rounds(at("2024-05-01T10:00:00Z"), at("2024-05-01T10:00:00Z", "2024-05-01T10:00:00.250Z")) == [1, 2]
    assert rounds(at("2024-05-01T12:00:00+02:00"), at("2024-05-01T12:00:00+02:00", "2024-05-01T10:00:01Z")) == [1, 2]
    assert rounds(at("2024-05-01T23:30:00-05:00"), at("2024-05-01T23:30:00-05:00", "2024-05-02T04:00:00Z")) == [1]
    nanos = "2024-05-01T10:00:00.000000001Z", "2024-05-01T10:00:00.000000002Z"
    assert rounds(at(nanos[0]), at(*nanos)) == [1, 2]
    mail = "Wed, 01 May 2024 10:00:00 GMT", "Thu, 02 May 2024 09:00:00 GMT"  # as texts the second is smaller
    assert rounds(at(mail[0]), at(*mail)) == [1, 2]


def test_numbers_are_compared_as_numbers_also_in_texts():
    assert rounds(at(9), at(9, 10)) == [1, 2]
    assert rounds(at("9"), at("9", "10")) == [1, 2]
    assert rounds(at(1.5), at(1.5, 2)) == [1, 2]
    assert rounds(at("b"), at("b", "c")) == [1, 2]


def test_what_has_come_does_not_come_again_whatever_the_order_is():
    first = [{"id": each, "at": each} for each in (3, 2, 1)]
    second = [{"id": each, "at": each} for each in (4, 3)]
    third = [{"id": each, "at": each} for each in (5, 4, 3)]
    assert rounds(first, second, third) == [3, 2, 1, 4, 5]


def test_records_at_equal_positions_come_once_each_over_three_rounds():
    rows = [{"id": number, "at": "2024-05-01T10:00:00Z"} for number in range(1, 7)]
    rows[3]["at"] = "2024-05-01T12:00:00+02:00"  # the same moment
    assert rounds(rows[:2], rows[:4], rows) == [1, 2, 3, 4, 5, 6]


def test_positions_of_several_kinds_are_refused():
    with pytest.raises(ConnectError, match="cannot be compared: one is a number, the other a time") as caught:
        rounds(at(1), at("2024-05-01T10:00:00Z"))
    assert "reset the connector's offsets" in caught.value.hint
    for wrong in (None, True, {}, float("nan")):
        with pytest.raises(ConnectError, match=r"at since\.path"):
            rounds(at(wrong))


@pytest.mark.parametrize("order", ["grows", "falls"])
@settings(max_examples=4, deadline=None)
@given(crashes=st.lists(st.sampled_from([None, Step.POLLED, Step.WRITTEN, Step.COMMITTED]), max_size=5))
def test_pages_in_both_orders_come_once_wherever_the_task_crashes(order, crashes):
    rows = [{"id": number, "at": f"2024-05-01T10:00:0{number // 3}.5Z"} for number in range(9)]

    def answer(query, _):
        found = rows if order == "grows" else rows[::-1]
        first = (int(query["page"]) - 1) * 2
        return 200, found[first : first + 2]

    with serving(JsonServer(answer)) as server:
        driver = source(server, since_path="at", pagination="page")
        for crash in crashes:
            driver.poll(crash=crash)
        for _ in range(3):
            rows.append({"id": len(rows), "at": f"2024-05-01T10:00:0{len(rows) // 3}.5Z"})
            poll(driver, 4)
        assert sorted(each["id"] for each in poll(driver, 2)) == list(range(12))


def test_the_first_of_several_pages_says_nothing_about_the_others():
    rows = [[1, 2], [3]]

    def answer(query, headers):
        page = int(query["page"])
        if page == 1 and headers.get("If-None-Match") == '"first"':
            return 304, b""
        found = rows[page - 1] if page <= len(rows) else []
        return 200, [{"id": each, "at": each} for each in found], [("ETag", '"first"')] if page == 1 else ()

    with serving(JsonServer(answer)) as server:
        driver = source(server, since_path="at", pagination="page")
        poll(driver)
        rows.append([4])
        assert [each["id"] for each in poll(driver)] == [1, 2, 3, 4]


def test_offsets_of_the_form_before_are_read():
    from penstock.connect.connectors.http_source import NewRecords

    old = {"since": 2, "newest": 2, "ids": ['{"at": 2, "id": 7}']}
    found = NewRecords(old)
    assert [found.take({"id": number, "at": 2}, 2) for number in (7, 8)] == [False, True]


@pytest.mark.parametrize(
    "answer",
    [(204, b""), (200, {"items": None}), (200, {"items": []})],
    ids=["no content", "null", "empty"],
)
def test_an_answer_without_records_is_no_failure(answer):
    answers = [answer, answer, (200, {"items": [7]})]
    with serving(JsonServer(lambda *_: answers.pop(0) if len(answers) > 1 else answers[0])) as server:
        assert poll_until(source(server, records_path="items"), 1)[:1] == [7]


def test_an_answer_of_null_is_no_record():
    answers = [(200, b"null"), (200, [{"at": 1}])]
    with serving(JsonServer(lambda *_: answers.pop(0) if len(answers) > 1 else answers[0])) as server:
        assert poll_until(source(server, since_path="at"), 1) == [{"at": 1}]


def test_a_cursor_stays_where_nothing_is_behind_it_yet():
    waits = [True, True]

    def answer(query, _):
        if query.get("cursor") == "b":
            return (204, b"") if waits and waits.pop() else (200, {"items": [2], "next": "c"})
        return (204, b"") if query.get("cursor") else (200, {"items": [1], "next": "b"})

    with serving(JsonServer(answer)) as server:
        assert poll_until(source(server, pagination="cursor", records_path="items"), 2) == [1, 2]
        assert [query.get("cursor") for query in server.asked[:4]] == [None, "b", "b", "b"]
        assert {query.get("cursor") for query in server.asked[4:]} <= {"c"}


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        (lambda page: (200, [min(page, 3)]), [1, 2, 3]),  # the last page again and again
        (lambda _: (200, [1, 2]), [1, 2]),  # pages that the address does not know
        (lambda page: (200, [page]) if page < 3 else (404, b"no such page"), [1, 2]),
        (lambda page: (200, [page]) if page < 3 else (204, b""), [1, 2]),
    ],
)
def test_pages_have_an_end_however_the_address_says_it(answer, values):
    with serving(JsonServer(lambda query, _: answer(int(query["page"])))) as server:
        assert poll_until(source(server, pagination="page", interval_ms=60_000), len(values)) == values
        assert len(server.asked) <= len(values) + 3  # four pages that are the same are the end


def test_a_first_page_that_is_not_there_fails():
    first = serving(JsonServer(lambda *_: (404, b"gone")))
    with first as server, pytest.raises(ConnectError, match="answers 404: gone"):
        source(server, pagination="page").poll()


def test_texts_are_read_in_the_encoding_that_the_answer_names():
    body = ("Content-Type", "application/json; charset=iso-8859-1")
    with serving(JsonServer(lambda *_: (200, '["ü"]'.encode("latin-1"), [body]))) as server:
        assert poll(source(server), 1) == ["ü"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, b"plain", [("Content-Encoding", "gzip")]), "cannot be read: .*decompress"),
        ((302, b"", [("Location", "/items")]), "cannot be read: more than 20 redirections"),
    ],
)
def test_an_answer_that_no_client_reads_is_an_error_that_names_the_address(answer, message):
    with serving(JsonServer(lambda *_: answer)) as server, pytest.raises(ConnectError, match=message):
        source(server).poll()


@pytest.mark.parametrize("secret", [{"headers": "X-Api-Key:S3cret"}, {"authorization": "Bearer S3cret"}])
def test_secrets_do_not_follow_a_redirection_to_another_server(secret):
    other = JsonServer(lambda *_: (200, [1]))
    redirecting = JsonServer(lambda *_: (302, b"", [("Location", other.url)]))
    with serving(other), serving(redirecting):
        with pytest.raises(ConnectError, match="redirects to another server"):
            source(redirecting, **secret).poll()
        assert other.asked == []
        assert poll(source(redirecting, headers="Accept:application/json"), 1) == [1]


def test_secrets_do_not_follow_a_link_to_another_server():
    other = JsonServer(lambda *_: (200, [2]))
    linking = JsonServer(lambda *_: (200, [1], [("Link", f'<{other.url}>; rel="next"')]))
    with serving(other), serving(linking):
        with pytest.raises(ConnectError, match="next page on another server"):
            source(linking, pagination="link", authorization="Bearer S3cret").poll()
        assert other.asked == []
        assert poll_until(source(linking, pagination="link", interval_ms=60_000), 2) == [1, 2]


def test_a_redirection_on_the_same_server_keeps_the_headers():
    def answer(query, headers):
        if "moved" in query:
            return 200, [headers["X-Api-Key"]]
        return 308, b"", [("Location", "/items?moved=1")]

    with serving(JsonServer(answer)) as server:
        assert poll(source(server, headers="X-Api-Key:S3cret"), 1) == ["S3cret"]
