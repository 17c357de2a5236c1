"""Alerts that look back over hours and starts: stores that grow, restarts, errors of a new kind."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.console.alerts import alerts_of
from penstock.console.app_view import Picture
from penstock.console.recorder import NOW, Past, Recorder, Watched, write_facts
from penstock.engines.spark.progress import BatchProgress
from penstock.log.processes import process_start

MINUTE = 60_000
HOUR = 60 * MINUTE


def alerts(past: Past, now_ms: int, **settings: int) -> list[str]:
    facts = {"alerts": {name.replace("_", "."): value for name, value in settings.items()}}
    found = alerts_of(Picture({"state": "RUNNING", "facts": facts, **past.document()}), now_ms)
    return [f"{alert.name}: {alert.where}" for alert in found]


def again(past: Past) -> Past:
    """The same after a restart of the application."""
    found = Past()
    found.recall(json.loads(json.dumps(past.kept())))
    return found


def grown(each_5_minutes: int, **tasks: int) -> Past:
    past = Past()
    for at in range(13):
        past.look({"carts": {name: rows + each_5_minutes * at for name, rows in tasks.items()}}, 0, at * 5 * MINUTE)
    return past


def batch(*errors: list[Any]) -> BatchProgress:
    return BatchProgress(0, 1, 0, 0, 0, tasks=({"task": "0_0", "counts": {"errors": list(errors)}},))


def test_a_store_that_grows_by_a_fifth_in_an_hour_is_told_until_the_setting_says_otherwise() -> None:
    past = grown(200, t=10_000)
    assert alerts(past, HOUR) == ["state grows: carts"]
    assert alerts(past, HOUR, state_growth_percent=25) == []
    assert alerts(past, HOUR, state_growth_percent=0) == []
    assert alerts(grown(150, t=10_000), HOUR) == []
    assert alerts(grown(10, t=100), HOUR) == []  # a small one


def test_a_store_whose_windows_close_does_not_grow() -> None:
    past = grown(200, t=10_000)
    past.look({"carts": {"t": 12_600}}, 0, 65 * MINUTE)
    assert alerts(past, 65 * MINUTE) == ["state grows: carts"]
    past.look({"carts": {"t": 12_500}}, 0, 66 * MINUTE)
    assert alerts(past, 66 * MINUTE) == []


def test_tasks_that_have_not_run_yet_are_no_growth() -> None:
    past = again(grown(0, t=10_000, u=10_000))
    past.look({"carts": {"t": 10_000}}, 0, 61 * MINUTE)
    assert alerts(past, 61 * MINUTE) == []
    past.look({"carts": {"t": 10_000, "u": 10_000}}, 0, 66 * MINUTE)
    assert alerts(past, 66 * MINUTE) == []


def test_the_hour_of_a_store_goes_on_over_a_restart_of_the_application() -> None:
    past = again(grown(200, t=10_000))
    past.look({"carts": {"t": 12_400}}, 0, 62 * MINUTE)
    assert alerts(past, 62 * MINUTE) == ["state grows: carts"]


def test_restarts_are_told_for_an_hour_or_as_long_as_the_setting_says() -> None:
    past = Past()
    past.look({}, 0, 0)
    past.look({}, 2, MINUTE)
    assert alerts(past, 2 * MINUTE) == ["restarts: "]
    assert alerts(past, 2 * MINUTE, hold_ms=0) == []
    assert alerts(again(past), HOUR) == ["restarts: "]
    assert alerts(past, HOUR + 2 * MINUTE) == []


def test_an_error_of_a_new_kind_is_told_once_for_each_operator_also_over_restarts() -> None:
    past = Past()
    past.add(batch(["map", "ValueError", "continue", 3]), 0)
    past.add(batch(["map", "ValueError", "continue", 3]), 2 * HOUR)
    assert alerts(past, 2 * HOUR) == []
    past = again(past)
    past.add(batch(["map", "ValueError", "continue", 1], ["map", "KeyError", "continue", 1]), 3 * HOUR)
    assert alerts(past, 3 * HOUR) == ["new errors: map KeyError"]
    assert alerts(past, 3 * HOUR, hold_ms=0) == []


@pytest.mark.parametrize(
    "kept", [{}, {"samples": 3}, {"samples": [[1]], "restarts": [], "error_kinds": []}, {"samples": None}]
)
def test_what_another_version_has_kept_is_left_out(kept: dict[str, Any]) -> None:
    past = Past()
    past.recall(kept)
    assert past.kept() == Past().kept()


@pytest.mark.parametrize(("last", "expected"), [("RUNNING", ["restarts"]), ("NOT_RUNNING", [])])
def test_a_process_that_ended_without_a_word_is_a_restart(tmp_path: Path, last: str, expected: list[str]) -> None:
    states = ["RUNNING"]

    def begun() -> Recorder:
        recorder = Recorder("shop", lambda: states[0])
        recorder.begin(Watched(str(tmp_path), tuple, dict, {}, dict))
        return recorder

    first = begun()
    first.close()
    noted = json.loads((tmp_path / "console/now.json").read_text())
    (tmp_path / "console/now.json").write_text(json.dumps({**noted, "state": last}))
    second = begun()
    second.close()
    assert [alert["name"] for alert in second.document()["alerts"]] == expected


@pytest.mark.parametrize(("runs", "expected"), [(True, []), (False, ["restarts"])])
def test_an_instance_that_runs_beside_this_one_has_not_ended(tmp_path: Path, runs: bool, expected: list[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        start = process_start(other.pid)
        if not runs:
            other.communicate(b"\n")
        facts = {"host": socket.gethostname(), "pid": other.pid, "process_start": start}
        write_facts(str(tmp_path), NOW, {"state": "RUNNING", "facts": facts})
        recorder = Recorder("shop", lambda: "RUNNING")
        recorder.begin(Watched(str(tmp_path), tuple, dict, {}, dict, has_others=True))
        recorder.close()
    assert [alert["name"] for alert in recorder.document()["alerts"]] == expected
