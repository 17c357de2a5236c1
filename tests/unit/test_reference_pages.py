"""What the reference shows of classes: signatures that a user may call."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from penstock.api.stream import BranchedKStream

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
griffe = pytest.importorskip("griffe", reason="griffe is not installed: make setup")


def classes_of_streams():
    """Those of `api.stream` as a module of its own: as a part of the package, the whole package would be read."""
    extensions = griffe.load_extensions(str(ROOT / "tools" / "griffe_docstrings.py"))
    return griffe.load("stream", search_paths=[ROOT / "src" / "penstock" / "api"], extensions=extensions)


def test_objects_that_only_the_builder_makes_have_no_constructor():
    assert "handle" in inspect.signature(BranchedKStream).parameters
    classes = classes_of_streams()
    for name in ("BranchedKStream", "KStream"):
        assert "__init__" not in classes[name].members
    assert classes["KStream"].docstring.value.startswith("A stream of records")


def test_the_menu_has_each_title_once_and_overloads_are_shown_in_place_of_what_implements_them():
    import re
    import tomllib

    config = tomllib.loads((ROOT / "tools" / "zensical.toml").read_text())["project"]
    titles = re.findall(r'\{ "([^"]+)" = "', (ROOT / "tools" / "zensical.toml").read_text())
    assert sorted(titles) == sorted(set(titles))
    options = config["plugins"]["mkdocstrings"]["handlers"]["python"]["options"]
    assert options["show_overloads"]
    assert options["overloads_only"]
