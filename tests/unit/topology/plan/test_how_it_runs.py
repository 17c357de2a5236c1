"""explain() says what leaves the columns, and when."""

from __future__ import annotations

import pytest

from penstock import (
    BufferConfig,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.topology.nodes import ProcessorNode
from penstock.topology.plan.explain import how_it_runs


def of_windows(windows):
    return lambda stream: stream.group_by_key().windowed_by(windows).count()


def suppressed(buffer):
    return lambda stream: stream.group_by_key().count().suppress(Suppressed.until_time_limit("1 second", buffer))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (of_windows(TimeWindows.of("1 minute")), ["columns"]),
        (of_windows(SessionWindows.of("1 minute")), ["columns; row by row for keys whose records are out of order"]),
        (of_windows(SlidingWindows.of("1 minute")), ["columns; row by row for keys whose records are out of order"]),
        (suppressed(BufferConfig.unbounded()), ["columns", "columns"]),
        (
            suppressed(BufferConfig.max_records(9)),
            ["columns", "columns; row by row in a batch that could fill its buffer"],
        ),
        (
            lambda stream: stream.group_by_key().count(Materialized("counts", history="1 hour")),
            ["columns; row by row as its store is versioned"],
        ),
    ],
)
def test_what_goes_row_by_row_is_said(build, expected):
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in")
    table: KTable[str, int] = build(stream)
    assert table is not None
    topology = builder.build()
    assert [how_it_runs(n, topology) for n in topology.nodes.values() if isinstance(n, ProcessorNode)] == expected
