"""What a batch takes when it cannot take all: what the task would have taken first, record by record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.offsets.offsets import PartitionBacklog, batch_ends, oldest_first
from penstock.log.base import Span, TopicPartition

USERS, ORDERS = TopicPartition("users", 0), TopicPartition("orders", 0)


def line(stamps: list[int], start: int = 0, row: int = 4) -> PartitionBacklog:
    """Records from ``start`` on; stored rows begin at multiples of ``row``, and one before ``start`` is half read."""
    whole = np.array(stamps, np.int64)

    def times(first: int, following: int) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(first, following), whole[first:following]

    bases = range(start // row * row, len(stamps), row)
    rows = [(min(b + row, len(stamps)), int(whole[b : b + row].min()), int(whole[b : b + row].max())) for b in bases]
    return PartitionBacklog(start, rows, times)


def one_by_one(lines: dict[TopicPartition, list[int]], starts: dict[TopicPartition, int], budget: int) -> dict:
    """The partition whose head is the earliest, then that topic which comes first, until the budget is used up."""
    at = dict(starts)
    for _ in range(budget):
        heads = [(lines[tp][at[tp]], tp) for tp in sorted(lines) if at[tp] < len(lines[tp])]
        if not heads:
            break
        at[min(heads)[1]] += 1
    return {tp: at[tp] - starts[tp] for tp in lines}


stamps = st.lists(st.integers(0, 12), min_size=1, max_size=30)


@given(stamps, stamps, st.integers(1, 40), st.integers(0, 29), st.integers(0, 29), st.integers(1, 7))
def test_the_first_records_in_the_order_of_a_task(
    users: list[int], orders: list[int], budget: int, first: int, second: int, row: int
) -> None:
    all_of = {USERS: users, ORDERS: orders}
    starts = {USERS: first % len(users), ORDERS: second % len(orders)}
    lines = {tp: line(all_of[tp], starts[tp], row) for tp in all_of}
    found = oldest_first(lines, budget, {tp: len(all_of[tp]) for tp in all_of})
    assert found == one_by_one(all_of, starts, budget)


def test_the_limit_of_one_partition_holds_back_the_others() -> None:
    lines = {USERS: line([1] * 10), ORDERS: line([2] * 10)}
    assert oldest_first(lines, 100, {USERS: 6, ORDERS: 10}) == {USERS: 6, ORDERS: 0}
    assert oldest_first(lines, 15, {USERS: 10, ORDERS: 10}) == {USERS: 10, ORDERS: 5}


def test_a_stream_does_not_run_ahead_of_its_table() -> None:
    lines = {USERS: list(range(0, 200, 2)), ORDERS: list(range(50, 250))}
    ends = {USERS: 100, ORDERS: 200}

    def lines_of(spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, PartitionBacklog]:
        return {tp: line(lines[tp], span.start) for tp, span in spans.items()}

    first = batch_ends(dict.fromkeys(lines, 0), ends, 75, 1000, lines_of)
    assert first == {USERS: 42, ORDERS: 33}  # all before the time 83
    second = batch_ends(first, ends, 75, 1000, lines_of)
    assert second == {USERS: 66, ORDERS: 83}  # shares are whole numbers
