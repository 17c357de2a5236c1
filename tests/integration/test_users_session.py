from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.engines.spark.own_session import active_session, map_in_arrow
from penstock.engines.spark.session import spark_for

from .conftest import Bench, long

OURS = "spark.sql.adaptive.enabled"


def java_sessions(session: SparkSession) -> list[int]:
    """The thread's active session and the default one of the JVM; 0 for none."""
    java: Any = session._jvm
    sessions = java.org.apache.spark.sql.classic.SparkSession
    found = [sessions.getActiveSession(), sessions.getDefaultSession()]
    return [java.System.identityHashCode(one.get()) if one.isDefined() else 0 for one in found]


def standing(session: SparkSession) -> dict[str, Any]:
    """All that an application may not change."""
    return {
        "settings": dict(session.conf.getAll),
        "java": java_sessions(session),
        "python": [SparkSession._instantiatedSession, SparkSession._activeSession, SparkSession.getActiveSession()],
        "toDF": RDD.toDF,
        "views": [table.name for table in session.catalog.listTables()],
    }


def test_a_users_session_stays_as_it_is(bench: Bench) -> None:
    """With a DataFrame of a view and a function of the user's session, an output as a DataFrame, and own settings."""
    (bench.root / "orders").mkdir()
    (bench.root / "orders" / "1.json").write_text(json.dumps({"item": "pen", "amount": 2}))
    users = bench.spark.newSession()
    users.conf.set(OURS, "true")
    users.conf.set("spark.sql.shuffle.partitions", "7")
    users.readStream.schema("item string, amount bigint").json(str(bench.root / "orders")).createTempView("orders")
    users.udf.register("loud", str.upper)
    builder = StreamsBuilder()
    frame = users.sql("select loud(item) as item, amount from orders")
    stream = builder.stream_dataframe(frame, name="orders", key="item", value="amount")
    stream.group_by_key().count(Materialized("n")).to_stream().to("counts")
    app = KafkaStreams(
        builder.build(),
        bench.config(**{"spark.sql.shuffle.partitions": "3", "spark.sql.session.timeZone": "Asia/Tokyo"}),
        session=users,
    )
    before = standing(users)
    with app:
        deadline = time.monotonic() + 120
        while not bench.read("counts"):
            assert time.monotonic() < deadline
            assert app.error is None
            time.sleep(0.1)
        output = app.to_dataframe("counts")
        assert output.sparkSession is users
        output.createTempView("counts")
        assert users.sql("select key from counts").isStreaming
        users.catalog.dropTempView("counts")
        assert standing(users) == before  # while it runs
    assert standing(users) == before
    assert bench.read("counts", long) == [("PEN", 1)]
    with pytest.raises(Exception, match="penstock"):
        users.readStream.format("penstock").load()  # nothing is registered there


def test_a_session_of_ones_own_has_what_the_users_has_and_our_settings(bench: Bench) -> None:
    users = bench.spark.newSession()
    users.conf.set(OURS, "true")
    users.conf.set("spark.sql.shuffle.partitions", "7")
    with active_session(users):
        before = standing(users)
        spark = spark_for({"spark.sql.session.timeZone": "Asia/Tokyo"}, "app", str(bench.root), session=users)
        own = spark.session
        assert standing(users) == before
    assert not spark.is_new
    assert [own.conf.get(name) for name in (OURS, "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")] == [
        "false",
        "7",
        "Asia/Tokyo",
    ]
    assert users.conf.get(OURS) == "true"


def test_functions_over_arrow_do_not_ask_for_pandas(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError("no pandas")

    monkeypatch.setattr("pyspark.sql.pandas.functions.require_minimum_pandas_version", missing)
    frame = spark.range(0, 6, 1, 3)
    with pytest.raises(ImportError):
        frame.mapInArrow(iter, "id bigint")
    mapped = map_in_arrow(frame, lambda batches: (batch.slice(0, 1) for batch in batches), "id bigint")
    assert sorted(row.id for row in mapped.collect()) == [0, 2, 4]
