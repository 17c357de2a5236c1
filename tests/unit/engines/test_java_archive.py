"""Java's archive of Spark's classes: when it is used, and what is said when it cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.java_archive import make_archives
from penstock.engines.spark.java_archive import archive_options, archive_path, recording_options
from penstock.engines.spark.session import _java_options
from penstock.errors import EnvironmentProblemError


def test_it_is_used_as_soon_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert archive_options(with_sql=True) == []
    path = archive_path(with_sql=True)
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in _java_options({}, rows_in_jvm=True).split()


def test_stream_threads_take_their_own_which_has_no_sql_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    (of_threads, whole) = archive_path(with_sql=False), archive_path(with_sql=True)
    whole.touch()
    threads = {"rows_in_jvm": False, "uses_sql": False}
    assert f"-XX:SharedArchiveFile={whole}" in _java_options({}, **threads).split()  # as long as theirs is not made
    of_threads.touch()
    assert f"-XX:SharedArchiveFile={of_threads}" in _java_options({}, **threads).split()
    assert f"-XX:SharedArchiveFile={whole}" in _java_options({}, rows_in_jvm=False, uses_sql=True).split()
    assert f"-XX:SharedArchiveFile={whole}" in _java_options({}, rows_in_jvm=True, uses_sql=False).split()


def test_a_new_one_does_not_stand_on_an_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    archive_path(with_sql=True).touch()
    recording = {"spark.driver.extraJavaOptions": recording_options(tmp_path / "new.jsa")}
    assert "SharedArchiveFile" not in _java_options(recording, rows_in_jvm=False)


def test_a_path_that_spark_would_cut_in_two_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "my cache"))
    archive_path(with_sql=True).parent.mkdir()
    archive_path(with_sql=True).touch()
    assert archive_options(with_sql=True) == []


def test_another_java_has_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path(with_sql=True)
    _fake_java(tmp_path, monkeypatch)
    assert archive_path(with_sql=True) != before


def test_what_keeps_it_from_being_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    _fake_java(tmp_path, monkeypatch)
    with pytest.raises(EnvironmentProblemError, match="could not be made") as caught:
        make_archives()
    assert caught.value.hint == "Spark works without it, and starts slower."
    left = [path.name for path in (tmp_path / "cache").iterdir() if not path.name.startswith("worker-python-")]
    assert left == []


def _fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))
