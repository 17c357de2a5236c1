"""Changelogs that are written from segments, by the holder of the lease alone; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from upgrade_support import commit
from worker_support import ROWS, append, loaded, prepared, run

from penstock import Materialized, StreamsBuilder
from penstock.engines import conversion
from penstock.engines.application.internal_topic_creation import complete_changelogs
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.conversion import SegmentState
from penstock.engines.micro_batches.worker import open_tasks
from penstock.errors import FencedError
from penstock.log.open import open_log

PIECE_ROWS = 3


def test_a_conversion_whose_lease_is_taken_between_pieces_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("words")).to_stream().to("counts")
    topology: Any = builder.build()
    with prepared(tmp_path, topology, ["words", "counts"]) as (data, log):
        append(log, "words", [(f"k{number}", "v") for number in range(ROWS)])
        run(data, 0)
        commit(loaded(data), log, 0)
        config = loaded(data).config
        app = PlannedApp(topology, config, plan_for(topology, config, log), log)
        lease: Any = log.lease("app")
        changelog = next(each for each in app.changelogs if each.store)

        def rows() -> int:
            end = log.end_offset(changelog.topic, 0)
            return sum(each.num_rows for each in log.iterate(changelog.topic, 0, 0, end))

        pieces, changes_batch = [], conversion.changes_batch

        def read_piece(*columns: Any) -> Any:
            pieces.append(len(columns[0]))
            if len(pieces) == 3:
                with open_log(config["bootstrap.servers"]) as other:
                    other.acquire_lease("app", "another", force=True)
            return changes_batch(*columns)

        monkeypatch.setattr(conversion, "_PIECE_ROWS", PIECE_ROWS)
        assert SegmentState(app, 0).write([changelog], lease) == ROWS
        monkeypatch.setattr(conversion, "changes_batch", read_piece)
        with pytest.raises(FencedError, match="another"):
            SegmentState(app, 0).write([changelog], lease)
        assert pieces == [PIECE_ROWS] * 3  # of four
        assert rows() == 2 * PIECE_ROWS
        assert changelog.topic not in complete_changelogs(app.checkpoint)
    open_tasks.close_open_tasks()
