"""Every tutorial passes its own tests, and is on a page."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDS = {"onnx_model": ("onnx", "onnxruntime")}
TUTORIALS = {path.stem: path for path in sorted((ROOT / "examples" / "tutorials").glob("*.py"))}


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial(name: str) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed: make setup")
    spec = importlib.util.spec_from_file_location(f"tutorial_{name}", TUTORIALS[name])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    tests = [function for name, function in inspect.getmembers(module, inspect.isfunction) if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


def test_every_tutorial_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "tutorials").glob("*.md"))
    assert [name for name in TUTORIALS if f"examples/tutorials/{name}.py)" not in pages] == []
