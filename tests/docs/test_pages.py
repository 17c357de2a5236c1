"""README, tutorial and how-to pages do what they say: verbatim, in order, in an empty folder.

Commands of `penstock` that stand alone run in this process, all others in a shell. What does not run, and why, is in
`not_run`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from not_run import BROKER, CONTINUES, NOT_RUN, SERVER, SPARK, UNTIL
from pages import ROOT, Step, steps_of

from penstock.cli.main import main

PAGES = {str(page.relative_to(ROOT)): page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
WITH_CODE = [name for name, page in PAGES.items() if any(step.kind != "command" for step in steps_of(page))]
WHOLE = ("README.md", "docs/tutorial.md", "docs/connect/lakehouse.md")
TO_DO = [name for name in PAGES if name in WHOLE or name.startswith("docs/how-to/")]
PATIENCE_S = 240
ENDS_IN_S = 60


def _entry(table: dict[tuple[str, str], str], page: str, step: Step) -> str | None:
    """What a table says about a step."""
    lines = [line.strip() for line in step.text.splitlines()]
    return next((said for (name, start), said in table.items() if name == page and _any_begins(lines, start)), None)


def _any_begins(lines: list[str], start: str) -> bool:
    return any(line.startswith(start) for line in lines)


class Reader:
    """Does a page's steps in a folder."""

    def __init__(
        self,
        page: str,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        mode: str | None = None,
    ):
        self.page, self.folder, self._mode = page, folder, mode
        self._patch, self._capture = monkeypatch, capfd
        self._names = {"__name__": "page"}
        self._code = ""
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setenv("TMPDIR", str(folder.parent))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        for name in ("app", "logs"):
            sys.modules.pop(name, None)

    def do(self, step: Step, number: int) -> None:
        if self._mode is not None:  # the page as it stands, with one more setting in its programs
            text = step.text.replace('"application.id":', f'"processing.mode": "{self._mode}", "application.id":')
            step = replace(step, text=text)
        if step.kind == "file":
            with (self.folder / step.file).open("a" if step.appended else "w") as file:
                file.write(("\n\n" if step.appended else "") + step.text)
        if step.kind == "python" or step.file.endswith(".py"):
            exec(compile(step.text, f"{self.page}, step {number}", "exec", dont_inherit=True), self._names)
        elif (
            step.kind == "command"
            and step.text.startswith("penstock ")
            and not re.search(r"[|&><$;]", step.text.partition("#")[0])
        ):
            self._in_process(step.text)
        elif step.kind == "command":
            self.in_a_shell(step.text)

    def _in_process(self, command: str) -> None:
        self._patch.setattr(sys, "argv", shlex.split(command, comments=True))
        code = None
        try:
            main()
        except SystemExit as end:
            code = end.code
        said = self._capture.readouterr()
        assert not code, f"{command}: exit code {code}\n{said.out}{said.err}"

    def in_a_shell(self, command: str, until: str | None = None) -> str:
        """Gives what it has said; a command that goes on is interrupted as soon as it has said ``until``."""
        with (self.folder / "said").open("w+") as said:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}" if until else command], stdout=said, stderr=said, cwd=self.folder
            )
            deadline = time.monotonic() + PATIENCE_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
                if until and re.search(until, (self.folder / "said").read_text()):
                    break
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            code = process.wait(ENDS_IN_S)
        text = (self.folder / "said").read_text()
        assert code == 0, f"{command}: exit code {code}\n{text}"
        assert "Traceback" not in text, f"{command}\n{text}"
        assert until is None or re.search(until, text), f"{command} has never said {until!r}\n{text}"
        return text


@pytest.fixture
def reader_of(tmp_path, monkeypatch, capfd):
    return lambda page: Reader(page, tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize("name", [name for name in WITH_CODE if name not in TO_DO])
def test_code_of_other_pages_runs(name, reader_of):
    reader = reader_of(name)
    for number, step in enumerate(steps_of(PAGES[name])):
        if step.kind == "python" and _entry(NOT_RUN, name, step) is None:
            reader.do(step, number)


@pytest.mark.parametrize("name", [name for name in TO_DO if name not in CONTINUES.values() and name not in CONTINUES])
def test_page(name, reader_of):
    _read(reader_of(name))


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_pages_that_run_an_application_do_so_in_the_other_mode(name, tmp_path, monkeypatch, capfd):
    folder = tmp_path / "page"
    folder.mkdir()
    _read(Reader(name, folder, monkeypatch, capfd, "micro_batch"))
    assert '"processing.mode": "micro_batch"' in (folder / "app.py").read_text()


def test_the_tutorial_and_the_pages_that_go_on_in_its_folder(tmp_path, monkeypatch, capfd):
    """One test, as the tutorial starts Spark."""
    folder = tmp_path / "tutorial"
    folder.mkdir()
    _read(Reader("docs/tutorial.md", folder, monkeypatch, capfd))
    for page, first in CONTINUES.items():
        assert first == "docs/tutorial.md"
        copy = tmp_path / Path(page).stem
        shutil.copytree(folder, copy)
        _read(Reader(page, copy, monkeypatch, capfd))


def _read(reader: Reader) -> None:
    for number, step in enumerate(steps_of(PAGES[reader.page])):
        until = _entry(UNTIL, reader.page, step)
        if until is not None:
            reader.in_a_shell(step.text, until)
        elif _entry(NOT_RUN, reader.page, step) is None:
            reader.do(step, number)


def test_the_list_of_what_does_not_run_names_nothing_that_is_gone():
    for table in (NOT_RUN, UNTIL):
        for page, start in table:
            lines = [line.strip() for step in steps_of(PAGES[page]) for line in step.text.splitlines()]
            assert _any_begins(lines, start), f"{page}: {start}"
    assert {SPARK, BROKER, SERVER} <= set(NOT_RUN.values())
