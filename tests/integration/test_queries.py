"""Queries of a running application, in its process, over HTTP, and after its driver was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder, TimeWindows
from penstock.config import StreamsConfig
from penstock.engines.committed_state.opening import lag_of, open_committed
from penstock.errors import InvalidStateError, StateError
from penstock.query import (
    KeyQuery,
    Position,
    PositionBound,
    RangeQuery,
    StateQueryRequest,
    StoreQueryParameters,
    WindowKeyQuery,
)
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService

from .conftest import START, Bench

APP = Path(__file__).with_name("queried_app.py")


def counted():
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to("out")
    windows = words.group_by_key().windowed_by(TimeWindows.of("1s"))
    windows.count(Materialized("by-second"))
    builder.global_table("names", materialized=Materialized("known"))
    return builder.build()


def test_stores_of_a_running_application(bench: Bench) -> None:
    for topic, partitions in (("words", 2), ("out", 1), ("names", 1)):
        bench.log.create_topic(topic, partitions)
    bench.write("names", [("a", "Anna", 0)])
    for partition in range(2):
        bench.write("words", [(f"k{i % 3}", f"w{i % 4}", i) for i in range(20)], partition)
    app = bench.app(counted(), **{"penstock.http.port": 0})
    with pytest.raises(InvalidStateError):
        app.store("counts")
    app.start()
    try:
        counts = app.store("counts")
        bound = PositionBound.at(Position({"words": {0: 19, 1: 19}}))
        request = StateQueryRequest.in_store("counts").with_query(KeyQuery("w1")).with_position_bound(bound)
        result = eventually(lambda: app.query(request).only_partition_result, 120, passing=(StateError,))
        assert result.get() == 10
        assert dict(counts.all()) == {f"w{i}": 10 for i in range(4)}
        assert counts.approximate_num_entries() == 4
        assert app.store("by-second").fetch("k0", START // 1_000 * 1_000) == 7  # one partition's: keys are in both
        windows = app.query(StateQueryRequest.in_store("by-second").with_query(WindowKeyQuery("k0", 0, START + 999)))
        assert sorted(value.value for r in windows.partition_results.values() for _, value in r.get()) == [7, 7]
        info = request.enable_execution_info().require_active()
        eventually(lambda: "from: worker" in app.query(info).only_partition_result.execution_info[0])
        assert app.store("known").get("a") == "Anna"
        assert app.query(StateQueryRequest.in_store("known").with_query(RangeQuery())).global_result.get() == [
            ("a", "Anna")
        ]
        metadata = app.query_metadata_for_key("counts", "w1")
        assert str(metadata.active_host) == app.query_url.removeprefix("http://")
        assert metadata.partition in (0, 1)
        assert [m.state_store_names >= {"counts"} for m in app.streams_metadata_for_store("counts")] == [True]
        bench.write("words", [("k0", "w1", 30)])
        params = {"min_position": json.dumps({"words": {"0": 20}}), "wait_ms": 30_000}
        answer = httpx.get(f"{app.query_url}/stores/counts/keys/w1", params=params, timeout=60, trust_env=False).json()
        assert (answer["value"], answer["role"]) == (11, "active")
        assert eventually(lambda: app.metrics.total("records-consumed-total", topic="words") == 41)
        shown = httpx.get(f"{app.query_url}/metrics", timeout=60, trust_env=False).text
        assert 'kafka_streams_stream_metrics{client_id="app",state="RUNNING"} 1\n' in shown
    finally:
        app.close()
    with pytest.raises(InvalidStateError):
        app.store("counts")
    stale = app.store(StoreQueryParameters("counts").enable_stale_stores())
    assert stale.get("w1") == 11
    app.close()


def test_queries_go_on_when_the_driver_is_killed(bench: Bench) -> None:
    sys.path.insert(0, str(APP.parent))
    import queried_app

    bench.log.create_topic("words", 2)
    bench.log.create_topic("out", 1)
    for partition in range(2):
        bench.write("words", [("k", f"w{i % 4}", i) for i in range(2_000)], partition)
    config = StreamsConfig(queried_app.settings(bench.root))
    service = QueryService(open_committed(queried_app.topology(), config), lag=lag_of(config))
    server = QueryServer(service)
    server.start()
    driver = subprocess.Popen([sys.executable, str(APP), str(bench.root)], start_new_session=True)
    http = httpx.Client(base_url=server.url, trust_env=False, timeout=120)
    try:

        def seen():
            rows = http.get("/stores/counts/range").json()
            return {row["key"]: row["value"] for row in rows["entries"]}, rows["batch"], rows

        eventually(
            lambda: http.get("/stores/counts/range").status_code == 200 and seen()[1] >= 3,
            120,
            passing=(httpx.HTTPError, StateError),
        )
        assert http.get("/metadata/counts/w1").json()["active_host"] is not None
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        found, batch, _ = seen()
        assert sum(found.values()) == 40 * (batch + 1)  # just the batches that were committed
        time.sleep(1.2)
        again, later, rows = seen()
        assert (again, later) == (found, batch)
        assert rows["staleness_ms"] >= 1_000
        assert rows["records_behind"] == 4_000 - sum(found.values())
        assert http.get("/metadata/counts/w1").json()["active_host"] is None
        assert http.get("/stores/counts/keys/w1?route=forward").json()["role"] == "standby"
        bench.run(
            queried_app.topology(), **{**queried_app.settings(bench.root), "penstock.max.records.per.batch": 9_999}
        )
        assert seen()[0] == {f"w{i}": 1_000 for i in range(4)}
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        http.close()
        server.close()
        service.close()
