from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import prepare, results, run_here


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder start Spark, and harm something."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.faults)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests that need not kill it."""
    from penstock.spark.session import quiet_pandas, session_for

    with quiet_pandas():
        made, is_new = session_for({"spark.master": "local[2]"}, "faults", str(tmp_path_factory.mktemp("checkpoint")))
        yield made
        if is_new:
            made.stop()


@pytest.fixture(scope="session")
def calm(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Outputs and stores of a run that nothing disturbs."""
    root = tmp_path_factory.mktemp("calm")
    prepare(root)
    run_here(root, session)
    return results(root)
