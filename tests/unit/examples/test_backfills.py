"""What the DAGs and the job of examples/backfills call; tests/packaging/test_schedulers.py runs them by Airflow and Dagster."""

from __future__ import annotations

import ast
import importlib.util
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import TopologyTestDriver
from penstock.log import Producer, TopicPartition, open_log

BACKFILLS = Path(__file__).parents[3] / "examples" / "backfills"
DAY = date(2026, 11, 2)


@pytest.fixture(scope="module")
def turnover() -> Any:
    spec = importlib.util.spec_from_file_location("turnover", BACKFILLS / "turnover.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_only_the_chosen_days_are_sent(turnover: Any) -> None:
    sales = [
        ("lamp", 1.0, "2026-11-01T10:00"), ("lamp", 2.0, "2026-11-02T10:00"), ("desk", 5.0, "2026-11-02T11:00"),
        ("lamp", 2.5, "2026-11-02T12:00"), ("lamp", 9.0, "2026-11-03T01:00"),
    ]  # fmt: skip
    with TopologyTestDriver(turnover.topology_of(DAY, DAY), turnover.settings("memory://", "test")) as driver:
        for item, price, at in sales:
            driver.input_topic("sales").pipe({"price": price}, key=item, timestamp=milliseconds(at))
        sent = driver.output_topic("turnover-by-day").read_key_values_to_list()
    assert dict(sent) == {"2026-11-02 lamp": 4.5, "2026-11-02 desk": 5.0}


def test_a_backfill_begins_at_the_first_record_of_its_days_or_where_it_was(turnover: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "shop.db")
    with open_log(log) as opened:
        opened.create_topic("sales", partitions=2)
        with Producer(log) as producer:
            for at in ("2026-11-01T10:00", "2026-11-02T00:00", "2026-11-03T01:00"):
                producer.send("sales", b"{}", partition=0, timestamp=milliseconds(at))
        begin = {TopicPartition("sales", 0): 1, TopicPartition("sales", 1): 0}
        turnover.begin_at(log, "again", datetime(2026, 11, 2, tzinfo=UTC))
        assert opened.committed_offsets("again") == begin
        turnover.begin_at(log, "again", datetime(2026, 11, 3, tzinfo=UTC))  # a run that failed goes on
        assert opened.committed_offsets("again") == begin


def _functions_called_of_turnover(file: str) -> set[str]:
    tree = ast.parse((BACKFILLS / file).read_text())
    return {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name) and node.func.value.id in ("turnover", "program")
    }  # fmt: skip


@pytest.mark.parametrize("file", ["airflow_dag.py", "dagster_job.py"])
def test_the_schedulers_files_call_functions_that_exist(turnover: Any, file: str) -> None:
    called = _functions_called_of_turnover(file)
    assert called == {"catch_up", "backfill"}
    assert all(callable(getattr(turnover, name)) for name in called)
