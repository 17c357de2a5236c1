"""What tests of upgrades share: batches that Spark has committed, lost segments, and the end of a start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from worker_support import ROWS, loaded

from group_offsets import set_offsets
from penstock.config import StreamsConfig
from penstock.engines.offsets.offsets import SourceOffset
from penstock.log.base import TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.state.checkpoint import write_document


def commit(job: Any, log: EmbeddedLog, batch: int, topic: str = "words") -> None:
    """Note a batch of one topic as Spark and the driver do when all its tasks are done."""
    ends = {**log.committed_offsets("app"), TopicPartition(topic, 0): (batch + 1) * ROWS}
    end = SourceOffset(ends, ids=log.topic_ids([tp.topic for tp in ends]))
    write_document(job.checkpoint, f"spark/offsets/{batch}", "v1\n{}\n" + json.dumps(end.to_json()))
    write_document(job.checkpoint, f"spark/commits/{batch}", "v1\n{}")
    set_offsets(log, ends, f"penstock batch {batch}")


def lose_segments(data: bytes, root: Path) -> None:
    """Delete all segments, and the replicas."""
    for path in Path(loaded(data).checkpoint, "state").rglob("*"):
        if path.is_file():
            path.unlink()
    for path in root.rglob("replicas"):
        shutil.rmtree(path)


def stop(config: StreamsConfig) -> None:
    """End a start, so that others can have the lease."""
    with open_log(config["bootstrap.servers"]) as log:
        log.release_lease(log.acquire_lease("app", "test", force=True))
