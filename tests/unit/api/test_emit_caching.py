"""Which stores of windowed aggregations have a cache."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows


@pytest.mark.parametrize(
    ("windows", "caching"),
    [(TimeWindows.of(1_000), None), (SlidingWindows.of(1_000), False), (SessionWindows.of(1_000), False)],
)
def test_sessions_and_sliding_windows_on_close_have_no_cache(windows: Any, caching: bool | None) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    grouped.emit_strategy("on_window_close").count("closed")
    grouped.count("updated")
    stores = builder.build().stores
    assert stores["closed"].caching is caching
    assert stores["updated"].caching is None
