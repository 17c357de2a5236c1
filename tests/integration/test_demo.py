"""The demo as a program: over a file that does not grow, and on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from penstock.connect.record_generators import GeneratorSettings, access_log


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.log"
    path.write_text("".join(f"{each.value}\n" for each in access_log(GeneratorSettings(count=300))))
    return path


def command(tmp_path, file, *more: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "demo", "access-log", "--dir", str(tmp_path / "demo"),
            "--file", str(file), *more]  # fmt: skip


def without(tmp_path, *names: str) -> dict[str, str]:
    """The environment of processes in which some packages are not installed."""
    for name in names:
        package = tmp_path / "missing" / name / "__init__.py"
        package.parent.mkdir(parents=True, exist_ok=True)
        package.write_text(f"raise ModuleNotFoundError({f'No module named {name!r}'!r}, name={name!r})\n")
    folders = [str(tmp_path / "missing"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def test_a_file_that_is_counted_ends_the_demo(tmp_path, file):
    done = run(tmp_path, file, "confluent_kafka", "kafka")  # the embedded log needs none of Kafka's clients
    assert done.returncode == 0, done.stdout + done.stderr
    assert "300 lines (300 in this run)" in done.stdout
    assert "verified: a recount" in done.stdout


@pytest.mark.whole
def test_the_demo_needs_no_extra_and_goes_on_with_one(tmp_path, file):
    extras = ("confluent_kafka", "kafka", "starlette", "uvicorn", "jinja2", "httpx", "yaml")
    done = run(tmp_path, file, *extras)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "300 lines (300 in this run)" in done.stdout
    assert "verified: a recount" in done.stdout
    with file.open("a") as more:
        more.writelines(file.read_text().splitlines(keepends=True)[:50])
    again = run(tmp_path, file)  # by a Connect worker
    assert "350 lines (50 in this run)" in again.stdout
    back = run(tmp_path, file, *extras)
    assert back.returncode == 1
    assert "penstock[connect]" in back.stderr


def run(tmp_path, file, *missing: str) -> subprocess.CompletedProcess:
    """Run the demo to its end, without some packages."""
    return subprocess.run(
        command(tmp_path, file, "--seconds", "100000"), capture_output=True, text=True, check=False, timeout=300,
        env=without(tmp_path / "-".join(["without", *missing]), *missing),
    )  # fmt: skip


def test_ctrl_c_while_spark_starts_is_acknowledged(tmp_path, file):
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(tmp_path, file, "--follow"), stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown, has_asked, deadline = b"", False, time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the end of a terminal, on Linux
                part = b""
            if not part:
                break
            shown += part
            if b"starting Spark, " in shown and not has_asked:
                child.send_signal(signal.SIGINT)
                has_asked = True
        assert child.wait(60) == 0, shown.decode()
    os.close(ours)
    assert b"Ctrl-C: the demo ends as soon as Spark has started" in shown
