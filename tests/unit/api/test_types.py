"""Type checkers understand what users write: chains of verbs have the types that they have, examples are clean."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECKED = ("tests/typing", "examples")


def run(*command: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s
    )


@pytest.mark.whole  # of `make test`, mypy itself looks at the same files first
def test_mypy_infers_the_types_and_accepts_the_examples() -> None:
    result = run("mypy", "--strict", *CHECKED)
    assert result.returncode == 0, result.stdout + result.stderr


def test_pyright_infers_the_types_and_accepts_the_examples() -> None:
    pyright_or_skip()
    result = run("pyright", "--pythonpath", sys.executable, *CHECKED)
    assert result.returncode == 0, result.stdout + result.stderr


def pyright_or_skip() -> None:
    """PyPI's pyright runs npm's on the machine's node; without one it fetches both."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    try:
        version = run("pyright", "--version", timeout_s=120)
    except subprocess.TimeoutExpired:
        pytest.skip("pyright does not start within two minutes: no node here, and the registry does not answer")
    if version.returncode != 0:
        found = shutil.which("node") or "none"
        pytest.skip(f"pyright does not start (node: {found}): {version.stderr.strip()[-300:]}")
