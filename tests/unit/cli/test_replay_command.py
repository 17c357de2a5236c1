"""`penstock replay`: records, states, errors, and what is not there."""

from __future__ import annotations

import json
import pdb  # noqa: T100 - which stops in the functions
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.topology_loader import load_topology
from penstock.log.open import open_log
from threads import append, records_of, run_to_end, thread_app

APP = """
from penstock import Consumed, Materialized, Processor, Record, StreamsBuilder

config = {"application.id": "shop", "default.key.serde": "string", "default.value.serde": "string"}


def checked(value):
    if value == "bad":
        raise ValueError("what a price")
    return value


builder = StreamsBuilder()
orders = builder.stream("orders").map_values(checked)
orders.group_by_key().count(Materialized("counts")).to_stream().map_values(str).to("totals")
orders.group_by(lambda key, value: value).count(Materialized("values"))
topology = builder.build()
builder = StreamsBuilder()
builder.stream("other").to("totals")
other = builder.build()
"""


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "shop_app.py"
    file.write_text(APP)
    return str(file)


@pytest.fixture
def log_file(tmp_path: Path, app: str) -> Path:
    """A log on which the application has processed five orders in three runs, with a sixth one that it cannot."""
    path = tmp_path / "shop.db"
    with open_log(f"sqlite:///{path}") as log:
        topology, config = load_topology(f"{app}:topology")
        for topic in ("orders", "totals", "other"):
            log.create_topic(topic)
        any_log: Any = log
        planned = thread_app(topology, config, any_log)
        for number, key in enumerate("abaab"):
            append(any_log, "orders", [(key, f"v{number}", 1_000 * number)])
            if number % 2 == 0:
                run_to_end(planned, any_log)
        append(any_log, "orders", [("a", "bad", 9_000)])
    return path


def replay(run: Any, app: str, log_file: Path, *arguments: object) -> tuple[int, str, str]:
    return run("replay", f"{app}:topology", "-b", log_file, *arguments)


def test_a_record_has_the_state_of_its_moment(run, app, log_file):
    before = sqlite3.connect(log_file).execute("SELECT total_changes()").fetchone(), log_file.read_bytes()
    code, out, _ = replay(run, app, log_file, "--at", "orders:0:2")
    assert code == 0, out
    assert "orders:0:2  'a': 'v2'  time 2000" in out
    assert "  store counts: 'a': ValueAndTimestamp(value=1, timestamp=0) -> 'a': ValueAndTimestamp(value=2" in out
    assert "  wrote totals-0: 'a': '2'  time 2000" in out
    assert "  wrote shop-values-repartition-0: 'v2': 'v2'" in out
    assert log_file.read_bytes() == before[1]


def test_the_log_is_that_of_the_application_unless_the_command_names_one(run, app, log_file, tmp_path):
    own = tmp_path / "own_app.py"
    text = (
        Path(app)
        .read_text()
        .replace('{"application.id"', f'{{"bootstrap.servers": "sqlite:///{log_file}", "application.id"')
    )
    own.write_text(text)
    code, out, _ = run("replay", f"{own}:topology", "--at", "orders:0:2")
    assert code == 0, out
    assert "'a': 'v2'" in out
    _, _, err = run("replay", f"{own}:topology", "--at", "orders:0:2", "-b", tmp_path / "another.db")
    assert "there is no topic log at" in " ".join(err.split())
    _, _, err = run("replay", f"{app}:topology", "--at", "orders:0:2")
    assert "bootstrap.servers" in err


def test_a_range_as_json(run, app, log_file):
    code, out, _ = replay(run, app, log_file, "--at", "orders:0:1-3", "--json")
    assert code == 0
    records = json.loads(out)["records"]
    assert [each["offset"] for each in records] == [1, 2, 3]
    totals = [output["record"] for each in records for output in each["outputs"] if output["topic"] == "totals"]
    assert totals == ["'b': '1'", "'a': '2'", "'a': '3'"]
    assert replay(run, app, log_file, "--at", "orders:0:1", "--to", 3, "--json")[1] == out


def test_all_records_write_what_production_wrote(run, app, log_file):
    _, out, _ = replay(run, app, log_file, "--at", "orders:0:0-4", "--json")
    written = [o["record"] for each in json.loads(out)["records"] for o in each["outputs"] if o["topic"] == "totals"]
    with open_log(f"sqlite:///{log_file}") as log:
        any_log: Any = log
        assert written == [f"'{k.decode()}': '{v.decode()}'" for k, v, _ in records_of(any_log, "totals") if k and v]


def test_a_task_behind_a_repartition_topic(run, app, log_file):
    code, out, _ = replay(run, app, log_file, "--at", "values-repartition:0:1")
    assert code == 0, out
    assert "store values: no row -> 'v1': ValueAndTimestamp(value=1, timestamp=1000)" in out


def test_the_record_that_stopped_the_application(run, app, log_file):
    code, out, _ = replay(run, app, log_file, "--at", "orders:0:5")
    assert code == 1
    assert "from the last commit" in out
    assert "ERROR" in out
    assert "what a price" in out
    assert f", raised at {app}:9." in out


def test_the_debugger_stops_in_the_function(run, app, log_file, monkeypatch):
    stops: list[tuple[str, int, Any]] = []

    def interact(self: pdb.Pdb, frame: Any, traceback: Any) -> None:  # in place of a person at the prompt
        at = frame or traceback.tb_frame
        stops.append((at.f_code.co_name, at.f_lineno, at.f_locals.get("value")))
        self.set_continue()

    monkeypatch.setattr(pdb.Pdb, "interaction", interact)
    code, _, _ = replay(run, app, log_file, "--at", "orders:0:2", "--pdb")
    assert code == 0
    assert ("checked", 8, "v2") in stops
    assert {each[2] for each in stops if each[0] == "checked"} == {"v2"}


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("orders:0:99", "orders:0:99 is beyond the end"),
        ("orders:1:0", "orders has no partition 1, only 1"),
        ("ordres:0:0", "no topic"),
        ("totals:0:0", "the topology does not read 'totals'"),
        ("orders:0", "--at 'orders:0' is no record"),
        ("orders:0:3-1", "the last record, 1, is before the first one, 3"),
    ],
)
def test_what_is_not_there(run, app, log_file, at, message):
    code, _, err = replay(run, app, log_file, "--at", at)
    assert code not in (0, 1) or "rror" in err
    assert message in " ".join(err.split())


def test_deleted_records_and_lost_states(run, app, log_file):
    with open_log(f"sqlite:///{log_file}") as log:
        log.delete_records("orders", 0, 2)
    _, _, err = replay(run, app, log_file, "--at", "orders:0:1")
    assert "orders:0:1 has been deleted" in err
    code, out, _ = replay(run, app, log_file, "--at", "orders:0:3")  # its notes still know the state
    assert code == 0
    assert "value=2, timestamp=2000) -> 'a': ValueAndTimestamp(value=3" in out
    with open_log(f"sqlite:///{log_file}") as log:
        log.delete_records("shop-penstock-numbers-changelog", 0, log.end_offset("shop-penstock-numbers-changelog", 0))
    _, _, err = replay(run, app, log_file, "--at", "orders:0:3")
    assert "the state of task 0_0 before orders:0:3 is not there any more" in " ".join(err.split())
    assert "orders-0 begins at offset 2" in " ".join(err.split())


def test_an_application_that_has_not_run(run, app, tmp_path):
    path = tmp_path / "empty.db"
    with open_log(f"sqlite:///{path}") as log:
        log.create_topic("orders")
    _, _, err = replay(run, app, path, "--at", "orders:0:0")
    assert "shop has not run on this log" in " ".join(err.split())
