"""What tests of several folders share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from swallowed_errors import SwallowedErrors

settings.register_profile("any machine", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("any machine")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["PENSTOCK_JAVA_ARCHIVE"] = "off"  # none is made in the background: tools/setup_venv has made it
HERE = Path(__file__).parent
collect_ignore_glob = ["*/run.py"]  # programs of one name, which --doctest-modules would import as one module
# Folders in which every test starts Spark, and what of them one process runs: tests that share Spark's session and the
# broker, as one Spark has seldom work for two processors.
ON_SPARK = {"integration": "integration", "soak": "soak", "faults": "faults"}
# Folders and files whose tests share what takes seconds to start: a browser, brokers, workers, an installed wheel.
TOGETHER = frozenset({"browser"})
BY_FILE = frozenset({"connect", "packaging"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that start Spark, which leaves sockets to be closed by the garbage collector."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder in ON_SPARK:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
        if folder == "faults":
            item.add_marker(pytest.mark.faults)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n 2``: the largest groups of tests that share something are first, then each takes the next other test."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            top, _, rest = nodeid.partition("::")[0].partition("/")
            folder = rest.partition("/")[0]
            if top != HERE.name:
                return nodeid
            if folder in BY_FILE:
                return rest
            return folder if folder in TOGETHER else ON_SPARK.get(folder, nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def _swallowed_errors() -> Iterator[SwallowedErrors]:
    handler = SwallowedErrors()
    logging.getLogger("penstock").addHandler(handler)
    yield handler
    logging.getLogger("penstock").removeHandler(handler)


@pytest.fixture(autouse=True)
def _errors_are_not_swallowed(request: pytest.FixtureRequest, _swallowed_errors: SwallowedErrors) -> Iterator[None]:
    """A test fails when Penstock logs an exception and goes on, unless ``logs_error`` declares it."""
    yield
    declared = [pattern for mark in request.node.iter_markers("logs_error") for pattern in mark.args]
    if found := _swallowed_errors.take(declared):
        pytest.fail("Penstock logged exceptions that the test does not declare:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept in the user's directory of state by default goes to one of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _columns_for_small_batches() -> Iterator[None]:
    """Batches of more than 8 rows go by column in this process: most tests have few rows, which would go one by one."""
    from penstock.runtime import sinks, source_reader
    from penstock.runtime.aggregate import operators
    from penstock.runtime.suppress import operator
    from penstock.serde import numbers

    with pytest.MonkeyPatch.context() as patch:
        for module in (sinks, source_reader, operator):
            patch.setattr(module, "FEW", 8)
        patch.setattr(operators, "FEW", 2)
        patch.setattr(numbers, "_FEW", 8)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests that need not kill it."""
    from penstock.engines.spark.quiet import quiet_pyspark
    from penstock.engines.spark.session import session_for

    with quiet_pyspark():
        session, _ = session_for({"spark.master": "local[2]"}, "tests", str(tmp_path_factory.mktemp("checkpoint")))
        yield session
        session.stop()
