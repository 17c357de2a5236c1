"""What a start asks the log: as often for many tasks as for a few, as each answer names all partitions."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from penstock import Materialized, StreamsBuilder
from penstock.log.open import open_log
from threads import append, new_thread, run_to_end, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string"}
ASKED = ("topic_ids", "end_offsets", "beginning_offsets", "beginning_offset", "group_offsets", "committed_offsets")


class _Counting:
    """A log that counts the questions."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name in ASKED:
            self.calls[name] += 1
        return getattr(self._log, name)


def questions(partitions: int, root: Path) -> Counter[str]:
    """The questions of a start over replicas that are there, and of one without them."""
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        log.create_topic("lines", partitions)
        log.create_topic("counts")
        builder = StreamsBuilder()
        builder.stream("lines").group_by_key().count(Materialized("count")).to_stream().to("counts")
        asked: Counter[str] = Counter()
        for folder in ("first", "first", "second"):
            app = thread_app(builder.build(SERDES), SERDES, log, str(root / folder))
            append(log, "lines", [("k", "v", 1)], partitions - 1)
            run_to_end(app, log)
            counting = _Counting(log)
            thread = new_thread(app, counting)  # type: ignore[arg-type] # it has all of a log
            thread.start()
            thread.close(commit=False)
            asked += counting.calls
        return asked


def test_a_start_asks_as_often_for_many_partitions_as_for_two(tmp_path: Path) -> None:
    assert questions(2, tmp_path / "few") == questions(40, tmp_path / "many")
