"""What tests of several folders share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
HERE = Path(__file__).parent
# Folders in which every test starts Spark, and which process runs them: those of one group run one after the other,
# and share Spark's session and the broker. Two groups, so that two processors have something to do all the time.
ON_SPARK = {"integration": "integration", "soak": "integration", "faults": "faults"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that start Spark, which leaves sockets to be closed by the garbage collector."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder in ON_SPARK:
            item.add_marker(pytest.mark.xdist_group(ON_SPARK[folder]))
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
        if folder == "faults":
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests that need not kill it."""
    from penstock.spark.session import quiet_pandas, session_for

    with quiet_pandas():
        session, _ = session_for({"spark.master": "local[2]"}, "tests", str(tmp_path_factory.mktemp("checkpoint")))
        yield session
        session.stop()
