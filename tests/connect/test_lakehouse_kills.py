"""A process with a sink to a lakehouse is killed again and again: each record is a row once."""

import json
import random
import subprocess
import sys
import time
from threading import Event, Thread

import pytest

from eventually import eventually
from lakehouses import KINDS, Lakehouse
from penstock.log import Producer
from penstock.log.open import open_log

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "connect", "run"]


def killed(kind, folder, kills, seed):
    """Kill the sink so many times while records come, let the last one end, and compare."""
    choice, url = random.Random(seed), f"sqlite:///{folder}/log.db"
    table = Lakehouse(kind, folder) / "hits"
    config = {
        "name": "hits", "connector.class": table.lake.connector.java_class, "topics": "hits",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        "flush.size": "40", "flush.interval.ms": "20", "compact.commits": "5", **table.config,
    }  # fmt: skip
    if kind == "iceberg":
        del config["compact.commits"]
    (folder / "hits.json").write_text(json.dumps(config))
    command = [*COMMAND, str(folder / "hits.json"), "-b", url]
    with open_log(url) as log:
        log.create_topic("hits", 3)
        stopped, count = Event(), [0]

        def produce():
            with Producer(log) as producer:
                while not stopped.wait(0.02):
                    for _ in range(20):
                        producer.send("hits", json.dumps({"n": count[0]}).encode(), partition=count[0] % 3)
                        count[0] += 1
                    producer.flush()

        thread = Thread(target=produce)
        thread.start()
        try:
            for _ in range(kills):
                before = len(table.rows()) if table.exists else 0
                process = subprocess.Popen(command, cwd=folder)
                try:
                    eventually(lambda before=before: table.exists and len(table.rows()) > before)
                    time.sleep(choice.random() / 2)  # anywhere between two commits, or in one
                finally:
                    process.kill()
                    process.wait()
        finally:
            stopped.set()
            thread.join()
        subprocess.run([*command, "--once"], cwd=folder, check=True, timeout=300)
    assert sorted(row["n"] for row in table.rows()) == list(range(count[0]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_that_is_killed_three_times_writes_each_record_once(kind, tmp_path):
    killed(kind, tmp_path, 3, seed=1)


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_that_is_killed_fifty_times_writes_each_record_once(kind, tmp_path):
    killed(kind, tmp_path, 50, seed=2)
