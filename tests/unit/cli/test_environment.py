"""What `penstock doctor` and tools/check_java say of machines that lack something."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.cli.environment import examine, java_version

CHECK_JAVA = Path(__file__).parents[3] / "tools" / "check_java"


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Makes JAVA_HOME a folder whose bin/java says that it is of the version given."""

    def install(version: str) -> Path:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        return tmp_path

    return install


def finding(name: str, **where: object):
    return next(f for f in examine(**where) if f.name.startswith(name))  # type: ignore[arg-type]


def check_java() -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_NO_INSTALL": "1"}
    return subprocess.run([str(CHECK_JAVA)], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(("version", "ok"), [("1.8.0_402", False), ("11.0.22", False), ("17", True), ("21.0.2", True)])
def test_java_by_its_major_version(java, version, ok):
    home = java(version)
    assert java_version() == version
    found = finding("Java")
    assert (found.ok, found.found) == (ok, version)
    assert ok or "17 or later" in found.remedy
    told = check_java()
    assert (told.returncode == 0) is ok
    if not ok:
        assert "too old" in told.stderr
        assert str(home) in told.stderr
        assert "Hint:" in told.stderr


def test_no_java(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "no working bin/java" in finding("Java").remedy
    told = check_java()
    assert told.returncode == 1
    assert "no working bin/java" in told.stderr


def test_a_busy_port_is_told_and_does_no_harm():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        busy = finding("port", port=port)
    assert busy.ok
    assert "next free one" in busy.found
    assert finding("port", port=port).found == "free"


def test_a_place_that_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    found = finding("directory", state_dir=tmp_path / "file")
    assert not found.ok
    assert "state.dir" in found.remedy


def test_no_port_is_looked_at_as_sparks_page_is_off_by_default() -> None:
    assert not [finding.name for finding in examine() if finding.name.startswith("port")]
    assert [finding.name for finding in examine(port=4040) if finding.name.startswith("port")] == ["port 4040"]


def test_where_the_working_directory_cannot_be_written_to_state_is_in_the_users_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = finding("directory")
    assert (found.name, found.ok) == (f"directory {tmp_path / 'penstock'}", True)
