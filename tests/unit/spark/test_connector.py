"""Which jars of Spark's Kafka connector are taken; without fetching any."""

from __future__ import annotations

import pytest

from penstock.errors import EnvironmentProblemError
from penstock.spark.connector import COORDINATES, connector_jars


def test_a_folder_or_files_of_the_user(tmp_path):
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in connector_jars([str(tmp_path)])] == ["a.jar", "b.jar"]
    assert [path.name for path in connector_jars([str(tmp_path / "b.jar")])] == ["b.jar"]
    with pytest.raises(EnvironmentProblemError, match=r"penstock.kafka.jars names .*nowhere"):
        connector_jars([str(tmp_path / "nowhere")])


def test_what_was_fetched_before_is_taken_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    folder = tmp_path / "spark-kafka-4.2.0-4.0.0"
    folder.mkdir()
    (folder / "connector.jar").touch()
    assert connector_jars(version="4.2.1") == [folder / "connector.jar"]


def test_a_pyspark_that_nobody_has_tried():
    with pytest.raises(EnvironmentProblemError, match=r"no Kafka connector was tested with PySpark 5\.0") as caught:
        connector_jars(version="5.0.1")
    assert "penstock.kafka.jars" in caught.value.hint
    assert all(len(jars) == 4 for sets in COORDINATES.values() for jars in sets)
