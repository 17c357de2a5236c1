"""What spark-submit, PYSPARK_SUBMIT_ARGS and spark-defaults.conf say about Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.session.submitted import submitted_settings


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
