from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from recorded import fill

from penstock.console.messages import MessageQuery, Messages, read_messages
from penstock.errors import ConfigError, UnknownTopicError
from penstock.log.base import TopicLog
from penstock.log.open import open_log

NOW = 1_790_000_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicLog]:
    with open_log(f"sqlite:///{tmp_path_factory.mktemp('log') / 'log.db'}") as found:
        fill(found, NOW)
        yield found


def all_of(log: TopicLog, query: MessageQuery) -> list[Messages]:
    found = [read_messages(log, query)]
    while found[-1].cursor:
        found.append(read_messages(log, replace(query, cursor=found[-1].cursor)))
        assert len(found) < 100
    return found


@pytest.mark.parametrize("start", ["newest", "oldest"])
@pytest.mark.parametrize("limit", [7, 50, 500])
def test_pages_hold_each_message_once(log: TopicLog, start: str, limit: int) -> None:
    pages = all_of(log, MessageQuery("orders", start, limit=limit))
    seen = [(row["partition"], row["offset"]) for page in pages for row in page.rows]
    assert len(seen) == len(set(seen)) == 300
    assert all(len(page.rows) <= limit for page in pages)
    assert (pages[-1].searched, pages[-1].total) == (300, 300)


@pytest.mark.parametrize("start", ["newest", "oldest"])
def test_a_filter_finds_all_that_fit_by_whatever_pages(log: TopicLog, start: str) -> None:
    wanted = 'value.total >= 300 and key = "u3"'
    expected = {n for n in range(300) if n * 1.5 >= 300 and n % 17 == 3 and n % 50}
    found = [
        row["value"]["id"]
        for page in all_of(log, MessageQuery("orders", start, limit=3, wanted=wanted))
        for row in page.rows
    ]
    assert sorted(found) == sorted(expected)
    again = [
        row["value"]["id"]
        for page in all_of(log, MessageQuery("orders", start, limit=3, wanted=wanted))
        for row in page.rows
    ]
    assert found == again


def test_reading_starts_at_an_offset_or_a_time(log: TopicLog) -> None:
    rows = read_messages(log, MessageQuery("orders", "90", partition=1)).rows
    assert [row["offset"] for row in rows] == list(range(90, 100))
    late = read_messages(log, MessageQuery("orders", f"time:{NOW - 600_000 + 290_000}", limit=100)).rows
    assert [row["value"]["id"] for row in late if row["value"]] == list(range(290, 300))


def test_an_empty_topic_answers_at_once_and_an_unknown_one_is_refused(log: TopicLog) -> None:
    assert read_messages(log, MessageQuery("empty")).rows == []
    with pytest.raises(UnknownTopicError):
        read_messages(log, MessageQuery("nothing"))
    with pytest.raises(ConfigError, match="no partition 9"):
        read_messages(log, MessageQuery("orders", partition=9))


def test_masked_fields_are_neither_shown_nor_found(log: TopicLog) -> None:
    query = MessageQuery("orders", masked=("value.user", "key"))
    (row, *_) = read_messages(log, query).rows
    assert (row["value"]["user"], row["key"]) == ("(hidden)", "(hidden)")
    assert read_messages(log, replace(query, wanted='value.user = "u3"')).rows == []


def test_a_message_of_another_format_is_shown_as_text_with_the_reason(log: TopicLog) -> None:
    (row,) = read_messages(log, MessageQuery("access_log-bad", value_format="json")).rows
    assert row["value_text"] == "rubbish <script>alert(1)</script>"
    assert "json" in row["problem"]
