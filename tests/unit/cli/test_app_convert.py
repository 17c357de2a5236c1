"""`penstock app convert`, without Spark: applications whose micro-batches are run by the code of Spark's workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from convertible import Application
from penstock.engines.spark import fault_injection as faults
from penstock.errors import FencedError
from penstock.log.base import TopicPartition

Run = Callable[..., tuple[int, str, str]]
INTO_CONTINUOUS = [
    "begun",
    "fenced",
    "changelogs",
    "topics",
    "positions",
    "switched",
    "replicas",
    "checkpoint",
    "cleaned",
]
INTO_BATCHES = [
    "begun",
    "fenced",
    "prepared",
    "task",
    "snapshots",
    "noted",
    "positions",
    "switched",
    "emptied",
    "cleaned",
]


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return Application(tmp_path)


def convert(app: Application, mode: str, fault: str = "") -> int:
    """The command in a process of its own; its exit code, negative for a signal."""
    variables = {**os.environ, "PENSTOCK_FAULT": f"convert-{fault}:*:*"} if fault else {**os.environ}
    command = [sys.executable, "-m", "penstock.cli.main", "app", "convert", app.target, "--to", mode]
    done = subprocess.run(command, env=variables, capture_output=True, timeout=300, check=False, encoding="utf-8")
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_a_dry_run_finds_everything_and_changes_nothing(app: Application, run: Run) -> None:
    app.in_batches(40)
    before = app.everything()
    code, out, err = run("app", "convert", app.target, "--to", "continuous", "--dry-run")
    assert code == 0, err
    assert "found: words-0 is read up to offset 40" in out
    assert "to do: note the mode in the log" in out
    assert "nothing was changed" in err
    assert app.everything() == before
    code, out, _ = run("app", "convert", app.target, "--to", "micro_batch")
    assert (code, out) == (0, "app is in mode micro_batch already\n")


def test_there_and_back(app: Application, run: Run) -> None:
    app.in_batches(40)
    code, out, err = run("app", "convert", app.target, "--to", "continuous")
    assert code == 0, err
    assert "micro_batch -> continuous" in out
    app.in_thread(30)
    code, out, err = run("app", "convert", app.target, "--to", "micro_batch")
    assert code == 0, err
    app.in_batches(20)
    assert app.counts() == app.wanted()


def test_a_running_application_is_not_converted(app: Application, run: Run) -> None:
    app.in_batches(10)
    lease = app.log.acquire_lease("app", "the application")
    code, _, err = run("app", "convert", app.target, "--to", "continuous")
    assert code == 1
    assert "runs already: the application" in err
    app.log.release_lease(lease)


def test_a_changed_topology_is_not_converted(app: Application, run: Run) -> None:
    app.in_batches(10)
    app.write_module(store="other-counts")
    code, _, err = run("app", "convert", app.target, "--to", "continuous")
    assert code == 1
    assert "the topology has changed since it ran" in err
    assert "Run this version once with processing.mode=micro_batch" in err


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_stores_with_headers_are_refused_before_anything_is_converted(
    app: Application, run: Run, more: tuple[str, ...]
) -> None:
    app.settings["dsl.store.format"] = "HEADERS"
    app.write_module()
    app.in_thread(30)
    before = app.everything()
    code, _, err = run("app", "convert", app.target, "--to", "micro_batch", *more)
    assert code == 1
    assert "dsl.store.format=HEADERS is not supported: in micro-batches the stores of tables" in err
    assert app.everything() == before
    del app.settings["dsl.store.format"]  # then it is another application
    app.write_module()
    code, _, err = run("app", "convert", app.target, "--to", "micro_batch", *more)
    assert code == 1
    assert "cannot be converted to processing.mode=micro_batch" in err
    assert "Nothing was changed" in err
    assert app.everything() == before


def test_an_application_that_has_not_run_needs_none(app: Application, run: Run) -> None:
    code, out, _ = run("app", "convert", app.target, "--to", "continuous")
    assert (code, out) == (0, "app has not run: it starts in any mode\n")


def test_a_lost_checkpoint_is_not_taken_for_nothing(app: Application, run: Run) -> None:
    app.in_batches(10)
    app.lose_checkpoint()
    code, _, err = run("app", "convert", app.target, "--to", "continuous")
    assert code == 1
    assert "its checkpoint" in err
    assert "penstock state rebuild --without-checkpoint" in err


def test_a_driver_and_a_task_of_micro_batches_that_wake_up_late_write_nothing(app: Application, run: Run) -> None:
    app.in_batches(40)
    lease = app.log.lease("app")
    assert run("app", "convert", app.target, "--to", "continuous")[0] == 0
    before = app.everything()
    with pytest.raises(FencedError):
        app.log.commit_offsets("app", {TopicPartition("words", 0): 10}, "penstock batch 0", lease)
    with pytest.raises(FencedError):
        write_late(app, lease.epoch)
    assert app.everything() == before


def write_late(app: Application, epoch: int) -> None:
    """Write as a task of an earlier run."""
    with app.log.transaction("app-1_0", epoch) as transaction:
        late = pa.array([b"late"], pa.large_binary())
        transaction.append("counts", 0, pa.RecordBatch.from_pydict({"key": late, "value": late}))
        transaction.put_ledger("app", "1_0", 99)


def test_a_thread_that_wakes_up_late_writes_nothing(app: Application, run: Run) -> None:
    app.in_thread(40)
    thread, lease = app.start_thread()
    app.append(10)
    thread.step(0)  # it has processed, and would commit now
    app.log.release_lease(lease)
    assert run("app", "convert", app.target, "--to", "micro_batch")[0] == 0
    before = app.everything()
    with pytest.raises(FencedError):
        thread.commit()
    thread.close(commit=False)
    assert app.everything() == before


class _Cut(Exception):  # noqa: N818 - not an error of the code
    """The conversion is cut off."""


def cut_off(app: Application, mode: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a conversion in this process that ends at a step."""
    from penstock.cli.topology_loader import load_topology
    from penstock.config import StreamsConfig
    from penstock.engines.conversion import convert as convert_here

    def reach(at: str, *_: object) -> None:
        if at == f"convert-{step}":
            raise _Cut

    def never(mode: str) -> None:
        raise AssertionError(mode)

    monkeypatch.setattr(faults, "reach", reach)
    with pytest.raises(_Cut):
        convert_here(load_topology(app.target)[0], StreamsConfig(app.settings), app.log, mode, never)
    monkeypatch.undo()


@pytest.mark.parametrize("step", INTO_CONTINUOUS)
def test_cut_off_on_the_way_to_continuous_mode(
    app: Application, run: Run, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.in_batches(40)
    cut_off(app, "continuous", step, monkeypatch)
    assert run("app", "convert", app.target, "--to", "continuous")[0] == 0
    app.in_thread(30)
    assert app.counts() == app.wanted()


@pytest.mark.parametrize("step", INTO_BATCHES)
def test_cut_off_on_the_way_to_micro_batches(
    app: Application, run: Run, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.in_thread(40)
    cut_off(app, "micro_batch", step, monkeypatch)
    assert run("app", "convert", app.target, "--to", "micro_batch")[0] == 0
    app.in_batches(30)
    assert app.counts() == app.wanted()


def _mostly_whole(steps: list[str], *kept: str) -> list[Any]:
    """Kills at a few steps: a conversion that is cut off at each step in this process takes a tenth of the time."""
    return [step if step in kept else pytest.param(step, marks=pytest.mark.whole) for step in steps]


@pytest.mark.parametrize("step", _mostly_whole(INTO_CONTINUOUS, "positions"))
def test_killed_on_the_way_to_continuous_mode(app: Application, run: Run, step: str) -> None:
    app.in_batches(40)
    assert convert(app, "continuous", step) == -signal.SIGKILL
    if step in INTO_CONTINUOUS[: INTO_CONTINUOUS.index("switched")]:  # it goes on as if nothing had been
        app.in_batches(30)
    assert run("app", "convert", app.target, "--to", "continuous")[0] == 0
    app.in_thread(30)
    assert app.counts() == app.wanted()


@pytest.mark.parametrize("step", _mostly_whole(INTO_BATCHES, "task", "switched"))
def test_killed_on_the_way_to_micro_batches(app: Application, run: Run, step: str) -> None:
    app.in_thread(40)
    assert convert(app, "micro_batch", step) == -signal.SIGKILL
    if step in INTO_BATCHES[: INTO_BATCHES.index("switched")]:
        app.in_thread(30)
    assert run("app", "convert", app.target, "--to", "micro_batch")[0] == 0
    app.in_batches(30)
    assert app.counts() == app.wanted()


def test_commands_take_an_application_by_its_name(app: Application, run: Run) -> None:
    module = app.root / "counting.py"
    module.write_text(
        f"{module.read_text()}\nfrom penstock import KafkaStreams\n\nshop = KafkaStreams(topology, config)\n"
    )
    module.write_text(module.read_text().replace("config = {", "config = {'num.partitions': 3, "))
    app.in_batches(10)
    code, out, err = run("app", "reset", f"{module}:shop")
    assert code == 0, err
    assert "to delete: " in out
    code, out, err = run("app", "convert", f"{module}:shop", "--to", "continuous", "--dry-run")
    assert code == 0, err
    assert "words-0 is read up to offset 10" in out
    assert "Sub-topology: 1" in run("describe", f"{module}:shop")[1]
