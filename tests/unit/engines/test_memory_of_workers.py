"""Memory that an idle worker gives back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engines.spark.worker_process import ENVIRONMENT

SCRIPT = Path(__file__).parent / "memory_of_main_thread.py"


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's figures of memory")
def test_what_the_main_thread_has_freed_is_given_back_while_it_waits_for_spark():
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=True, timeout=200
    )  # fmt: skip
    kept, left, *said = done.stdout.split()
    assert said == ["next", "task"]  # its read went on
    assert int(left) < int(kept) - 150
