"""Runs of one sink connector that share its topic, as the instances of an application do (`KStream.sink_to`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventually import eventually
from lakehouses import Lakehouse
from penstock.connect.connectors import with_own
from penstock.connect.delivery.local_run import ConnectorRun
from penstock.connect.functions import installed_plugins
from penstock.log import Producer
from penstock.log.open import open_log


@contextmanager
def running(url: str, config: dict[str, str]) -> Iterator[ConnectorRun]:
    """Run a connector in a thread, over a log of its own."""
    with open_log(url) as log:
        connector, stopped = ConnectorRun(log, config, with_own(installed_plugins()), shares=True), threading.Event()
        thread = threading.Thread(target=connector.run, args=[stopped])
        thread.start()
        try:
            yield connector
        finally:
            stopped.set()
            thread.join()


def test_two_runs_share_the_partitions_and_one_goes_on_alone(tmp_path: Path) -> None:
    url, table = f"sqlite:///{tmp_path / 'log.db'}", Lakehouse("delta", tmp_path) / "hits"
    config = {
        "name": "hits",
        "connector.class": "DeltaSink",
        "topics": "hits",
        "flush.size": "20",
        "flush.interval.ms": "100",
        **table.config,
    }

    def write(numbers: range) -> None:
        with Producer(log) as producer:
            for n in numbers:
                producer.send("hits", json.dumps({"n": n}).encode(), partition=n % 4)

    def rows() -> list[int]:
        return sorted(row["n"] for row in table.rows())

    with open_log(url) as log:
        log.create_topic("hits", 4)
        with running(url, config) as first:
            with running(url, config) as second:
                eventually(lambda: [len(run.sinks[0].assignment) for run in (first, second)] == [2, 2], 300)
                write(range(100))
                eventually(lambda: rows() == [*range(100)], 300, passing=(Exception,))
                assert 0 < second.records < 100
            write(range(100, 200))
            eventually(lambda: rows() == [*range(200)], 300)
