"""The architecture script finds what it is there to find, and the tree is clean."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("check_architecture", ROOT / "tools" / "check_architecture.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def findings(script, tmp_path, text, module):
    path = tmp_path / "x.py"
    path.write_text(text)
    return " | ".join(text for _, text in script.check_file(path, module))


@pytest.mark.parametrize(
    ("module", "line", "finding"),
    [
        ("penstock.runtime.x", "import pyspark", "pyspark is imported outside"),
        ("penstock.runtime.x", "from penstock.spark.stage import run", "must not import penstock.spark"),
        ("penstock.serde.x", "from penstock.log.base import TopicLog", "must not import penstock.log"),
        ("penstock.serde.x", "from penstock import log", "must not import penstock.log"),
        ("penstock.topology.x", "def f():\n    import penstock.api.builder", "must not import penstock.api"),
        ("penstock.datagen.x", "from penstock.app import KafkaStreams", "must not import penstock.app"),
        ("penstock.nowhere.x", "import os", "has no place in the layers"),
    ],
)
def test_wrong_imports_are_found(script, tmp_path, module, line, finding):
    assert finding in findings(script, tmp_path, f'"""Doc."""\n__all__ = []\n{line}\n', module)


def test_right_imports_are_not(script, tmp_path):
    text = '"""Doc."""\n__all__ = []\nimport pyspark\nfrom penstock.log.base import TopicLog\n'
    assert not findings(script, tmp_path, text, "penstock.spark.x")


def test_imports_for_type_checkers_do_not_count(script, tmp_path):
    text = '"""Doc."""\n__all__ = []\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark\n'
    assert not findings(script, tmp_path, text, "penstock.runtime.x")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("import os\n", "no docstring"),
        ('"""Doc."""\nimport os\n', "__all__ is missing"),
        ('"""Doc."""\n__all__ = []\n' + "x = 1\n" * 400, "at most 400 lines"),
        ('"""Doc."""\n__all__ = ["f"]\n\n\ndef f():\n' + "    x = 1\n" * 20, "f has no docstring"),
    ],
)
def test_untidy_files_are_found(script, tmp_path, text, finding):
    assert finding in findings(script, tmp_path, text, "penstock.runtime.x")


def test_the_import_of_the_package_is_light(script):
    assert script.check_light_import() == []


def test_equal_names_of_test_files_are_found(script, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_x.py").touch()
    assert len(script.check_test_names(tmp_path / "tests")) == 1
