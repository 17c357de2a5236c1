"""Looking at the state of an application while it runs, from another process: `penstock state list` and `query`."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from penstock.cli.topology_loader import load_topology
from penstock.engines.kafka_streams import KafkaStreams, State

APP = """
from penstock import Materialized, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines").flat_map_values(str.split)
words.group_by(lambda _, word: word).count(Materialized("counts")).to_stream().to("out")
topology = builder.build()
config = {
    "application.id": "looked-at",
    "bootstrap.servers": "sqlite:///logs.db",
    "state.dir": "state",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "penstock.source.partitions": 1,
    "spark.master": "local[2]",
}
"""


def penstock(folder, *words: str) -> str:
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_an_option_may_stand_before_the_store(running):
    folder, _ = running
    shown = penstock(
        folder, "query", "--checkpoint", "state/looked-at/checkpoint", "-b", "logs.db", "--json", "counts", "be"
    )
    assert json.loads(shown)["value"] == 2


def test_state_is_listed_while_the_application_runs(running):
    folder, streams = running
    rows = json.loads(penstock(folder, "state", "list", "app.py:topology", "--json"))
    assert [(row["task"], row["stores"], row["changelog_records"]) for row in rows] == [("1_0", ["counts"], 4)]
    assert rows[0]["bytes"] > 0
    refused = [sys.executable, "-m", "penstock", "state", "verify", "app.py:topology"]
    done = subprocess.run(refused, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "runs in stream threads, which keep no segments" in done.stderr
    assert streams.state is State.RUNNING


def test_the_rows_of_its_stores_are_counted(running):
    _, streams = running
    assert streams.figures().state_rows == 4
    assert "state 4 rows" in streams.figures().line()


@pytest.fixture(scope="module")
def running(tmp_path_factory, spark):
    folder = tmp_path_factory.mktemp("looked-at")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "app.py").write_text(APP)
        penstock(folder, "topics", "create", "lines", "-b", "logs.db")
        penstock(folder, "topics", "produce", "lines", "-b", "logs.db", "--value", "to be or not to be")
        topology, config = load_topology("app.py:topology")
        streams = KafkaStreams(topology, config, session=spark)
        streams.start()
        deadline = time.monotonic() + 120
        while streams.figures().records_in < 1 or streams.figures().batches < 1:
            assert time.monotonic() < deadline, streams.figures()
            time.sleep(0.1)
        yield folder, streams
        streams.close()
