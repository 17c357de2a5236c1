"""The README's screen of code runs as it is, up to the line that starts Spark."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_code_in_the_readme_runs_without_spark(tmp_path):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(code) == 1
    script = tmp_path / "app.py"
    script.write_text(code[0])
    names = runpy.run_path(str(script), run_name="app")
    assert "os-check" in str(names["topology"].describe())
    assert code[0].count("\n") < 50, "one screen"


def test_commands_named_in_the_readme_exist():
    from typer.main import get_command

    from penstock.cli.main import app

    known = set(get_command(app).commands)
    used = set(re.findall(r"^penstock (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert used <= known
