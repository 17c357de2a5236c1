"""Arrow loads pandas only for those who import it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.base.late_pandas import _Finder

WITHOUT = """
import sys
from penstock.base.late_pandas import keep_pandas_out

keep_pandas_out()
keep_pandas_out()
import polars as pl
import pyarrow as pa

assert pl.Series([1]).to_arrow().to_pylist() == [1]
assert pa.array([1, None]).null_count == 1
assert pa.scalar(b"x", pa.large_binary()).as_py() == b"x"
print("pandas" in sys.modules)
import pandas as pd

missing = pd.Series([1.0, float("nan")])
print(pa.array(missing).null_count, pa.table({"a": [1, 2]}).to_pandas().shape, pa.Table.from_pandas(missing.to_frame("a")).num_rows)
print(any("late_pandas" in type(each).__module__ for each in sys.meta_path))
"""
WITH = """
import pandas as pd
import pyarrow as pa
from penstock.base.late_pandas import keep_pandas_out

keep_pandas_out()
print(pa.array(pd.Series([1.0, float("nan")])).null_count)
"""
CONVERTED = """
from penstock.base.late_pandas import keep_pandas_out

keep_pandas_out()
import pyarrow as pa

print(pa.table({"a": [1, 2]}).to_pandas()["a"].tolist())
"""


def lines_of(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_arrow_does_not_load_pandas_until_somebody_imports_it() -> None:
    assert lines_of(WITHOUT) == ["False", "1 (2, 1) 2", "False"]


def test_pandas_that_is_there_is_kept() -> None:
    assert lines_of(WITH) == ["1"]


def test_whoever_converts_to_pandas_gets_it() -> None:
    assert lines_of(CONVERTED) == ["[1, 2]"]


def test_a_thread_that_imports_pandas_meanwhile_finds_it() -> None:
    finder = _Finder()
    with pytest.raises(ModuleNotFoundError):
        finder.find_spec("pandas", None)
    with ThreadPoolExecutor(1) as another:
        assert another.submit(finder.find_spec, "pandas", None).result() is not None
