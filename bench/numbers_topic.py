"""What a start reads of the topic of the tasks' numbers after many commits: the note of the application, and a task's numbers.

python bench/numbers_topic.py [--commits 100000] [--log kafka|sqlite] [--segment-bytes N] [--json FILE]

Each commit is a record batch of one record, as stream threads write it. The note is the first record of all, so the
search for it goes through everything that compaction has left. ``--segment-bytes 1073741824 --ratio 0.5`` is a topic with
Kafka's defaults. Then it waits for the log's cleaner, as long as ``--settle`` says.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import machine
from compare import broker_in
from penstock.engines.application.application_note import read_application, write_application
from penstock.engines.threads.replicas.restoring import newest_numbers
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.maps import NO_BATCH
from penstock.topology.plan.internal_topics import NUMBERS_SETTINGS, numbers_topic
from penstock.topology.plan.plan import TaskId

APPLICATION = "bench-numbers"


def write(url: str, log: Any, topic: str, commits: int) -> None:
    """Write the note, and then a record for each commit."""
    log.acquire_lease(APPLICATION, "bench")
    write_application(log, APPLICATION, {"mode": "continuous", "plan": "x" * 2_000})
    values = (TaskNumbers(NO_BATCH, "", {"stream_time": each, "counts/size": each}) for each in range(commits))
    rows = (each.record("0_0") for each in values)
    if url.startswith("sqlite"):
        for row in rows:
            log.append(topic, 0, row)
        return
    producer = Producer(
        {"bootstrap.servers": url.removeprefix("kafka://"), "batch.num.messages": 1, "linger.ms": 0, "acks": 1}
    )
    for row in rows:
        key, value = row.column("key")[0].as_py(), row.column("value")[0].as_py()
        while True:
            try:
                producer.produce(topic, value, key, 0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def looked_up(url: str, topic: str) -> dict[str, Any]:
    """Seconds of the two look-ups of a start, by a client that knows nothing yet."""
    with open_log(url) as log:
        place = TopicPartition(topic, 0)
        start, end = log.beginning_offset(topic, 0), log.end_offset(topic, 0)
        log.read(topic, 0, end - 1, 1)  # connections are not what is measured
        began = time.perf_counter()
        note = read_application(log, APPLICATION)
        noted = time.perf_counter()
        numbers = newest_numbers(log, place, TaskId(0, 0), start, end)
        done = time.perf_counter()
        left = sum(each.num_rows for each in log.iterate(topic, 0, start, end))
    assert note is not None
    assert numbers is not None
    return {"note_s": round(noted - began, 3), "numbers_s": round(done - noted, 3), "records_left": left}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--log", choices=("kafka", "sqlite"), default="kafka")
    parser.add_argument("--segment-bytes")
    parser.add_argument("--ratio")
    parser.add_argument("--settle", type=float, default=40.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    topic = numbers_topic(APPLICATION)
    settings = {"cleanup.policy": "compact", **NUMBERS_SETTINGS}
    settings |= {"segment.bytes": given.segment_bytes} if given.segment_bytes else {}
    settings |= {"min.cleanable.dirty.ratio": given.ratio} if given.ratio else {}
    report = machine.facts("bench/numbers_topic.py") | {"commits": given.commits, "settings": settings}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        url = f"sqlite:///{root}/log.db"
        if given.log == "kafka":
            url = f"kafka://{stack.enter_context(broker_in(root)).settings.bootstrap_servers}"
        with open_log(url) as log:
            log.create_topic(topic, 1, settings)
            write(url, log, topic, given.commits)
        report["at_once"] = looked_up(url, topic)
        time.sleep(given.settle)
        report["later"] = looked_up(url, topic)
    machine.show(report, given.json)


if __name__ == "__main__":
    main()
