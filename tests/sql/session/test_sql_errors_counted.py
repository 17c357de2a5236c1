"""Errors of expressions: counted by the task that they happen in, under the text of the expression."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.threads.engine import ProgressCounter
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.metrics.task_counts import TaskCounts
from penstock.sql.session import SqlSession
from penstock.sql.session.persistent_queries import topology_of
from penstock.testing import TopologyTestDriver

CLICKS = "CREATE STREAM c (id INT KEY, n INT, d STRING) WITH (kafka_topic='c', format='JSON', partitions=1);"
QUERY = """
    CREATE STREAM o AS SELECT id, 10 / n AS q, PARSE_DATE(d, 'yyyy-MM-dd') AS day
    FROM c WHERE n < CAST(d AS INT) OR n >= 0;
"""


def test_errors_are_a_metric_by_the_text_of_the_expression(tmp_path: Path) -> None:
    with SqlSession({"bootstrap.servers": f"memory://{tmp_path.name}"}, queries="wait") as session:
        session.execute(CLICKS + QUERY)
        topology = topology_of(session.queries["CSAS_O_0"].plan)
    with TopologyTestDriver(topology, {}) as driver:
        for at, value in enumerate((b'{"N": 0, "D": "1"}', b'{"N": 5, "D": "2020-01-01"}', b'{"N": -1, "D": "x"}')):
            driver.pipe_raw("c", b"1", value, at, ())
        found = {
            metric.metric_name.tag("function"): metric.metric_value()
            for metric in driver.metrics.find("function-errors-total")
        }
    assert found == {
        "10 / C.N": 1,
        "PARSE_DATE(C.D, 'yyyy-MM-dd')": 1,
        "C.N < CAST(C.D AS INT) OR C.N >= 0": 2,
    }


def test_counts_of_a_task_keep_reported_errors_on_their_way_to_the_driver() -> None:
    counts = TaskCounts(3, reported={"A / B": 2})
    assert TaskCounts.of_document(counts.document()) == counts


def test_looks_at_a_stream_thread_report_each_error_once() -> None:
    def report(count: int) -> ThreadState:
        task = {"task": "0_0", "dropped": 0, "stream_time_ms": 1}
        task |= {"records_in": count, "records_out": 0, "records_read": count, "records_written": 0}
        state = ThreadState("host", 1, 0.0)
        state.report = {
            "tasks": [task], "counts": {"0_0": TaskCounts(count, reported={"A / B": count}).document()},
            "seconds": {}, "commits": count, "positions": {}, "ends": {}, "began_ms": 0, "committed_ms": 0,
        }  # fmt: skip
        return state

    counter = ProgressCounter()
    found = [counter.progress(0, {"t": report(count)}) for count in (2, 2, 5)]
    assert [each and each.tasks[0]["counts"]["reported"] for each in found] == [{"A / B": 2}, None, {"A / B": 3}]
