"""What an earlier version has left is gone on with: journals of SQL, topics of Connect, and formats that are newer.

Applications with their logs, checkpoints and states are in `tests/integration/test_kept_versions.py`, as they need Spark.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.engines.application.stored_plans import read_stored_plan
from penstock.errors import CheckpointMismatchError, LogError
from penstock.log.open import open_log
from penstock.sql.session.journal import JournalEntry, StatementJournal
from penstock.topology.plan.plan_json import StoredPlan
from versions import kept_connect, kept_sql
from versions.unpacking import kept


def test_a_session_of_sql_goes_on(tmp_path: Path) -> None:
    root = kept("sql", tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    with kept_sql.session(root) as session, kept_sql.session(new) as fresh:
        fresh.execute(kept_sql.STATEMENTS)
        assert {**session.catalog.sources} == {**fresh.catalog.sources}
        assert sorted(session.catalog.sources) == ["CLICKS", "PAGES"]
        more = "CREATE STREAM cities AS SELECT id, at->city AS city FROM clicks;"
        started, same = (each.execute(more)[-1] for each in (session, fresh))
        assert started == same
        session.execute(kept_sql.ROW % (2, "/home", 2_000))
    with kept_sql.session(root) as session:
        assert sorted(session.catalog.sources) == ["CITIES", "CLICKS", "PAGES"]
        end = session.log.end_offset("clicks", 0)
        values = [
            row for batch in session.log.read_range("clicks", 0, 0, end) for row in batch.column("value").to_pylist()
        ]
    assert [json.loads(value)["PAGE"] for value in values] == ["/home", "/home"]


def test_a_worker_of_connect_goes_on(tmp_path: Path) -> None:
    """The source goes on where its newest offset is, the sink where its group is; nothing comes twice."""
    root = kept("connect", tmp_path)
    assert kept_connect.written(root) == kept_connect.LINES[:30]
    kept_connect.write_lines(root, 30, 60)
    with kept_connect.running(root) as server:
        names = kept_connect.ask(server, "GET", "/connectors")
        assert sorted(names) == sorted(kept_connect.connectors())
        for name, config in kept_connect.connectors().items():
            assert kept_connect.ask(server, "GET", f"/connectors/{name}/config").items() >= config.items()
        kept_connect.until(lambda: len(kept_connect.written(root)) >= 60 and kept_connect.offsets_cover(root, 60))
    assert kept_connect.written(root) == kept_connect.LINES


def test_a_log_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    root = kept("sql", tmp_path)
    connection = sqlite3.connect(root / "log.db")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(LogError, match="is a Penstock log of format 2; this version of Penstock reads format 1"):
        open_log(f"sqlite:///{root / 'log.db'}").topics()


@pytest.mark.parametrize("name", ["threads", "batches"])
def test_a_plan_of_a_newer_format_is_refused(name: str, tmp_path: Path) -> None:
    checkpoint = kept(name, tmp_path) / "checkpoint"
    plan = checkpoint / "plan.json"
    facts = json.loads(plan.read_text())
    assert read_stored_plan(str(checkpoint)) == StoredPlan.of(facts)
    facts["plan"]["format"] = 2
    plan.write_text(json.dumps(facts))
    with pytest.raises(CheckpointMismatchError, match="'kept' has format 2, this Penstock reads format 1"):
        read_stored_plan(str(checkpoint))


def test_a_journal_of_a_newer_format_is_refused() -> None:
    log = open_log("memory://newer-journal")
    journal = StatementJournal(log, "statements")
    journal.hold(log.acquire_lease("default_sql", "this session"))
    journal.append(JournalEntry("CREATE TYPE id AS INT;", {}, 0))
    end = log.end_offset("statements", 0)
    (batch,) = log.read_range("statements", 0, 0, end)
    body = {**json.loads(batch.column("value")[0].as_py()), "format": 2}
    newer = {"key": [b"statement"], "value": [json.dumps(body).encode()]}
    log.append("statements", 0, pa.RecordBatch.from_pydict(newer))
    with pytest.raises(
        LogError, match=r"statement 1 of the topic statements has format 2; .* reads format 1"
    ) as raised:
        StatementJournal(log, "statements").read()
    assert "version of Penstock that wrote it" in str(raised.value)
