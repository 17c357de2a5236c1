from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.engines.micro_batches.planner import ByteLimit
from penstock.engines.offsets.offsets import batch_ends
from penstock.log.base import TopicPartition

LIMIT = 256 << 20
COUNT = 40
PLACES = [TopicPartition("t", n) for n in range(COUNT)]


class Log:
    """Records of partitions that have a size each; how often it was asked is counted."""

    def __init__(self, sizes: Mapping[TopicPartition, int]) -> None:
        self.sizes = sizes
        self.asked = 0

    def record_sizes(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        self.asked += 1
        return {tp: (end - start) * self.sizes[tp] for tp, (start, end) in ranges.items()}

    def batch(self, limit: ByteLimit, begin: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
        ends = dict.fromkeys(begin, 1_000_000)
        return limit.admitted(
            begin, batch_ends(begin, ends, most, 1_000_000), lambda fewer: batch_ends(begin, ends, fewer, 1_000_000)
        )


@pytest.mark.parametrize("sizes", [(1 << 20, 1 << 20), (100, 1 << 20), (50 << 20, 3)])
def test_large_records_do_not_pass_the_limit(sizes: tuple[int, int]) -> None:
    log = Log({tp: sizes[tp.partition % 2] for tp in PLACES})
    limit = ByteLimit(LIMIT, log.record_sizes, lambda: 0.0)
    ends = log.batch(limit, dict.fromkeys(PLACES, 0), 500_000)
    assert 0 < sum(ends[tp] * log.sizes[tp] for tp in PLACES) <= LIMIT


def test_each_partition_has_its_turn() -> None:
    log = Log(dict.fromkeys(PLACES, 100 << 20))
    limit = ByteLimit(LIMIT, log.record_sizes, lambda: 0.0)
    at = dict.fromkeys(PLACES, 0)
    for _ in range(COUNT):
        at = log.batch(limit, at, 500_000)
    assert sum(at.values()) == 2 * COUNT  # two records fit
    assert min(at.values()) >= 1


def test_small_batches_cost_no_question() -> None:
    log, now = Log(dict.fromkeys(PLACES, 100)), [0.0]
    limit = ByteLimit(LIMIT, log.record_sizes, lambda: now[0])
    for _ in range(3):
        log.batch(limit, dict.fromkeys(PLACES, 0), 10_000)
    assert log.asked == 1  # they would have to be 16 times as large as those before
    now[0] += 3
    log.batch(limit, dict.fromkeys(PLACES, 0), 200)
    assert log.asked == 1  # 200 records of 1 MB would fit
    log.batch(limit, dict.fromkeys(PLACES, 0), 10_000)
    assert log.asked == 2
