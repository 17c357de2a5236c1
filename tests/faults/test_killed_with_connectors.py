"""Applications with a sink connector beside their tasks (`KStream.sink_to`) that are killed: each result is a row once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eventually import eventually
from penstock.log import Producer
from penstock.log.open import open_log

pytest.importorskip("deltalake")
from deltalake import DeltaTable

APP = Path(__file__).with_name("paid_app.py")
STEP = 40


def started(url: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, APP, url, str(folder)], cwd=folder, stderr=(folder / "said").open("ab"))


def rows(folder: Path) -> list[int]:
    table = folder / "lake"
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist()) if table.exists() else []


def send(producer: Producer, first: int) -> int:
    """Send the next orders; return the number of the one behind them."""
    for n in range(first, first + STEP):
        producer.send("orders", json.dumps({"n": n, "total": n % 5}).encode(), partition=n % 3)
    producer.flush()
    return first + STEP


@pytest.mark.whole
@pytest.mark.parametrize("over", ["embedded", "kafka"])
def test_an_instance_that_is_killed_again_and_again(over: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    if over == "kafka":
        url = request.getfixturevalue("kafka").settings.bootstrap_servers
    choice, sent = random.Random(7), 0
    with open_log(url) as log, Producer(log) as producer:
        for topic in ("orders", "paid"):
            log.create_topic(topic, 3)
        for _ in range(4):
            process = started(url, tmp_path)
            try:
                before = len(rows(tmp_path))
                sent = send(producer, sent)
                eventually(lambda before=before: len(rows(tmp_path)) > before, 300)
                time.sleep(choice.random() / 5)  # anywhere between two commits, or in one
            finally:
                process.kill()
                process.wait()
        process = started(url, tmp_path)
        try:
            sent = send(producer, sent)
            expected = [n for n in range(sent) if n % 5]
            eventually(lambda: rows(tmp_path) == expected, 300)
        finally:
            process.terminate()
            assert process.wait(120) == 0, (tmp_path / "said").read_text()[-3000:]
    assert rows(tmp_path) == expected
