"""The page of errors, and that of an application that an error has ended, in the browser: both schemes, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import ProcessingError

from .conftest import Console, Seen
from .recorded import recorded

NODE = "KSTREAM-MAPVALUES-0000000001"
CAUSE = [NODE, "UnicodeDecodeError", "parse_line", "/srv/jobs/a_module_with_a_rather_long_name_of_its_own.py", 61]
SAID = "'utf-8' codec can't decode byte 0xff in position {}: invalid start byte " + "x" * 200


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Console]:
    with recorded(tmp_path_factory.mktemp("failed"), state="ERROR") as data:
        data.recorder.failure = ProcessingError(
            f"{NODE}: parse_line (/srv/jobs/access_log.py:30) raised ValueError: no number", node=NODE, kind="ValueError",
            function="parse_line", file="/srv/jobs/access_log.py", line=30, said="no number", task="0_2",
            raised=["size_of", "/srv/jobs/access_log.py", 52], topic="access_log", partition=2, offset=4711,
        )  # fmt: skip
        data.settle(report(data, 0))
        running = Console(data)
        yield running
        running.server.close()


def report(data: Any, first: int) -> int:
    tasks = data.batch_tasks()
    examples = [["access_log", 1, first + n, SAID.format(first + n)] for n in range(3)]
    tasks[0] = {**tasks[0], "counts": {"causes": [[*CAUSE, 3, examples]]}}
    return int(data.batch(tasks=tuple(tasks)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 380])
def test_pages_of_a_failed_application_fit_and_can_be_read_by_all(
    chromium: Any, failed: Console, scheme: str, width: int
) -> None:
    for path in ("/", "/errors"):
        seen = Seen(chromium, failed.url, scheme=scheme, width=width)
        page = seen.go(path)
        page.wait_for_selector("#failure")
        assert page.locator("#failure a", has_text="access_log-2 offset 4,711").get_attribute("href") == (
            "/topics/access_log/2/4711"
        )
        if path == "/errors":
            page.wait_for_selector("#groups")
            for summary in page.locator("#groups summary").all():
                summary.click()
            inside = "document.querySelector('#groups').getBoundingClientRect().right <= innerWidth"
            assert page.evaluate(inside)
            assert seen.axe() == []
        assert not seen.is_too_wide()
        assert seen.problems == []
        seen.context.close()


def test_examples_stay_open_while_records_come_and_lead_to_their_messages(chromium: Any, failed: Console) -> None:
    seen = Seen(chromium, failed.url)
    page = seen.go("/errors")
    row = "#groups tr[data-key*=UnicodeDecodeError]"
    page.locator(f"{row} summary").click()
    for first in (100, 200, 300):
        report(failed.data, first)
        page.wait_for_selector(f"{row} details[open] a[href='/topics/access_log/1/{first + 2}']")
    assert page.locator(f"{row} .examples li").count() == 5
    assert page.locator("#groups tr[data-key*=UnicodeDecodeError]").count() == 1
    page.locator(f"{row} .examples a").first.click()
    page.wait_for_selector("#value")
    assert page.url == f"{failed.url}/topics/access_log/1/302"
    assert seen.problems == []
    seen.context.close()
