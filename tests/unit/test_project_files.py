"""Files that only people and the host of the repository read are true: CONTRIBUTING, CITATION.cff, forms, workflow, hooks."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "penstock"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "SECURITY.md"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
_CHECKED = re.compile(r"/|\.(?:py|md|toml|yaml)$")


@pytest.fixture
def yaml():
    return pytest.importorskip("yaml", reason="PyYAML is not installed: make setup")


def _missing(paths):
    return [path for path in paths if not ((ROOT / path).exists() or (SOURCES / path).exists())]


def test_the_paths_that_contributors_are_sent_to_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = {path for path in _PATH.findall(text) if _CHECKED.search(path)}
    packages = re.search(r"\| to change.*?\n\n", text, re.DOTALL)
    named |= {path for path in _PATH.findall(packages[0]) if "_" not in path}
    assert len(named) > 40
    assert not _missing(named), "CONTRIBUTING.md names what is not there (any more)"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_paths_of_the_repository_that_pages_name_exist(page):
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    sources = {path.name for path in SOURCES.iterdir() if path.is_dir()}
    paths = [path for path in _PATH.findall(page.read_text()) if "/" in path and not path.startswith("build/")]
    named = {path for path in paths if path.partition("/")[0] in folders - {"site", "dist"}}
    named |= {path for path in paths if path.partition("/")[0] in sources and path.endswith(".py")}
    assert not _missing(named), "names what is not there (any more)"


def test_the_modules_that_packages_send_readers_to_exist():
    """In the paragraphs of a package's docstring that say in which order it is read."""
    walks, lost = 0, []
    for package in SOURCES.rglob("__init__.py"):
        paragraphs = (ast.get_docstring(ast.parse(package.read_text())) or "").split("\n\n")
        for walk in (text for text in paragraphs if re.search(r"Reading order|A walk along|Read `", text)):
            walks += 1
            for name in re.findall(r"(?<!`)`([a-z_*/]+)`", walk):
                places = [*package.parent.glob(f"{name}.py"), *package.parent.glob(name)]
                lost += [] if places else [f"{package.parent.relative_to(SOURCES)}: {name}"]
    assert walks > 10
    assert not lost


def test_the_map_of_how_it_works_is_the_tree():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import check_architecture as script
    finally:
        sys.path.remove(str(ROOT / "tools"))
    text = (ROOT / "docs" / "how-it-works.md").read_text().partition("## The tree")[2]
    named = re.findall(r"^\| `([\w/]+)(?:\.py)?` \| \S", text, re.MULTILINE)
    packages = {str(path.parent.relative_to(SOURCES)) for path in SOURCES.rglob("__init__.py")} - {"."}
    modules = {path.stem for path in SOURCES.glob("*.py")} - {"__init__"}
    assert sorted(named) == sorted(packages | modules), (
        "docs/how-it-works.md: one line for each package and sub-package"
    )
    ranks = [script.RANK[name.partition("/")[0]] for name in named]
    assert ranks == sorted(ranks), "the order is that of LAYERS in tools/check_architecture.py"
    for package, rooms in script.ROOMS.items():
        assert [name for name in named if name.rpartition("/")[0] == package] == [f"{package}/{room}" for room in rooms]


def test_the_targets_that_contributors_are_told_to_make_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert {name for line in re.findall(r"^make ([a-z -]+)", text, re.MULTILINE) for name in line.split()} <= targets
    first = re.search(r"```\n(.*?)```", text, re.DOTALL)[1]
    assert len(first.splitlines()) <= 10


def test_the_citation_is_of_this_version(yaml):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == penstock.__version__
    assert citation["license"] == project["license"]
    assert citation["cff-version"] == "1.2.0"
    assert {"authors", "message", "title"} <= set(citation)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_the_host_wants_of_one(path, yaml):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    for part in form["body"]:
        assert part["type"] in ("textarea", "dropdown", "input", "checkboxes", "markdown")
        assert part["attributes"]["label"]
    assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_messages_name_extras_that_exist_and_each_extra_is_named_by_one():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [path.read_text() for path in SOURCES.rglob("*.py")]
    named = {
        extra for text in texts for names in re.findall(r"penstock\[([a-z,]+)\]", text) for extra in names.split(",")
    }
    assert named - {"all"} == extras.keys() - {"all", "dev"}


# What those bring that the package or an extra names; the driver of a database, whose error names it; for type checkers.
_BROUGHT_OTHERWISE = {"h11", "markupsafe", "psycopg", "py4j", "pytest", "referencing", "typing_extensions"}


def test_what_the_sources_import_is_brought_by_the_package_or_by_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in ("all", "dev")}
    lines = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    brought = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in lines} | {"penstock"}
    modules = set()
    for path in SOURCES.rglob("*.py"):
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in found.names}
            elif isinstance(found, ast.ImportFrom) and found.module and not found.level:
                modules.add(found.module.partition(".")[0])
    distributions = packages_distributions()
    others = modules - sys.stdlib_module_names - _BROUGHT_OTHERWISE
    assert len(others) > 30
    lacking = [
        module
        for module in sorted(others)
        if not {name.lower().replace("_", "-") for name in distributions.get(module, [module])} & brought
    ]
    assert lacking == [], "name it in pyproject.toml"


def test_the_workflow_tests_the_versions_that_the_package_declares(yaml):
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"].values()
    matrix = job["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    assert matrix["python"] == pythons
    assert matrix["pyspark"] == ["4.2.*", "4.3.*"]
    assert "make test" in [step.get("run") for step in job["steps"]]


def test_the_table_of_what_was_tried_has_each_version_of_the_workflow(yaml):
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"].values()
    tried = re.findall(
        r"^\| (3\.\d+)\.\d+ \| (4\.\d+)\.\d+ \|", (ROOT / "docs/how-to/install.md").read_text(), re.MULTILINE
    )
    matrix = job["strategy"]["matrix"]
    assert set(tried) == {(p, s.removesuffix(".*")) for p in matrix["python"] for s in matrix["pyspark"]}


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A new git repository with the script, the hooks' configuration and this environment."""
    if not (ROOT / ".venv" / "bin" / "pre-commit").exists():
        pytest.skip("pre-commit is not installed: make setup")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "install_hooks", tmp_path / "tools")
    shutil.copy(ROOT / ".pre-commit-config.yaml", tmp_path)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def _install_hooks(checkout: Path, **environment: str) -> Path:
    kept = {name: text for name, text in os.environ.items() if name != "CI" and not name.startswith("GIT_")}
    subprocess.run(["tools/install_hooks"], cwd=checkout, env=kept | environment, check=True, capture_output=True)
    return checkout / ".git" / "hooks" / "pre-commit"


def test_hooks_are_installed_in_a_checkout(checkout):
    assert _install_hooks(checkout).exists()


def test_hooks_are_not_installed_in_continuous_integration(checkout):
    assert not _install_hooks(checkout, CI="true").exists()


def test_a_tree_without_git_or_tools_does_not_fail(checkout):
    (checkout / ".venv").unlink()
    assert not _install_hooks(checkout).exists()
    shutil.rmtree(checkout / ".git")
    assert not _install_hooks(checkout).exists()
