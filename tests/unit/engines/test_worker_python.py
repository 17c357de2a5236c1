"""The Python of Spark's workers: PySpark as it is installed, and nothing that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from penstock.engines.spark.worker_python import worker_python, workers_with_this_python

HOME = Path(pyspark.__file__).parent
FOUND = "import os, sys, pyspark; print(pyspark.__file__); print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


def sparks() -> str:
    """What Spark puts in front of the path."""
    library, jars = HOME / "python/lib", HOME / "jars"
    zips = [library / "pyspark.zip", *library.glob("py4j-*.zip")]
    return ":".join(str(path) for path in [*zips, *jars.glob("spark-core_*.jar")])


@pytest.mark.parametrize("times", [1, 2])
def test_pyspark_is_the_installed_one_and_the_users_path_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    users = str(tmp_path / "of the user")
    path = ":".join([sparks()] * times + [users])
    command = [worker_python(HOME), "-c", FOUND, "one", "and two"]
    assert command[0] != sys.executable
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [pyspark.__file__, users, "['one', 'and two']"]
    zipped = subprocess.run(
        [sys.executable, "-c", FOUND],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pyspark.zip" in zipped.stdout.splitlines()[0]  # why all this is there


def test_a_script_that_somebody_has_changed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    script = Path(worker_python(HOME))
    text = script.read_text()
    script.write_text("#!/bin/sh\nexit 7\n")
    assert worker_python(HOME) == str(script)
    assert script.read_text() == text
    assert script.stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_it_or_another_spark_it_is_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file"))
    assert worker_python(HOME) == sys.executable
    assert worker_python(tmp_path) == sys.executable  # no zip files there


def test_the_environment_is_put_back_and_what_the_user_names_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with workers_with_this_python():
        assert os.environ["PYSPARK_PYTHON"] == worker_python(HOME)
    assert "PYSPARK_PYTHON" not in os.environ
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with workers_with_this_python():
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    with workers_with_this_python():  # a Spark of one's own has a PySpark of its own
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_HOME"] == str(tmp_path)


@pytest.mark.parametrize(
    ("module", "without"),
    [
        (
            "penstock.engines.micro_batches.source",
            ["pandas", "polars", "lmdb", "sqlite3", "penstock.engines.micro_batches.planner"],
        ),
        ("penstock.engines.micro_batches.planner", ["pandas", "polars", "lmdb"]),
        ("penstock.log.open", ["pandas", "polars", "lmdb"]),
    ],
)
def test_processes_that_only_plan_load_little(module: str, without: list[str]) -> None:
    """Spark starts several of them one after the other before the first batch."""
    code = f"import sys, {module}; print([name for name in {without!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
