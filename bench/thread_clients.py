"""Milliseconds of a stream thread's polls and commits: one small transaction after the other.

python bench/thread_clients.py kafka://127.0.0.1:9092
python bench/thread_clients.py sqlite:///bench.db
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid

import pyarrow as pa

from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer


def _records(count: int) -> pa.RecordBatch:
    stamps = [time.time_ns() // 1_000_000] * count
    columns = {
        "timestamp": pa.array(stamps, pa.int64()),
        "key": pa.array([b"key-%d" % each for each in range(count)], pa.large_binary()),
        "value": pa.array([b"v" * 100] * count, pa.large_binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _shown(name: str, seconds: list[float]) -> None:
    ordered = sorted(1000 * each for each in seconds)
    tail = ordered[int(0.95 * len(ordered))]
    print(f"{name:<44} median {statistics.median(ordered):6.2f} ms, 95th {tail:6.2f} ms, {len(ordered)} times")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--records", type=int, default=10, help="of each partition and commit")
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--gap-ms", type=float, default=10)
    arguments = parser.parse_args()
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with open_log(arguments.url) as log:
        log.create_topic(name, arguments.partitions)
        places = [TopicPartition(name, each) for each in range(arguments.partitions)]
        lease = log.acquire_lease(name, "bench")
        for exactly_once in (True, False):
            began = time.monotonic()
            producer = log.commit_producer(Writer(name, f"thread-{int(exactly_once)}", lease.epoch, exactly_once))
            kind = "exactly once" if exactly_once else "at least once"
            _shown(f"{kind}: a new producer", [time.monotonic() - began])
            with log.fetcher() as fetcher:
                fetcher.assign(log.end_offsets([name]))
                fetcher.poll(0.5)
                commits, polls, seen = [], [], []
                for number in range(arguments.commits + 20):
                    time.sleep(arguments.gap_ms / 1000)
                    records = _records(arguments.records)
                    began = time.monotonic()
                    producer.send([(name, place.partition, records) for place in places])
                    producer.commit({place: OffsetAndMetadata(number) for place in places})
                    committed = time.monotonic()
                    left = arguments.records * len(places)
                    busy = 0.0
                    while left:
                        asked = time.monotonic()
                        found = fetcher.poll(5)
                        left -= sum(each.records.num_rows for each in found.values())
                        busy = time.monotonic() - asked
                    if number >= 20:
                        commits.append(committed - began)
                        seen.append(time.monotonic() - committed)
                        polls.append(busy)
                _shown(f"{kind}: send and commit", commits)
                _shown(f"{kind}: from the commit to the records", seen)
                _shown(f"{kind}: the last poll", polls)
            producer.close()


if __name__ == "__main__":
    main()
