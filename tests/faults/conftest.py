from __future__ import annotations

from typing import Any

import pytest

from harness import append, prepare, results, run_here


@pytest.fixture(scope="session")
def calm(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Outputs and stores of a run that nothing disturbs."""
    root = tmp_path_factory.mktemp("calm")
    prepare(root)
    run_here(root, spark)
    return results(root)


@pytest.fixture(scope="session")
def done(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same after 30 more records."""
    root = tmp_path_factory.mktemp("done")
    prepare(root)
    run_here(root, spark)
    append(root, 60, 30)
    run_here(root, spark)
    return results(root)
