"""What spark-submit, PYSPARK_SUBMIT_ARGS and spark-defaults.conf say about Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engines.spark.session import overruled_settings, submitted_settings


@pytest.fixture(autouse=True)
def _none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def test_nothing_was_said() -> None:
    assert submitted_settings() == {}


def test_arguments_win_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# of the cluster\nspark.master   spark://host:7077\nspark.ui.enabled=true\n\nspark.eventLog.enabled true\n"
    )
    arguments = "--master yarn --conf spark.sql.adaptive.enabled=true --conf=spark.ui.port=1 --executor-memory=2g"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} --name other pyspark-shell")
    assert submitted_settings() == {
        "spark.master": "yarn",
        "spark.ui.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.port": "1",
        "spark.executor.memory": "2g",
    }


def test_what_the_program_sets_itself_wins_and_that_is_said() -> None:
    config = {"spark.master": "local[2]", "spark.executor.memory": "1g", "spark.ui.enabled": "true"}
    submitted = {"spark.master": "spark://host:7077", "spark.executor.memory": "2g", "spark.ui.enabled": "true"}
    said = overruled_settings(config, submitted)
    assert said.startswith("spark.master=local[2] and spark.executor.memory=1g of the program's config win over ")
    assert "spark.master=spark://host:7077 and spark.executor.memory=2g of spark-submit" in said
    assert said.endswith("leave them out of the config to run on that master")
    assert "ui" not in said


def test_what_spark_submit_says_by_itself_is_not_spoken_of() -> None:
    assert overruled_settings({"spark.master": "spark://host:7077"}, {"spark.master": "local[*]"}) == ""
    assert overruled_settings({}, {"spark.master": "yarn"}) == ""
    assert overruled_settings({"spark.master": "yarn"}, {"spark.master": "yarn"}) == ""


def test_passwords_are_not_shown() -> None:
    secret = overruled_settings({"spark.ssl.keyPassword": "a1b2"}, {"spark.ssl.keyPassword": "c3d4"})
    assert "a1b2" not in secret
    assert "c3d4" not in secret
