"""Workers over a real broker: a sample of the recorded scenarios; ``run.py --kind rest --log kafka`` runs all."""

import json
import sqlite3
from contextlib import closing

import psutil
import pyarrow as pa
import pytest

from brokers import running_broker
from connect_cases import load_cases
from connect_rest import Scenario
from eventually import eventually
from penstock.connect.tasks.task_handles import TaskProcesses
from penstock.connect.tasks.task_parts import TaskSpec
from penstock.log.open import open_log

SAMPLE = ("errors-dead-letters-headers-distributed", "exactly-once-tasks")
CASES = {case["name"]: case for case in load_cases(kind="rest")}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running.settings.bootstrap_servers


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recorded_scenario_over_a_broker(name, servers):
    assert Scenario(CASES[name], servers).run() == []


def test_what_waits_for_a_sinks_task_takes_little_memory(servers, tmp_path):
    rows, file = 50_000, tmp_path / "rows.db"
    with open_log(servers) as log:
        log.create_topic("rows", 1)
        values = [json.dumps({"text": f"{n:09d}" * 100}).encode() for n in range(rows)]
        for at in range(0, rows, 5000):
            log.append("rows", 0, pa.RecordBatch.from_pydict({"value": values[at : at + 5000]}))
    connector = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "rows", "name": "rows",
        "connection.url": f"sqlite:///{file}", "pk.mode": "kafka", "transforms": "typed",
        "transforms.typed.type": "org.apache.kafka.connect.transforms.HoistField$Value", "transforms.typed.field": "v",
        "auto.create": "true", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }  # fmt: skip
    worker = {
        "bootstrap.servers": servers, "group.id": "little", "key.converter": connector["value.converter"],
        "value.converter": connector["value.converter"],
        **{f"{each}.storage.topic": f"little-{each}" for each in ("config", "offset", "status")},
    }  # fmt: skip
    spec = TaskSpec(("rows", 0), connector, connector, worker, "distributed", "offsets", f"kafka://{servers}")
    task = TaskProcesses(spec.url).start(spec, "STARTED")
    used, news = [], []

    def written():
        news.extend(task.news())
        assert "FAILED" not in [each.state for each in news], news
        used.append(psutil.Process(task.process.pid).memory_full_info().uss)
        return task.progress.records

    try:
        eventually(lambda: written() > 0)
        del used[:-1]  # what it is with all that was loaded for the first records
        eventually(lambda: written() == rows, facts=lambda: task.progress)
    finally:
        task.want("STOPPED")
        assert task.join(60)
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(DISTINCT v) FROM rows").fetchone() == (rows,)
    assert max(used) - min(used) < 25_000_000, [each // 1_000_000 for each in used]
