"""Topics that are created when they are missing."""

from __future__ import annotations

import threading

from penstock.log.ensure_topic import ensure_topic
from penstock.log.open import open_log


def test_a_topic_that_exists_keeps_its_partitions_and_settings() -> None:
    with open_log("memory://") as log:
        assert ensure_topic(log, "orders", 3, {"retention.ms": "-1"}) == 3
        assert ensure_topic(log, "orders", 8, {"retention.ms": "5"}) == 3
        assert log.topic("orders").config["retention.ms"] == "-1"


def test_of_many_at_once_one_creates_it_and_all_know_its_partitions() -> None:
    with open_log("memory://") as log:
        start = threading.Barrier(8)
        counts: dict[int, int] = {}

        def ensure(number: int) -> None:
            start.wait()
            counts[number] = ensure_topic(log, "orders", number + 1)

        threads = [threading.Thread(target=ensure, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(counts) == 8
        assert set(counts.values()) == {log.partitions("orders")}
