"""The documentation is true: its code runs, its commands, settings and links exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page for page in sorted((ROOT / "docs").rglob("*.md"))} | {
    "README.md": ROOT / "README.md"
}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
STARTS_SPARK = re.compile(r"SparkSession|to_dataframe|stream_dataframe|^\w+\.(start|run)\(", re.MULTILINE)
WITH_CODE = [name for name, page in PAGES.items() if BLOCK.search(page.read_text())]


def _tool():
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "tools" / "build_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", WITH_CODE)
def test_code_runs(name, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, as one program; it ends where Spark would start."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, block in enumerate(BLOCK.findall(PAGES[name].read_text())):
        if STARTS_SPARK.search(block):
            break
        exec(compile(block, f"{name}, block {number}", "exec"), names)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[name].read_text()):
        assert (PAGES[name].parent / target).exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_commands_exist(name):
    from typer.main import get_command

    from penstock.cli.main import app

    commands = get_command(app).commands
    for words in re.findall(r"(?:^ {4}|\| |`)penstock ([a-z]+(?: [a-z-]+)?)", PAGES[name].read_text(), re.MULTILINE):
        first, _, second = words.partition(" ")
        assert first in commands, words
        inner = getattr(commands[first], "commands", None)
        has_default = getattr(commands[first], "default", "") in (inner or ())
        assert not second or inner is None or second in inner or has_default, words


def test_the_pages_of_settings_and_of_the_command_are_current():
    tool = _tool()
    assert PAGES["docs/reference/configuration.md"].read_text() == tool.configuration(), "run make docs"
    assert PAGES["docs/reference/cli.md"].read_text() == tool.command(), "run make docs"
