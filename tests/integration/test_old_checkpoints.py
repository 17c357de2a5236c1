"""What an earlier version has left is gone on with: log, checkpoint and state name no module that has moved."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from penstock import KafkaStreams
from penstock.log.open import open_log

from . import old_application
from .conftest import long

KEPT = Path(__file__).parent / "data" / "old-checkpoint.tar.xz"


def test_an_application_goes_on_where_an_earlier_version_stopped(tmp_path: Path, spark: Any) -> None:
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = old_application.settings(tmp_path)
    with open_log(settings["bootstrap.servers"]) as log:
        before = log.end_offset("counts-out", 0)
        homes = log.end_offset("homes-out", 0)
    old_application.write(tmp_path, "words", [("k", "a"), ("k", "c")])
    old_application.write(tmp_path, "cities", [("2", "Delft")])

    KafkaStreams(old_application.topology(), settings, session=spark).run(until="latest")

    with open_log(settings["bootstrap.servers"]) as log:
        counts = log.read("counts-out", 0, before).records
        assert [long(value) for value in counts.column("value").to_pylist()] == [5, 1]
        assert log.read("homes-out", 0, homes).records.column("value").to_pylist() == [b"Bob of Delft"]
