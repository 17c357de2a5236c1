"""Passwords in an application's settings are in nothing that Spark prints or stores."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "tr0ub4dor-and-3-staples"
ENDED_EARLY = """
import sys, tempfile, time
from pathlib import Path

from pyspark import SparkContext
from penstock.engines.spark.session import launch_ahead

launch_ahead({"spark.master": "local[1]", "spark.hadoop.fs.s3a.secret.key": input()}, None, rows_in_jvm=False, uses_sql=False)
while not list(Path(tempfile.gettempdir()).glob("penstock-spark-*")) and SparkContext._gateway is None:
    time.sleep(0.001)
raise SystemExit("the settings are wrong")
"""


def forms(secret: str) -> dict[str, bytes]:
    """How it could be hidden in a text: as it is, in hexadecimal, in base64 at any of three offsets."""
    data = secret.encode()
    found = {"plain": data, "hex": data.hex().encode()}
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + data)
        found[f"base64+{shift}"] = coded[4 * bool(shift) : -4]
    return found


@pytest.mark.parametrize("mode", ["continuous", "micro_batch"])
def test_no_secret_in_event_log_checkpoint_plans_or_logs(tmp_path, mode):
    script = Path(__file__).with_name("secret_app.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), SECRET, mode], capture_output=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:].decode()
    (tmp_path / "stdout").write_bytes(done.stdout)
    (tmp_path / "stderr").write_bytes(done.stderr)
    events = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    recorded = b"".join(path.read_bytes() for path in events)
    if mode == "micro_batch":
        assert b"MicroBatchScan" in recorded  # its plans are recorded,
        assert b"== Analyzed Logical Plan ==" in done.stdout  # printed,
    else:
        assert b"stream threads" in recorded  # its jobs are recorded,
    assert b"DEBUG" in done.stderr  # and Spark's log is of the level that tells all
    leaks = [
        (path.relative_to(tmp_path), form)
        for path in tmp_path.rglob("*")
        if path.is_file()
        for form, text in forms(SECRET).items()
        if text in path.read_bytes()
    ]
    assert leaks == []


def test_no_secret_is_left_by_a_process_that_ends_while_its_jvm_is_started_ahead(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ENDED_EARLY], input=SECRET.encode(), capture_output=True, timeout=180, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert b"the settings are wrong" in done.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and SECRET in path.read_text("latin-1")] == []
    assert list(tmp_path.glob("penstock-spark-*")) == []
