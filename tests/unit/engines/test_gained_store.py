"""An application that kept no state gets its first store, or a repartition: its older batches have no segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worker_support import ROWS, append, loaded, prepared, run, written

from penstock import Materialized, StreamsBuilder
from penstock.errors import MissingSegmentError

TOPICS = ["words", "upper", "counts"]


def topology(*, counts: bool = False, repartitions: bool = False) -> Any:
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.map_values(lambda value: value.upper()).to("upper")
    if counts:
        words.group_by_key().count(Materialized("counts")).to_stream().to("counts")
    if repartitions:
        words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to("counts")
    return builder.build()


def fill(root: Path) -> None:
    with prepared(root, topology(), TOPICS) as (data, log):
        append(log, "words", [("k", "v") for _ in range(5 * ROWS)])
        for batch in range(2):
            run(data, batch)


@pytest.mark.parametrize("change", ["counts", "repartitions"])
@pytest.mark.parametrize("first", [1, 2])  # batch 1 was not committed, or it was
def test_it_goes_on(tmp_path: Path, change: str, first: int) -> None:
    fill(tmp_path)
    with prepared(tmp_path, topology(**{change: True}), TOPICS) as (data, _):
        for batch in range(first, 4):
            run(data, batch)
    with prepared(tmp_path, topology(**{change: True}), TOPICS) as (data, _):
        run(data, 4)
        assert len(written(data, "upper")) == 5 * ROWS
        assert loaded(data).unsegmented == {0: 1}
        if change == "counts":  # from batch 2 on, whichever was the first to run
            counts = [int.from_bytes(value, "big") for _, value in written(data, "counts")]
            assert counts[-1] == 3 * ROWS


def test_a_segment_that_is_lost_later_is_missed(tmp_path: Path) -> None:
    fill(tmp_path)
    with prepared(tmp_path, topology(counts=True), TOPICS) as (data, _):
        for batch in range(2, 4):
            run(data, batch)
        folder = Path(loaded(data).checkpoint) / "state" / "0_0"
    for path in folder.glob("*.delta"):
        path.unlink()
    for path in tmp_path.rglob("replicas"):
        path.rename(path.with_name("gone"))
    with (
        prepared(tmp_path, topology(counts=True), TOPICS) as (data, _),
        pytest.raises(MissingSegmentError, match=r"3\.delta is gone"),
    ):
        run(data, 4)
