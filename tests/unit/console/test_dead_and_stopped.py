"""An application whose process is gone is told apart from one that has ended, and old figures from those of now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.base.clock import unix_ms
from penstock.config import StreamsConfig
from penstock.console.applications import Applications
from penstock.console.recorder import NOW, write_facts
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Site
from penstock.engines.application.locations import Locations
from penstock.log.base import TopicPartition
from penstock.log.open import open_log

APPLICATION = "orders"


@contextmanager
def console(folder: Path, held: bool, others: Sequence[str] = (), **facts: Any) -> Iterator[httpx.Client]:
    """A console over a log in which an application has run, whose newest figures are these."""
    url = f"sqlite:///{folder / 'log.db'}"
    with closing(open_log(url)) as log:
        log.create_topic("in", 1)
        log.commit_offsets(APPLICATION, {TopicPartition("in", 0): 0})
        lease = log.acquire_lease(APPLICATION, "test", 30_000)
        if not held:
            log.release_lease(lease)
        settings = {"application.id": APPLICATION, "bootstrap.servers": url}
        written = {"application": APPLICATION, "written_ms": unix_ms() - 42_000, "rates": {"in": 145.0}, **facts}
        write_facts(Locations.of(StreamsConfig(settings), log).checkpoint, NOW, written)
        for name in others:
            log.commit_offsets(name, {TopicPartition("in", 0): 0})
            log.release_lease(log.acquire_lease(name, "test", 30_000))
            place = Locations.of(StreamsConfig({**settings, "application.id": name}), log).checkpoint
            write_facts(place, NOW, {"application": name, "state": "NOT_RUNNING", "written_ms": unix_ms()})
        server = ConsoleServer(
            Site(Applications(log, {"bootstrap.servers": url}), log), ConsoleAddress(port=0, token=None)
        )
        server.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as http:
            yield http
        server.close()


@pytest.mark.parametrize("state", ["RUNNING", "REBALANCING", "PENDING_SHUTDOWN"])
def test_a_killed_application_has_died(tmp_path: Path, state: str) -> None:
    with console(tmp_path, held=False, state=state) as http:
        health = http.get("/api/v1/health")
        assert health.status_code == 503
        (found,) = health.json()["applications"]
        assert (found["state"], [alert["name"] for alert in found["alerts"]]) == ("DIED", ["died"])
        assert f"it was {state}" in found["alerts"][0]["what"]
        assert re.search(r"4\d s ago", found["alerts"][0]["what"])
        page = http.get("/").text
        assert "DIED" in page
        assert "the last figures" in page
        assert 'class="tiles stale"' in page
        assert 'name="died"} 1' in http.get("/api/v1/metrics").text


def test_an_application_that_has_ended_is_stopped(tmp_path: Path) -> None:
    with console(tmp_path, held=False, state="NOT_RUNNING") as http:
        health = http.get("/api/v1/health")
        assert (health.status_code, health.json()["applications"][0]["state"]) == (200, "NOT_RUNNING")
        page = http.get("/").text
        assert "DIED" not in page
        assert 'class="tiles stale"' in page
        assert "the last figures" in page


def test_figures_of_now_are_not_grey_and_silent_ones_are(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with console(tmp_path / "live", held=True, state="RUNNING", written_ms=unix_ms()) as http:
        assert "stale" not in http.get("/").text
        assert http.get("/api/v1/health").status_code == 200
    (tmp_path / "silent").mkdir()
    with console(tmp_path / "silent", held=True, state="RUNNING") as http:
        assert 'class="tiles stale"' in http.get("/").text
        assert [alert["name"] for alert in http.get("/api/v1/health").json()["applications"][0]["alerts"]] == ["silent"]


def test_the_first_page_names_another_application_that_has_failed_today(tmp_path: Path) -> None:
    for folder, age_ms in (("today", 60_000), ("earlier", 3 * 24 * 3_600_000)):
        (tmp_path / folder).mkdir()
        failed = {"state": "ERROR", "written_ms": unix_ms() - age_ms}
        with console(tmp_path / folder, held=False, others=["calm"], **failed) as http:
            page = http.get("/?app=calm").text
            assert ("Another application has failed" in page) == (folder == "today")
            assert '/?app=orders">orders</a>' in page  # the table has it, however old
            assert "Another application has failed" not in http.get("/?app=orders").text


def test_pages_of_stream_threads_speak_of_threads_and_show_no_time_without_a_begin(tmp_path: Path) -> None:
    """Of the tasks of a thread only the last has the thread's begin and steps."""
    now = unix_ms()
    of_thread = {"began_ms": now - 500, "seconds": {"poll": 0.6, "process": 0.3, "commit": 0.1}, "busy_s": 0.29}
    tasks = [
        {"task": "0_0", "thread": "t-1", "began_ms": 0, "seconds": {}, "busy_s": 0.01},
        {"task": "0_1", "thread": "t-1", **of_thread},
        {"task": "0_2", "thread": "t-2", "began_ms": 0, "seconds": {}, "busy_s": 0.0},
        {"task": "0_3", "thread": "t-2", **of_thread, "busy_s": 0.0},
    ]
    shown = {"level": 0, "host": "t", "records": 10, "written": 1, "dropped": 0, "rows": 0}
    steps = {"read": 0.6, "process": 0.3, "write": 0.1}
    lines = [[number, now - 1000 * (7 - number), 0.4, 40, 4, 0, 0, 1.0, 0, steps] for number in (5, 6, 7)]
    facts = {
        "state": "RUNNING",
        "written_ms": now,
        "facts": {"mode": "continuous"},
        "lines": lines,
        "tasks": [{"batch": 7, "end_ms": now, "tasks": [{**shown, **task} for task in tasks]}],
    }
    with console(tmp_path, held=True, **facts) as http:
        threads, overview, of_tasks = (http.get(path).text for path in ("/batches", "/", "/tasks"))
    for page in (threads, overview, of_tasks):
        body = page.partition("<main")[2].partition("</main>")[0]
        assert "batch" not in body.lower().replace("/batches", ""), body
        assert " d " not in body  # days: a span since 1970
        assert "00000 times the median" not in body
        assert ">Threads</a>" in page
        assert "<title>Batches" not in page
    assert "2 stream threads" in threads
    assert "40.0%" in threads.replace(" ", "") or "40%" in threads.replace(" ", "")
    assert "of 2 stream threads" in overview
