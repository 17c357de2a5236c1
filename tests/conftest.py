"""What tests of several folders share."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, settings

from brokers import JAVA_OPTIONS, RUNNING, java_options, running_broker
from penstock.base import log_lines
from penstock.tools.broker.process import Broker
from swallowed_errors import SwallowedErrors

settings.register_profile("any machine", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("any machine")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["PENSTOCK_JAVA_ARCHIVE"] = "off"  # none is made in the background: tools/setup_venv has made it
os.environ.setdefault(JAVA_OPTIONS, java_options())
# Of a notebook's packages; jsonschema would import it for a format that no test needs, 2 s of CPU time in each process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
HERE = Path(__file__).parent
collect_ignore_glob = ["*/run.py"]  # programs of one name, which --doctest-modules would import as one module
# Folders in which tests start Spark.
ON_SPARK = frozenset({"integration", "soak", "faults"})
# What one process runs: tests that share what takes seconds to start (Spark's session, a broker, a browser, workers, an
# installed wheel). The longest groups begin first. Most of them wait more than they compute.
GROUPS = ("integration a-d", "integration e-z", "faults", "broker")
ON_A_BROKER = frozenset({
    "test_broker.py", "test_fenced_records.py", "test_hanging_transactions.py", "test_instances.py", "test_kafka_clients.py",
    "test_kafka_log.py", "test_kafka_threads.py", "test_kafka_wire.py", "test_mixed_group.py", "test_shared_positions.py",
    "test_streams_commits.py", "test_streams_coordinators.py", "test_streams_groups_shown.py", "test_streams_renewal.py", "test_streams_takeover.py", "test_zombie_threads.py",
})  # fmt: skip
OF_THEIR_OWN_PROCESSES = frozenset({
    "test_continuous_killed.py", "test_demo.py", "test_jvm_gone.py", "test_notebook_application.py",
    "test_standby_takes_over.py", "test_submit.py",
})  # fmt: skip
# Folders whose tests wait more than they compute, too.
WAITING = frozenset({"browser", "connect", "docs", "packaging", "soak"})
ONE_BY_ONE = frozenset({"docs", "property", "simulation"})
TOPICS_BEFORE = pytest.StashKey[dict[str, set[str]]]()
PIECES = 16  # of a file of recorded cases
FLICKERING = 2  # tests of a run with --reruns that may fail at first: more of them are no chance


def group_of(nodeid: str) -> str:
    """The group of a test, which one process runs; most are files, whose fixtures are then made once."""
    path = nodeid.partition("::")[0]
    top, _, rest = path.partition("/")
    folder, _, file = rest.partition("/")
    if top != HERE.name:
        return path
    if folder in ("integration", "faults"):
        if file in ON_A_BROKER or file in OF_THEIR_OWN_PROCESSES:
            return "broker" if file in ON_A_BROKER else path
        return folder if folder == "faults" else f"{folder} {'a-d' if file < 'test_e' else 'e-z'}"
    if folder == "conformance":
        return f"{path}::{crc32(nodeid.encode()) % PIECES}"
    return folder if folder == "browser" else nodeid if folder in ONE_BY_ONE else path


def _turn(item: pytest.Item) -> int:
    """When a test's group begins: the long ones, then others that wait, then those that only compute."""
    group = group_of(item.nodeid)
    if group in GROUPS:
        return GROUPS.index(group)
    folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return len(GROUPS) + (0 if folder in ON_SPARK else 1 if folder in WAITING else 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect the tests without the garbage collector, which would walk over all of them again and again, here and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests that start Spark, which leaves sockets to be closed by the garbage collector."""
    if hasattr(config, "workerinput"):  # with -n: groups begin in the order of their first tests
        items.sort(key=_turn)
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder in ON_SPARK:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
        if folder == "faults":
            item.add_marker(pytest.mark.faults)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With ``--reruns 1``: fail a run with more than FLICKERING tests that failed and then passed.

    One such test in 18,000, most of them beside others on busy cores, says that the test or what it tests has a race.
    The summary names it with its failure, and it is to be mended; but it hides nothing about the other tests.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and len(reporter.stats.get("rerun", ())) > FLICKERING and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why tests failed that then passed."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_sep("-", f"failed at first, to be mended: {report.nodeid}", yellow=True)
        terminalreporter.write_line(report.longreprtext[-4_000:])


@pytest.fixture(autouse=True)
def _a_second_try_finds_no_topics_of_the_first(request: pytest.FixtureRequest) -> None:
    """With ``--reruns 1``: topics that the first try has made on a broker of several tests are deleted before the second.

    It would fail at them, however well the tested code does. Tests that ask for the broker while they run count as well.
    """
    uses_brokers = request.node.get_closest_marker("spark") or "servers" in request.fixturenames
    if not uses_brokers or not request.config.getoption("reruns", None):
        return
    now = {servers: _topics_of(servers) for servers in (each.settings.bootstrap_servers for each in RUNNING)}
    before = request.node.stash.get(TOPICS_BEFORE, None)
    if before is None:
        request.node.stash[TOPICS_BEFORE] = now
        return
    for servers, topics in now.items():
        if new := topics - before.get(servers, set()):
            for deletion in _admin_of(servers).delete_topics(sorted(new)).values():
                deletion.result(60)


def _topics_of(servers: str) -> set[str]:
    """The topics of a broker, but Kafka's own; none if it is down for a test."""
    try:
        topics = _admin_of(servers).list_topics(timeout=10).topics
    except KafkaException:
        return set()
    return {each for each in topics if not each.startswith("__")}


@cache
def _admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})  # it says nothing when the broker has ended


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Forgets the secrets of a test's settings, which would be stars in the lines that others look for."""
    secrets = log_lines._secrets
    before = secrets.texts, secrets.pattern
    yield
    secrets.texts, secrets.pattern = before


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n 4``: each process takes the next group of tests, and the last process takes them from the other end.

    The first groups wait for Spark and brokers most of the time, and what only computes stands at the end: so there is
    something to compute while others wait.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            if self.numnodes > 2 and node.gateway.id == f"gw{self.numnodes - 1}":
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            groups = self.assigned_work[node]  # what is done is looked at no more: it would be after each test
            for group in [group for group, tests in groups.items() if all(tests.values())]:
                del groups[group]

    config.option.loadscopereorder = False  # their order is that of the collection
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
def _what_workers_keep_open() -> Iterator[None]:
    """What tests that run micro-batches in this process have left open, as Spark's workers do, is closed at the end."""
    yield
    workers = "penstock.engines.micro_batches.worker"
    if (tasks := sys.modules.get(f"{workers}.open_tasks")) is not None:
        tasks.close_open_tasks()
    if (batches := sys.modules.get(f"{workers}.exactly_once")) is not None:
        batches.close_global_stores()


@pytest.fixture(scope="session", autouse=True)
def _columns_for_small_batches() -> Iterator[None]:
    """Batches of more than 8 rows go by column in this process: most tests have few rows, which would go one by one."""
    from penstock.runtime import sources_and_sinks
    from penstock.runtime.aggregate import operators
    from penstock.runtime.suppress import operator
    from penstock.serde import primitives

    with pytest.MonkeyPatch.context() as patch:
        for module in (sources_and_sinks, operator):
            patch.setattr(module, "FEW", 8)
        patch.setattr(operators, "FEW", 2)
        patch.setattr(primitives, "_FEW_NUMBERS", 8)
        yield


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The plain broker of this process, for tests that need not stop it; topics and groups want names of their own."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests that need not kill it."""
    from penstock.engines.spark.pyspark_warnings import quiet_pyspark
    from penstock.engines.spark.session import spark_for

    with quiet_pyspark():
        checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
        started = spark_for({"spark.master": "local[2]"}, "tests", checkpoint, spare=8)
        yield started.session
        started.release()
