"""CREATE OR REPLACE: which changes of a query go on with its state, and why the others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import SqlError
from penstock.sql.session import SqlSession
from penstock.sql.session.persistent_queries import topology_of
from penstock.topology.plan.evolution import compare
from penstock.topology.plan.plan import plan_of
from penstock.topology.plan.plan_json import StoredPlan, document_of

SOURCES = """
    CREATE STREAM c (id INT KEY, page STRING, site STRING, ms INT) WITH (kafka_topic='c', format='JSON', partitions=1);
    CREATE STREAM d (id INT KEY, page STRING, site STRING, ms INT) WITH (kafka_topic='d', format='JSON', partitions=1);
    CREATE TABLE u (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='u', format='JSON', partitions=1);
"""
COUNT = "TABLE o AS SELECT page, COUNT(*) AS n, TOPK(ms, 2) AS most FROM c GROUP BY page;"
JOIN = "STREAM o AS SELECT c.id, c.page FROM c JOIN d WITHIN 1 MINUTE ON c.id = d.id;"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": f"memory://{tmp_path.name}"}, queries="wait") as made:
        made.execute(SOURCES)
        yield made


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (COUNT, COUNT.replace("GROUP", "WHERE ms > 9 GROUP"), "which continues with its state"),
        (COUNT, COUNT.replace(" FROM", ", COUNT(*) * 2 AS twice FROM"), "which continues with its state"),
        (COUNT, COUNT.replace("page;", "page HAVING COUNT(*) > 1;"), "which continues with its state"),
        (JOIN, JOIN.replace("c.page", "c.page, d.ms"), "which continues with its state"),
        ("STREAM o AS SELECT id, page FROM c;", "STREAM o AS SELECT id, page FROM d WHERE ms > 1;", "which continues"),
    ],
)
def test_what_stands_before_and_behind_the_state_may_change(
    session: SqlSession, first: str, then: str, said: str
) -> None:
    session.execute(f"CREATE {first}")
    (replaced,) = session.execute(f"CREATE OR REPLACE {then}")
    assert replaced.text.endswith(said)
    assert len(session.queries) == 1


@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        (
            COUNT,
            COUNT.replace(" FROM", ", MAX(ms) AS top FROM"),
            r"aggregates was COUNT\(\*\), TOPK\(C.MS INTEGER, 2\) and now is .*MAX\(C.MS INTEGER\)",
        ),
        (COUNT, COUNT.replace("2)", "3)"), r"now is COUNT\(\*\), TOPK\(C.MS INTEGER, 3\)"),
        (
            COUNT,
            "TABLE o AS SELECT site AS page, COUNT(*) AS n, TOPK(ms, 2) AS most FROM c GROUP BY site;",
            r"GROUP BY was C.PAGE STRING and now is C.SITE STRING",
        ),
        (COUNT, COUNT.replace("FROM c", "FROM d"), r"it read stream C \(topic c\) and now reads stream D \(topic d\)"),
        (COUNT, COUNT.replace("GROUP", "WINDOW TUMBLING (SIZE 1 MINUTE) GROUP"), "WINDOW was none and now is TUMBLING"),
        (JOIN, JOIN.replace("1 MINUTE", "2 MINUTES"), "WITHIN was 60000 ms before, 60000 ms after and now is 120000"),
        (JOIN, JOIN.replace("JOIN d", "LEFT JOIN d"), "the join was INNER JOIN and now is LEFT JOIN"),
        (
            JOIN,
            "STREAM o AS SELECT id AS c_id, page AS c_page FROM c;",
            "it kept the state of a join of streams, and now would keep",
        ),
    ],
)
def test_what_the_state_is_made_of_may_not(session: SqlSession, first: str, then: str, reason: str) -> None:
    session.execute(f"CREATE {first}")
    before = dict(session.catalog.queries)
    with pytest.raises(SqlError, match=reason) as raised:
        session.execute(f"CREATE OR REPLACE {then}")
    assert "To start from nothing: DROP" in raised.value.hint
    assert session.catalog.queries == before, "the old query continues"


def test_a_script_with_other_groups_of_one_type_is_refused_by_the_plan_of_its_checkpoint(session: SqlSession) -> None:
    grouped = [
        f"CREATE TABLE {name} AS SELECT {column}, COUNT(*) AS n FROM c GROUP BY {column};"
        for name, column in (("a", "page"), ("b", "site"))
    ]
    session.execute("".join(grouped))
    documents = []
    for query in session.queries.values():
        topology = topology_of(query.plan)
        documents.append(document_of(plan_of(topology, "app", {"c": 1}), topology, {}))
    assert compare(StoredPlan.first(documents[0], ""), documents[0]).verdict == "same"
    found = compare(StoredPlan.first(documents[0], ""), documents[1])
    assert any("COUNT(*) BY C.PAGE STRING" in reason for reason in found.reasons)


def test_a_paused_query_that_is_replaced_stays_paused(session: SqlSession) -> None:
    session.execute(f"CREATE {COUNT} PAUSE CTAS_O_0;")
    (replaced,) = session.execute(f"CREATE OR REPLACE {COUNT.replace('GROUP', 'WHERE ms > 9 GROUP')}")
    assert replaced.text.endswith("which stays paused")
    assert session.queries["CTAS_O_0"].state == "PAUSED"
