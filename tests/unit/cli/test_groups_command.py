from __future__ import annotations

import json

import pyarrow as pa
import pytest

from penstock.log.base import TopicPartition
from penstock.log.clients.consumer import Consumer
from penstock.log.open import open_log


@pytest.fixture
def path(tmp_path):
    with open_log(str(tmp_path / "log.db")) as log:
        log.create_topic("t", 2)
        times = [1_700_000_000_000 + 1000 * n for n in range(5)]
        log.append("t", 0, pa.RecordBatch.from_pydict({"timestamp": times, "value": [b"%d" % n for n in range(5)]}))
        log.commit_offsets("g", {TopicPartition("t", 0): 3})
    return tmp_path / "log.db"


def committed(path):
    with open_log(str(path)) as log:
        return log.committed_offsets("g")


def test_what_there_is(run, path):
    assert json.loads(run("groups", "list", "-b", path, "--json")[1]) == [
        {"group": "g", "state": "Empty", "members": 0, "application": False}
    ]
    assert "Empty" in run("groups", "list", "-b", path)[1]
    described = json.loads(run("groups", "describe", "g", "-b", path, "--json")[1])
    assert [(row["committed"], row["lag"]) for row in described["partitions"]] == [(3, 2), (None, 0)]
    assert "group g: Empty, 0 members" in run("groups", "describe", "g", "-b", path)[1]
    assert json.loads(run("groups", "lag", "g", "-b", path, "--json")[1])[0]["lag"] == 2
    code, _, err = run("groups", "describe", "none", "-b", path)
    assert code == 1
    assert "Groups: g." in err


def test_an_application_that_starts_has_no_lag_yet(run, path):
    """It holds its lease from the first moment on, and commits offsets with its first batch."""
    with open_log(str(path)) as log:
        lease = log.acquire_lease("app", "here")
        assert "app starts: it has committed no offsets yet" in run("groups", "lag", "app", "-b", path)[1]
        assert "app starts: it has committed no offsets yet" in run("groups", "describe", "app", "-b", path)[1]
        assert json.loads(run("groups", "lag", "app", "-b", path, "--json")[1]) == []
        log.commit_offsets("app", {TopicPartition("t", 0): 1}, "", lease)
        assert "starts" not in run("groups", "lag", "app", "-b", path)[1]
        log.release_lease(lease)


def test_a_reset_shows_first_and_does_it_with_execute(run, path, tmp_path):
    code, out, err = run("groups", "reset", "g", "--to-earliest", "-b", path)
    assert code == 0
    assert "--execute does it" in err
    assert committed(path) == {TopicPartition("t", 0): 3}
    out = json.loads(run("groups", "reset", "g", "--shift-by=-2", "--execute", "-b", path, "--json")[1])
    assert out["executed"]
    assert out["moves"] == [{"topic": "t", "partition": 0, "before": 3, "after": 1, "lag": 4}]
    assert committed(path) == {TopicPartition("t", 0): 1}
    file = tmp_path / "offsets.csv"
    file.write_text(run("groups", "reset", "g", "--to-datetime", "2023-11-14T22:13:22", "--csv", "-b", path)[1])
    assert file.read_text() == "t,0,2\n"
    assert run("groups", "reset", "g", "--from-file", file, "--execute", "-b", path)[0] == 0
    assert committed(path) == {TopicPartition("t", 0): 2}
    assert run("groups", "reset", "g", "-b", path)[0] == 1
    assert run("groups", "reset", "g", "--to-latest", "--execute", "--dry-run", "-b", path)[0] == 1
    run("groups", "reset", "g", "--to-latest", "--topic", "t:1", "--execute", "-b", path)
    assert committed(path)[TopicPartition("t", 1)] == 0


def test_deleting_offsets_and_groups(run, path):
    assert run("groups", "delete", "g", "--topic", "t:1", "--yes", "-b", path)[0] == 0
    assert committed(path) == {TopicPartition("t", 0): 3}
    assert run("groups", "delete", "g", "--yes", "-b", path)[0] == 0
    assert run("groups", "delete", "g", "--yes", "-b", path)[0] == 1


APP = """
from penstock import Materialized, StreamsBuilder

config = {{"application.id": "g", "bootstrap.servers": {log!r}, "state.dir": {state!r}}}
builder = StreamsBuilder()
builder.stream("t").group_by_key().count(Materialized("sums"))
topology = builder.build()
"""


def test_an_application_is_warned_about_and_reset(run, path, tmp_path):
    with open_log(str(path)) as log:
        log.release_lease(log.acquire_lease("g", "the app"))
        log.create_topic("g-sums-changelog")
    err = run("groups", "reset", "g", "--to-earliest", "-b", path)[2]
    assert "penstock app reset" in err
    app = tmp_path / "app.py"
    app.write_text(APP.format(log=str(path), state=str(tmp_path / "state")))
    code, _, err = run("app", "reset", f"{app}:topology")
    assert code == 1
    assert f"none at {tmp_path / 'state' / 'g' / 'checkpoint'}" in err.replace("\n", " ")
    reset = ("app", "reset", f"{app}:topology", "--without-checkpoint")
    code, out, err = run(*reset)
    assert code == 0
    assert "to delete: topic g-sums-changelog" in out
    assert committed(path) == {TopicPartition("t", 0): 3}
    done = json.loads(run(*reset, "--execute", "--json")[1])
    assert done["executed"]
    assert done["deleted"] == ["g-sums-changelog"]
    assert committed(path) == {TopicPartition("t", 0): 0}
    code, _, err = run("app", "reset", "none", "-b", path)
    assert code == 1
    assert "no application 'none'" in err


def test_consume_a_range_of_time(run, path):
    def values(*options):
        out = run("topics", "consume", "t", "--json", "-b", path, *options)[1]
        return [json.loads(line)["value"] for line in out.splitlines()]

    assert values("--from", "2023-11-14T22:13:21Z", "--to", "2023-11-14T22:13:23Z") == ["1", "2"]
    assert values("--from", "beginning", "--to", "2023-11-14T22:13:21Z") == ["0"]
    assert values("--from", 3) == ["3", "4"]


def test_members_in_place_of_the_lag(run, path):
    with open_log(str(path)) as log, Consumer(log, group="g", client_id="reader") as consumer:
        consumer.subscribe("t")
        consumer.poll(timeout_s=0.1)
        out = run("groups", "describe", "g", "-b", path, "--members")[1]
    assert "reader" in out
    assert "partitions" in out
    assert "lag" not in out
