"""SELECT in a session: rows of topics, changes that go on to come, limits, other orders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.errors import SqlError, StateError
from penstock.sql.results import Rows, Stream
from penstock.sql.session import SqlSession

CLICKS = (
    "CREATE STREAM clicks (user STRING KEY, ms INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=3);"
)
FIRST = "SET 'auto.offset.reset'='earliest';"


@pytest.fixture
def session(tmp_path) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as made:
        made.execute(CLICKS)
        yield made


def insert(session: SqlSession, *rows: tuple[str, int]) -> None:
    for at, (user, ms) in enumerate(rows):
        session.execute(f"INSERT INTO clicks (user, ms, ROWTIME) VALUES ('{user}', {ms}, {1000 + at});")


def rows(session: SqlSession, text: str) -> Rows:
    found = session.execute(text)[-1]
    assert isinstance(found, Rows)
    return found


def stream(session: SqlSession, text: str) -> Stream:
    found = session.execute(text)[-1]
    assert isinstance(found, Stream)
    return found


def test_a_stream_is_read_to_its_present_end_in_the_order_of_time(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("bob", 2), ("cem", 3), ("dan", 4))
    found = rows(session, "SELECT user, ms FROM clicks;")
    assert found.columns == ("USER", "MS")
    assert found.types == ("STRING", "INTEGER")
    assert found.rows == (("ann", 1), ("bob", 2), ("cem", 3), ("dan", 4))


def test_an_empty_stream_has_no_rows(session: SqlSession) -> None:
    assert rows(session, "SELECT * FROM clicks;").rows == ()


def test_rows_of_a_stream_are_ordered_and_cut(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("bob", 3), ("cem", 2))
    assert rows(session, "SELECT user, ms FROM clicks ORDER BY ms DESC LIMIT 1 OFFSET 1;").rows == (("cem", 2),)


@pytest.mark.parametrize(
    ("order", "users"),
    [
        ("ORDER BY ms", "ann cem bob"),
        ("ORDER BY clicks.ms DESC", "bob cem ann"),
        ("ORDER BY ms % 2, ms DESC", "cem bob ann"),
        ("ORDER BY 1 DESC", "cem bob ann"),
        ("ORDER BY name DESC, ms LIMIT 2", "cem bob"),
        ("WHERE ms < 3 ORDER BY ROWTIME DESC", "cem ann"),
    ],
)
def test_rows_of_a_stream_are_ordered_by_what_select_has_not_too(session: SqlSession, order: str, users: str) -> None:
    insert(session, ("ann", 1), ("bob", 3), ("cem", 2))
    found = rows(session, f"SELECT UCASE(user) AS name FROM clicks {order};")
    assert found.columns == ("NAME",)
    assert found.rows == tuple((name,) for name in users.upper().split())


def test_the_place_of_a_row_is_that_in_its_topic(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("bob", 2), ("ann", 3))
    query = "SELECT user, ROWPARTITION, ROWOFFSET, ROWTIME FROM clicks EMIT CHANGES LIMIT 3;"
    found = sorted(stream(session, FIRST + query), key=lambda row: row[3])
    places = {(row[1], row[2]) for row in found}
    assert len(places) == 3
    assert [row[3] for row in found] == [1000, 1001, 1002]
    assert found[0][1] == found[2][1], "records of one key are in one partition"


def test_a_push_query_begins_with_what_comes_next(session: SqlSession) -> None:
    insert(session, ("ann", 1))
    found = stream(session, "SELECT user FROM clicks EMIT CHANGES LIMIT 2;")
    insert(session, ("bob", 2), ("cem", 3))
    assert list(found) == [("bob",), ("cem",)]


def test_a_push_query_from_the_beginning_counts_old_and_new_rows(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("ann", 2))
    found = iter(stream(session, FIRST + "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user EMIT CHANGES;"))
    assert [next(found), next(found)] == [("ann", 1), ("ann", 2)]
    insert(session, ("ann", 3))
    assert next(found) == ("ann", 3)


def test_a_push_query_that_is_closed_ends(session: SqlSession) -> None:
    found = stream(session, "SELECT * FROM clicks EMIT CHANGES;")
    assert next(found.rows) is None, "it says when nothing has come for a while"
    found.close()
    found.close()
    assert list(found) == []


def test_a_source_table_is_the_newest_row_of_each_key_of_its_topic(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("bob", 2), ("ann", 3))
    session.execute(
        "CREATE SOURCE TABLE newest (user STRING PRIMARY KEY, ms INT) WITH (kafka_topic='clicks', value_format='JSON');"
    )
    assert rows(session, "SELECT * FROM newest;").rows == (("ann", 3), ("bob", 2))
    assert rows(session, "SELECT ms FROM newest WHERE user IN ('bob', 'eve');").rows == ((2,),)


def test_a_row_that_cannot_be_computed_has_a_null_and_the_query_goes_on(session: SqlSession) -> None:
    insert(session, ("ann", 0), ("bob", 5))
    assert rows(session, "SELECT 10 / ms AS part FROM clicks;").rows == ((None,), (2,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT usr FROM clicks;", "Did you mean USER?"),
        ("SELECT * FROM klicks;", "Did you mean CLICKS?"),
        ("SELECT COUNT(*) FROM clicks;", "aggregate functions: COUNT"),
        ("SELECT * FROM clicks ORDER BY nothing;", "ORDER BY names the column 'NOTHING'"),
        ("SELECT user FROM clicks ORDER BY 2;", "SELECT has 1 columns"),
        ("SELECT user FROM clicks ORDER BY usr;", "Did you mean USER?"),
        ("SELECT user FROM clicks ORDER BY ARRAY[ms];", "have no order"),
        ("SELECT * FROM clicks ORDER BY ms EMIT CHANGES;", "ORDER BY is not supported"),
    ],
)
def test_a_query_that_cannot_be_run_says_why_and_where(session: SqlSession, text: str, reason: str) -> None:
    with pytest.raises(SqlError) as caught:
        session.execute(text)
    assert reason in f"{caught.value} {caught.value.hint}"
    assert "^" in str(caught.value)


def test_the_state_of_a_query_that_has_never_run_cannot_be_read(session: SqlSession) -> None:
    session.execute("CREATE TABLE n AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;")
    with pytest.raises(StateError, match="CTAS_N_0"):
        session.execute("SELECT * FROM n;")


def test_final_results_come_when_the_topic_is_idle_if_the_query_says_so(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("ann", 2))
    text = "SELECT user, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY user "
    found = stream(session, FIRST + text + "EMIT FINAL AFTER 1 SECOND IDLE LIMIT 1;")
    assert list(found) == [("ann", 2)]


def test_subqueries_and_joins_on_several_conditions_are_answered(session: SqlSession) -> None:
    insert(session, ("ann", 1), ("bob", 7))
    assert rows(session, "SELECT u FROM (SELECT user AS u, ms * 2 AS d FROM clicks) AS t WHERE d > 10;").rows == (
        ("bob",),
    )
    text = "WITH n AS (SELECT user, COUNT(*) AS n FROM clicks GROUP BY user) SELECT n FROM n EMIT CHANGES LIMIT 1;"
    assert list(stream(session, FIRST + text)) == [(1,)]
    with pytest.raises(SqlError, match="subqueries that make tables"):
        session.execute("SELECT n FROM (SELECT user, COUNT(*) AS n FROM clicks GROUP BY user) AS t;")
