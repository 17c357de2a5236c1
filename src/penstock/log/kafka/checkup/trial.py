"""A trial of what an application does, with a topic of its own, which is removed at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock.base.check_result import CheckResult
from penstock.errors import PenstockError
from penstock.log.thread_clients import Writer

if TYPE_CHECKING:
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.base import TopicLog
    from penstock.log.thread_clients import ThreadClients

__all__ = ["try_cluster"]

_MOST_PARTITIONS = 12
_OFF_MS = 1_000
_SEGMENT_MS = 100
_COMPACTED_WITHIN_S = 60.0  # log.cleaner.backoff.ms of brokers is 15 s
_LOOK_S = 0.5
# A compacted topic whose segments are closed, and cleaned, as soon as may be.
_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",  # of topics that are compacted alone no client deletes records
    "retention.ms": "-1",
    "message.timestamp.type": "LogAppendTime",
    "segment.ms": str(_SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}


def try_cluster(log: TopicLog, needs: ApplicationNeeds, brokers: int) -> Iterator[CheckResult]:
    """Create a compacted topic, write a transaction, read it, see it compacted, delete records, delete the topic.

    Args:
        log: The cluster's log.
        needs: The application, whose prefix the topic and the transactional id have.
        brokers: The number of brokers, for a partition on each.
    """
    topic = needs.unused_name()
    partitions = max(1, min(brokers, _MOST_PARTITIONS))
    created = _attempt(f"trial: create {topic}", lambda: log.create_topic(topic, partitions, _SETTINGS))
    yield created
    if not created.ok:
        return
    try:
        yield from _used(log, topic, partitions)
    finally:
        deleted = _attempt(f"trial: delete {topic}", lambda: log.delete_topic(topic))
    yield deleted


def _used(log: TopicLog, topic: str, partitions: int) -> Iterator[CheckResult]:
    times: dict[int, tuple[float, float]] = {}
    prefix, _, name = topic.rpartition("-")
    clients = cast("ThreadClients", log)  # as each log is
    first = "trial: write in a transaction"
    try:
        with closing(clients.commit_producer(Writer(prefix, name, None))) as producer:

            def write(partition: int, value: bytes) -> None:
                began = time.time() * 1000
                producer.send([(topic, partition, _record(value))])
                producer.commit({})
                times.setdefault(partition, (began, time.time() * 1000))

            for partition in range(partitions):
                write(partition, b"1")
            yield CheckResult(first, f"{partitions} committed", ok=True)
            for value in (b"2", b"3"):  # each begins a new segment, and the last one is not cleaned
                time.sleep(2 * _SEGMENT_MS / 1000)
                write(0, value)
    except PenstockError as error:
        yield _failed(first, error)
        return
    yield _attempt("trial: read committed records", lambda: _read(log, topic, partitions))
    yield from _clocks(log, topic, times)
    yield _compaction(log, topic)
    yield _attempt("trial: delete records", lambda: log.delete_records(topic, 0, log.end_offset(topic, 0)))


def _record(value: bytes) -> pa.RecordBatch:
    columns = {"timestamp": pa.array([0], pa.int64()), "key": pa.array([b"k"]), "value": pa.array([value])}
    return pa.RecordBatch.from_pydict(columns)


def _read(log: TopicLog, topic: str, partitions: int) -> str:
    count = sum(log.read(topic, partition, 0).records.num_rows for partition in range(partitions))
    return f"{count} read"


def _clocks(log: TopicLog, topic: str, times: Mapping[int, tuple[float, float]]) -> Iterator[CheckResult]:
    """Compare the time at which the leader of each partition has appended the first record with ours."""
    for partition, (before, after) in sorted(times.items()):
        name = f"trial: clock of the leader of partition {partition}"
        try:
            # The oldest record may be compacted by now in the partition that has several.
            records = log.read(topic, partition, 0, 1).records
        except PenstockError as error:
            yield _failed(name, error)
            continue
        if not records.num_rows or records.column("value")[0].as_py() != b"1":
            continue
        stamp = records.column("timestamp")[0].as_py()
        ahead_ms = stamp - after if stamp > after else min(0.0, stamp - before)
        finding = f"{abs(ahead_ms):.0f} ms {'ahead of' if ahead_ms >= 0 else 'behind'} this machine's, or less"
        remedy = "Synchronise the clocks (NTP): retention and time-outs of transactions go by the brokers'."
        yield CheckResult(name, finding, ok=True, remedy=remedy if abs(ahead_ms) > _OFF_MS else "")


def _compaction(log: TopicLog, topic: str) -> CheckResult:
    """Wait until the first of two records of a key, in closed segments, is gone."""
    name = "trial: compaction"
    began = time.monotonic()
    try:
        while time.monotonic() - began < _COMPACTED_WITHIN_S:
            values = log.read(topic, 0, 0).records.column("value").to_pylist()
            if b"1" not in values:
                return CheckResult(name, f"after {time.monotonic() - began:.0f} s", ok=True)
            time.sleep(_LOOK_S)
    except PenstockError as error:
        return _failed(name, error)
    remedy = (
        "Changelogs grow without end if nothing is compacted: is the log cleaner of the brokers on, and keeping up?"
    )
    return CheckResult(name, f"not within {_COMPACTED_WITHIN_S:.0f} s", ok=True, remedy=remedy)


def _attempt(name: str, action: Any) -> CheckResult:
    try:
        told = action()
    except PenstockError as error:
        return _failed(name, error)
    return CheckResult(name, told if isinstance(told, str) else "done", ok=True)


def _failed(name: str, error: PenstockError) -> CheckResult:
    return CheckResult(name, error.message, ok=False, remedy=error.hint or "The message says all that is known.")
