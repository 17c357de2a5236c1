"""What an earlier version has left is gone on with: log, checkpoint and state name no module that has moved."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from penstock import KafkaStreams
from penstock.engines.application.application_mode import checkpoint_mode
from penstock.log.open import open_log

from . import old_application
from .conftest import long

KEPT = Path(__file__).parent / "data" / "old-checkpoint.tar.xz"


def test_an_application_goes_on_where_an_earlier_version_stopped(
    tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In micro-batches, which were the default then, until it is converted."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = old_application.settings(tmp_path)
    with open_log(settings["bootstrap.servers"]) as log:
        before = log.end_offset("counts-out", 0)
        homes = log.end_offset("homes-out", 0)
    old_application.write(tmp_path, "words", [("k", "a"), ("k", "c")])
    old_application.write(tmp_path, "cities", [("2", "Delft")])

    with caplog.at_level("INFO", "penstock"):
        of_batches = {**settings, "penstock.max.records.per.batch": 1000}  # has an effect in the mode that is kept
        KafkaStreams(old_application.topology(), of_batches, session=spark).run(until="latest")
    (said,) = [record.getMessage() for record in caplog.records if "processing.mode" in record.getMessage()]
    assert said.startswith("old goes on in micro-batches, as it has run in them and processing.mode is not set; ")

    with open_log(settings["bootstrap.servers"]) as log:
        counts = log.read("counts-out", 0, before).records
        assert [long(value) for value in counts.column("value").to_pylist()] == [5, 1]
        assert log.read("homes-out", 0, homes).records.column("value").to_pylist() == [b"Bob of Delft"]
        after = log.end_offset("counts-out", 0)
    assert checkpoint_mode(settings["penstock.checkpoint.location"]) == "micro_batch"

    old_application.write(tmp_path, "words", [("k", "a"), ("k", "c")])
    threads = {**settings, "processing.mode": "continuous"}
    KafkaStreams(old_application.topology(), threads, session=spark).run(until="latest")
    assert checkpoint_mode(settings["penstock.checkpoint.location"]) == "continuous"

    old_application.write(tmp_path, "words", [("k", "a")])
    with caplog.at_level("INFO", "penstock"):
        caplog.clear()
        KafkaStreams(old_application.topology(), settings, session=spark).run(until="latest")
    assert not [record for record in caplog.records if "processing.mode" in record.getMessage()]
    with open_log(settings["bootstrap.servers"]) as log:
        counts = log.read("counts-out", 0, after).records
        assert [long(value) for value in counts.column("value").to_pylist()] == [6, 2, 7]
