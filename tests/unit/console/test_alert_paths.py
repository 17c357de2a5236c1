"""Each alert arises and goes: in the page, the log, /health, Prometheus and the webhook."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.base.clock import unix_ms
from penstock.console import alerts, recorder
from penstock.console.alerts import NAMES
from penstock.console.applications import Applications, OwnApplication
from penstock.console.recorder import Recorder, Watched
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Site
from penstock.engines.spark.progress import BatchProgress
from penstock.errors import ProcessingError
from penstock.metrics import PartitionLag

HOUR_MS = 3_600_000


@dataclass
class Watch:
    """An application whose figures a test sets."""

    recorder: Recorder
    http: httpx.Client
    posted: list[dict[str, Any]]
    lags: list[PartitionLag] = field(default_factory=list)
    beginnings: dict[str, int] = field(default_factory=dict)
    long_steps: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    state: str = "RUNNING"
    ahead_ms: int = 0  # of the recorder's clock
    batches: int = 0

    def lag(self, records: int, seconds: float, beginning: int = 0) -> None:
        self.lags = [PartitionLag("in", 0, 100_000 - records, 100_000, seconds, 0.0, unix_ms())]
        self.beginnings = {"in-0": beginning}

    def batch(self, count: int = 1, **facts: Any) -> None:
        """Report batches, a second apart."""
        for _ in range(count):
            self.ahead_ms += 1000
            given = {name: value(self.batches) if callable(value) else value for name, value in facts.items()}
            if (waiting := given.pop("waiting", None)) is not None:
                self.lag(waiting, given.pop("behind", 90.0))
            took = given.pop("took", (0.1, 0.1, 0.1))
            ends = {f"{lag.topic}-{lag.partition}": lag.position for lag in self.lags}
            of_each = {"ends": ends, "began_ms": 0, "entries": given.pop("rows", {}), "counts": given.pop("counts", {})}
            tasks = tuple({"task": f"0_{n}", "seconds": {"process": s}, **of_each} for n, s in enumerate(took))
            whole = {"records_in": 100, "records_out": 0, "dropped": 0, "stream_time_ms": 0, "seconds": 0.1, **given}
            self.recorder(BatchProgress(self.batches, tasks=tasks, **whole))
            self.batches += 1

    def rows(self, store: str) -> int:
        return int(sum(self.recorder.document().get("stores", {}).get(store, {}).values()))

    def wait(self, is_met: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 120
        while not is_met():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def alert(self, name: str) -> dict[str, Any] | None:
        found = self.http.get("/api/v1/alerts").json()
        return next((each for each in found if each["name"] == name), None)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    posted: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    hook = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=hook.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(alerts, "_FIRST_MS", 0)  # else the first line comes after two minutes
    monkeypatch.setattr(recorder, "_LOOK_S", 0.1)
    monkeypatch.setattr(recorder, "_RENEW_S", 0.05)
    made = Recorder("shop", lambda: found.state, f"http://127.0.0.1:{hook.server_port}/")
    own = OwnApplication("shop", made, lambda: None)  # type: ignore[arg-type,return-value]
    server = ConsoleServer(Site(Applications(None, own=own), None), ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as http:
        found = Watch(made, http, posted)
        monkeypatch.setattr(recorder, "unix_ms", lambda: unix_ms() + found.ahead_ms)
        facts = {"mode": "micro_batch", "interval_ms": 100, "alerts": {"hold.ms": HOUR_MS, "state.growth.percent": 25}}
        made.begin(
            Watched(
                str(tmp_path), lambda: found.lags, lambda: found.beginnings, facts, dict,
                lambda: "batch 7 runs for 94 s: task 0_1 is processing", long_steps=lambda: found.long_steps,
                restarts=lambda: found.restarts,
            )
        )  # fmt: skip
        yield found
    made.close()
    server.close()
    hook.shutdown()
    thread.join()
    hook.server_close()


def stuck(watch: Watch) -> None:
    watch.batch()
    watch.lag(500, 70.0)
    watch.ahead_ms += 70_000


def free(watch: Watch) -> None:
    watch.batch(waiting=0)


def calm(watch: Watch) -> None:
    """An hour of nothing, then a batch that leaves nothing behind."""
    watch.ahead_ms += HOUR_MS
    watch.long_steps.clear()
    watch.batch(25, waiting=0)


def overtaken(watch: Watch) -> None:
    watch.lag(98_000, 90.0, beginning=1_900)
    watch.batch()


def grown(watch: Watch) -> None:
    """Over an hour, rows come every five minutes and none goes."""
    for count in range(13):
        watch.batch(rows={"carts": 10_000 + 300 * count})
        watch.wait(lambda at=count: watch.rows("carts") == 3 * (10_000 + 300 * at), "the rows are not noted")  # type: ignore[misc]
        watch.ahead_ms += 5 * 60_000


def failed(watch: Watch) -> None:
    watch.recorder.failure = ProcessingError(
        "MAP: f (app.py:3) raised ValueError: no, for the record {'key': 'secret'}", hint="Repair it."
    )
    watch.state = "ERROR"


CASES: dict[str, tuple[Callable[[Watch], None], Callable[[Watch], None], str]] = {
    "failed": (failed, lambda watch: setattr(watch, "state", "RUNNING"), "raised ValueError: no"),
    "stuck": (stuck, free, "task 0_1 is processing"),
    "stuck task": (
        lambda watch: watch.long_steps.append(
            {"task": "0_3", "what": "task 0_3 is processing since 94 s, in KSTREAM-MAP-1", "seconds": 94.0}
        ),
        lambda watch: watch.long_steps.clear(),
        "in KSTREAM-MAP-1",
    ),
    "lag grows": (lambda watch: watch.batch(30, waiting=lambda n: 1000 + 200 * n), calm, "more each second"),
    "retention overtakes": (overtaken, free, "oldest 10%"),
    "records lost": (lambda watch: watch.batch(lost={"in-0": 12}), None, "12 offsets"),  # type: ignore[dict-item]
    "drops": (lambda watch: watch.batch(5, dropped=4), calm, "were dropped in five minutes"),
    "skew": (lambda watch: watch.batch(25, took=(0.1, 0.1, 0.9)), calm, "9.0 times"),
    "slow batches": (lambda watch: watch.batch(30, waiting=lambda n: 100 * n, seconds=0.4), calm, "commit.interval.ms"),
    "clock": (
        lambda watch: watch.batch(stream_time_ms=unix_ms() + 3 * HOUR_MS),
        lambda watch: setattr(watch, "ahead_ms", watch.ahead_ms + 4 * HOUR_MS),
        "ahead of the clock",
    ),
    "state grows": (grown, lambda watch: watch.batch(rows={"carts": 10_000}), "more than an hour ago, and no row was removed"),
    "restarts": (lambda watch: setattr(watch, "restarts", 2), calm, "restarted 2 times"),
    "new errors": (
        lambda watch: watch.batch(counts={"errors": [["KSTREAM-SOURCE-0", "SerializationError", "continue", 2]]}),
        calm,
        "in KSTREAM-SOURCE-0 with SerializationError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_alert_arises_everywhere_and_goes_everywhere(
    watch: Watch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.app")
    arise, end, said = CASES[name]
    watch.batch()
    assert watch.alert(name) is None
    arise(watch)
    watch.wait(lambda: watch.alert(name) is not None, f"{name} does not arise")
    found = watch.alert(name) or {}
    assert said in found["what"]
    assert found["do"]
    assert "secret" not in found["what"]
    assert name in watch.http.get("/").text
    assert f'name="{name}"}} 1' in watch.http.get("/api/v1/metrics").text
    health = watch.http.get("/api/v1/health")
    assert health.status_code == (503 if name in ("failed", "stuck") else 200)
    assert name in [alert["name"] for alert in health.json()["applications"][0]["alerts"]]
    watch.wait(lambda: (name, "firing") in [(p["name"], p["status"]) for p in watch.posted], "nothing was posted")
    watch.wait(lambda: any(f"shop: {name}" in line for line in caplog.messages), "the log lacks it")
    if end is None:  # what is lost stays lost until the next start
        return
    end(watch)
    watch.wait(lambda: watch.alert(name) is None, f"{name} does not go")
    assert f'name="{name}"}} 0' in watch.http.get("/api/v1/metrics").text
    watch.wait(lambda: (name, "recovered") in [(p["name"], p["status"]) for p in watch.posted], "no end was posted")
    watch.wait(lambda: any("recovered" in line and name in line for line in caplog.messages), "the log lacks its end")


def test_every_alert_but_that_of_a_dead_process_is_among_the_cases() -> None:
    assert set(CASES) == set(NAMES) - {"silent", "died"}
