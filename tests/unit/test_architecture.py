"""The architecture script finds what it is there to find, and the tree is clean."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("check_architecture", ROOT / "tools" / "check_architecture.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name], sys.modules["import_circles"]
    sys.path.remove(str(ROOT / "tools"))


def findings(script, tmp_path, text, module):
    path = tmp_path / "x.py"
    path.write_text(text)
    return " | ".join(text for _, text in script.check_file(path, module))


@pytest.mark.parametrize(
    ("module", "line", "finding"),
    [
        ("penstock.runtime.x", "import pyspark", "pyspark is imported outside"),
        (
            "penstock.runtime.x",
            "from penstock.engines.micro_batches.worker.stage import run",
            "must not import penstock.engines",
        ),
        ("penstock.serde.x", "from penstock.log.base import TopicLog", "must not import penstock.log"),
        ("penstock.sql.queries.x", "from penstock.testing import TopologyTestDriver", "penstock.testing is for tests"),
        ("penstock.serde.x", "from penstock import log", "must not import penstock.log"),
        ("penstock.topology.x", "def f():\n    import penstock.api.builder", "must not import penstock.api"),
        ("penstock.connect.record_generators.x", "from penstock.sql import Session", "must not import penstock.sql"),
        ("penstock.nowhere.x", "import os", "has no place in the layers"),
    ],
)
def test_wrong_imports_are_found(script, tmp_path, module, line, finding):
    assert finding in findings(script, tmp_path, f'"""Doc."""\n__all__ = []\n{line}\n', module)


@pytest.mark.parametrize(
    "lines",
    ["_LOOK_S = 10.0\n_LOOK_S, _LONG_S = 2.0, 60.0", "_log: int = 1\n_log = 2", "def look(): ...\ndef look(): ..."],
)
def test_names_that_are_defined_twice_are_found(script, tmp_path, lines):
    found = findings(script, tmp_path, f'"""Doc."""\n__all__ = []\n{lines}\n', "penstock.runtime.x")
    assert "is defined in line 3 already" in found


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("penstock.engines.kafka_streams", "import penstock.console.recorder"),
        ("penstock.engines.x", "def f():\n    from penstock import sql"),
        (
            "penstock.metrics.x",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from penstock.connect import api",
        ),
        ("penstock.api.x", "from importlib import import_module\nx = import_module('penstock.sql')"),
    ],
)
def test_the_core_reaches_its_products_by_extension_points_alone(script, tmp_path, module, line):
    found = findings(script, tmp_path, f'"""Doc."""\n__all__ = []\n{line}\n', module)
    assert "is a product: the core reaches it by an extension point alone" in found
    assert "is a product" not in findings(script, tmp_path, f'"""Doc."""\n__all__ = []\n{line}\n', "penstock.cli.x")


@pytest.mark.parametrize("line", ['x = config["processing.mode"] == "continuous"', 'x = config.get("processing.mode")'])
def test_the_engines_alone_ask_for_the_mode(script, tmp_path, line):
    text = f'"""Doc."""\n__all__ = []\n{line}\n'
    assert "asks for the processing mode" in findings(script, tmp_path, text, "penstock.console.x")
    assert not findings(script, tmp_path, text, "penstock.engines.x")
    setting = '"""Doc."""\n__all__ = []\nx = {"processing.mode": "continuous"}\nx["processing.mode"] = "micro_batch"\n'
    assert not findings(script, tmp_path, setting, "penstock.console.x")


def test_tools_for_tests_build_on_the_test_driver(script, tmp_path):
    text = '"""Doc."""\n__all__ = []\nfrom penstock.testing import TopologyTestDriver\n'
    assert not findings(script, tmp_path, text, "penstock.sql.testing.x")


def test_right_imports_are_not(script, tmp_path):
    text = '"""Doc."""\n__all__ = []\nimport pyspark\nfrom penstock.log.base import TopicLog\n'
    assert not findings(script, tmp_path, text, "penstock.engines.x")


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from pickle import loads", "import cloudpickle.cloudpickle", "from pyspark import cloudpickle",
     "from pyspark.cloudpickle import loads", "def f():\n    import marshal", "x = eval('1')"],
)  # fmt: skip
def test_what_runs_code_stays_where_it_is(script, tmp_path, line):
    text = f'"""Doc."""\n__all__ = []\n{line}\n'
    assert "runs code from" in findings(script, tmp_path, text, "penstock.engines.spark.failures")


def test_what_may_unpickle_is_there_and_explained(script):
    for module, reason in script.UNPICKLES.items():
        assert (ROOT / "src" / f"{module.replace('.', '/')}.py").is_file()
        assert reason
        assert f"`{module}`" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_imports_for_type_checkers_do_not_count(script, tmp_path):
    text = '"""Doc."""\n__all__ = []\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark\n'
    assert not findings(script, tmp_path, text, "penstock.runtime.x")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("import os\n", "no docstring"),
        ('"""Doc."""\nimport os\n', "__all__ is missing"),
        ('"""Doc."""\n__all__ = []\n' + "x = 1\n" * 1_000, "at most 1000 lines"),
        ('"""Doc."""\n__all__ = ["f"]\n\n\ndef f():\n' + "    x = 1\n" * 20, "f has no docstring"),
    ],
)
def test_untidy_files_are_found(script, tmp_path, text, finding):
    assert finding in findings(script, tmp_path, text, "penstock.runtime.x")


def test_a_root_that_grows_is_found(script, monkeypatch):
    assert not script.check_places()
    monkeypatch.setattr(script, "LAYERS", (*script.LAYERS, ("engines/threads",)))
    monkeypatch.setattr(script, "RANK", {**script.RANK, "engines/threads": len(script.LAYERS)})
    assert script.check_places() == ["the root has 21 entries on 11 floors, and may have 20 on 10"]


def test_the_import_of_the_package_is_light(script):
    assert script.check_light_import() == []


def test_places_of_packages_that_are_not_there_are_found(script, tmp_path):
    assert script.check_places() == []
    (tmp_path / "state" / "views").mkdir(parents=True)
    findings = script.check_places(tmp_path)
    assert "LAYERS or ROOMS name log, which does not exist" in findings
    assert "LAYERS or ROOMS name state/changelog, which does not exist" in findings
    assert not any(
        text.endswith((" state, which does not exist", " state/views, which does not exist")) for text in findings
    )


def test_equal_names_of_test_files_are_found(script, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_x.py").touch()
    assert len(script.check_test_names(tmp_path / "tests")) == 1


def tree(root, **files):
    for name, text in files.items():
        path = root / "penstock" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root / "penstock"


@pytest.mark.parametrize(
    "back",
    [
        "from penstock.state.a import x",
        "def f():\n    from penstock.state import a",
        "if TYPE_CHECKING:\n    import penstock.state.a",
    ],
)
def test_circles_of_files_are_found(script, tmp_path, back):
    root = tree(tmp_path, state__a="import penstock.state.b", state__b=back)
    assert "penstock.state.a -> penstock.state.b -> penstock.state.a" in " | ".join(script.check_circles(root))


def test_fluent_classes_may_make_each_other(script, tmp_path):
    root = tree(tmp_path, api__a="import penstock.api.b", api__b="import penstock.api.a")
    assert script.check_circles(root) == []


def test_circles_of_rooms_are_found(script, tmp_path):
    root = tree(
        tmp_path,
        state__views__a="import penstock.state.base",
        state__views__b="x = 1",
        state__base="import penstock.state.views.b",
    )
    (found,) = script.check_circles(root)
    assert found.startswith("parts of penstock.state import each other")


def test_upward_imports_of_sub_packages_are_found(script, tmp_path):
    root = tree(tmp_path, runtime__fold__a="import penstock.runtime.aggregate.b", runtime__aggregate__b="x = 1")
    (found,) = script.check_circles(root)
    assert "penstock.runtime.fold.a must not import penstock.runtime.aggregate.b" in found


def test_sub_packages_have_a_place(script, tmp_path):
    (found,) = script.check_circles(tree(tmp_path, state__new__a="x = 1"))
    assert "penstock.state.new has no place" in found


def test_the_picture_of_the_packages_is_current(script):
    assert script.check_picture() == []


def test_a_picture_that_is_not_current_is_found(script, tmp_path, monkeypatch):
    for folder in ("tools", "src"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    (tmp_path / "docs" / "pictures" / "packages.svg").write_text("<svg/>")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    (finding,) = script.check_picture()
    assert finding == "docs/pictures/packages.svg is not current: run tools/package_map.py"


def test_the_shape_of_the_tree(tmp_path):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from shape import Shape
    finally:
        sys.path.remove(str(ROOT / "tools"))
    root = tree(
        tmp_path,
        app="from penstock.log.a import A\nif A == 'continuous':\n    found = 1\n",
        log__a="class A: ...\n" + "x = 1\n" * 100,
        log__b="from penstock.log import a\nimport penstock.base.c\n",
        base__c="class A: ...\n",
    )
    numbers = Shape(root).numbers()
    assert {name: numbers[name] for name in ("entries of the root", "floors of the root", "arrows at the root")} == {
        "entries of the root": 3,
        "floors of the root": 3,
        "arrows at the root": 2,
    }
    assert (numbers["lines of imports"], numbers["files that ask for the mode"], numbers["bindings of `found`"]) == (
        3,
        1,
        1,
    )
    alone = ("modules with one importer", "of those, under 80 lines", "of those, no seams")
    assert [numbers[name] for name in alone] == [1, 1, 1]
    assert numbers["class names with several classes"] == 1


def test_the_files_that_a_record_crosses():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "shape.py", "--json"], capture_output=True, text=True, check=True
    )
    numbers = json.loads(done.stdout)
    crossed = numbers["crossed"]
    assert {"base/clock.py", "topology/plan/plan.py"} <= set(numbers["beside"])
    assert {"engines/threads/loop/stream_thread.py", "runtime/task.py", "log/embedded/log.py"} <= set(crossed)
    assert not any(name.startswith(("api/", "cli/")) for name in crossed)
