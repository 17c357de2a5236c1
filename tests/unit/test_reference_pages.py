"""What the reference shows of classes: signatures that a user may call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
griffe = pytest.importorskip("griffe", reason="griffe is not installed: make setup")


@pytest.fixture(scope="module")
def streams():
    extensions = griffe.load_extensions(str(ROOT / "tools" / "griffe_docstrings.py"))
    return griffe.load("penstock.api.stream", search_paths=[ROOT / "src"], extensions=extensions)


def test_objects_that_only_the_builder_makes_have_no_constructor(streams):
    assert "__init__" not in streams["KStream"].members
    assert streams["KStream"].docstring.value.startswith("A stream of records")


def test_the_menu_has_each_title_once_and_overloads_are_shown_in_place_of_what_implements_them():
    import re
    import tomllib

    config = tomllib.loads((ROOT / "tools" / "zensical.toml").read_text())["project"]
    titles = re.findall(r'\{ "([^"]+)" = "', (ROOT / "tools" / "zensical.toml").read_text())
    assert sorted(titles) == sorted(set(titles))
    options = config["plugins"]["mkdocstrings"]["handlers"]["python"]["options"]
    assert options["show_overloads"]
    assert options["overloads_only"]
