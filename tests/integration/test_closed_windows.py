"""Windows that close over jumps in time come out on Spark with the default settings, and a run until latest leaves none inside."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)

MINUTE = 60_000
WINDOWS = {
    "tumbling": TimeWindows.of("1 minute", grace="10 seconds"),
    "session": SessionWindows.of("1 minute", grace="10 seconds"),
    "sliding": SlidingWindows.of("1 minute", grace="10 seconds"),
}
# Each step is longer than the minute and ten seconds for which the windows are kept, 500 s longer than any segment.
CLICKS = [("a", 0), ("a", 1_000), ("b", 2_000), ("c", 142_000), ("d", 642_000), ("e", 10_000_000)]
PARTS = (CLICKS[:3], CLICKS[3:4], CLICKS[4:])


def topology() -> Topology:
    builder = StreamsBuilder()
    clicks = builder.stream("clicks")
    for name, windows in WINDOWS.items():
        counts = clicks.group_by_key().windowed_by(windows).emit_strategy("on_window_close").count()
        counts.to_stream(lambda key, _: key.key).map_values(str).to(name)
    held = clicks.group_by_key().windowed_by(WINDOWS["tumbling"]).count().suppress(Suppressed.until_window_closes())
    held.to_stream(lambda key, _: key.key).map_values(str).to("suppressed")
    pages = builder.stream("pages")
    joined = clicks.outer_join(pages, lambda left, right: f"{left}+{right}", JoinWindows.of("1 minute", grace="0 ms"))
    joined.to("joined")
    return builder.build()


@pytest.fixture(params=["micro_batch", "continuous"])
def outputs(request: Any, bench: Any) -> dict[str, list[Any]]:
    names = [*WINDOWS, "suppressed", "joined"]
    for topic in ("clicks", "pages", *names):
        bench.log.create_topic(topic, 1, {"retention.ms": "-1"})
    for part in PARTS:
        bench.write("clicks", [(key, f"{key}{time}", time) for key, time in part])
        bench.write("pages", [(key, f"p{time}", time) for key, time in part if key == "b"])
        bench.run(topology(), **{"processing.mode": request.param})
    return {name: sorted(bench.read(name)) for name in names}


def test_everything_that_has_closed_comes_out(outputs: dict[str, list[Any]]) -> None:
    closed = [("a", "2"), ("b", "1"), ("c", "1"), ("d", "1")]
    assert outputs["tumbling"] == closed
    assert outputs["suppressed"] == closed
    assert outputs["session"] == closed
    assert {key for key, _ in outputs["sliding"]} == {"a", "b", "c", "d"}
    assert outputs["joined"] == [
        ("a", "a0+None"), ("a", "a1000+None"), ("b", "b2000+p2000"), ("c", "c142000+None"), ("d", "d642000+None")
    ]  # fmt: skip
