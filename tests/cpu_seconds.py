"""CPU seconds of tests by directory, also of the brokers, JVMs and applications that they start.

``PYTHONPATH=tests pytest -p cpu_seconds ...`` prints them at the end, the most expensive files too; with ``-n`` of all processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

_PROPERTY = "cpu_s"
_FILES = 25
_used: Counter[str] = Counter()
_seen: dict[str, float] = {}


def _tree_s() -> float:
    """CPU seconds of this process and all that it has started; those that have ended count as their parents'."""
    total, own = 0.0, psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "teardown":
        now = _tree_s()
        report.user_properties.append((_PROPERTY, max(0.0, now - _seen.get("before", 0.0))))
        _seen["before"] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, seconds in report.user_properties:
        if name == _PROPERTY and report.when == "teardown":
            _used[report.nodeid.partition("::")[0]] += seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    directories: Counter[str] = Counter()
    for file, seconds in _used.items():
        directories["/".join(file.split("/")[:-1][:3])] += seconds
    terminalreporter.section("CPU seconds")
    for name, seconds in [*directories.most_common(), ("all", sum(_used.values())), *_used.most_common(_FILES)]:
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")
