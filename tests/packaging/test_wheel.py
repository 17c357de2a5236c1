"""The wheel and the sdist: what is in them, and that the wheel works where nothing but its own requirements is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]
TOPOLOGY_TEST = """
from penstock import StreamsBuilder, TopologyTestDriver
from penstock.log import open_log

builder = StreamsBuilder()
words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
words.count().to_stream().to("counts")
config = {"application.id": "tried", "default.key.serde": "string", "default.value.serde": "string"}
with TopologyTestDriver(builder.build(), config) as driver:
    driver.input_topic("lines").pipe(value="to be or not to be")
    counts = driver.output_topic("counts", value_serde="long").read_key_values_to_list()
assert dict(counts) == {"to": 2, "be": 2, "or": 1, "not": 1}, counts
"""


def run(*command, **options) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PENSTOCK"))}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=300, env=environment, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    pytest.importorskip("build", reason="build is not installed: make setup")
    pytest.importorskip("hatchling", reason="hatchling is not installed: make setup")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(built) -> Path:
    (found,) = built.glob("*.tar.gz")
    return found


def test_twine_accepts_both(wheel, sdist):
    pytest.importorskip("twine", reason="twine is not installed: make setup")
    shown = run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    assert len(re.findall("PASSED", shown)) == 2


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = ROOT / "src" / "penstock"
    expected = {
        f"penstock/{path.relative_to(sources)}"
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = f"penstock-{penstock.__version__}.dist-info"
    assert {name for name in names if not name.startswith(info)} == expected
    assert {"penstock/py.typed", "penstock/broker/jars.sha256", f"{info}/licenses/LICENSE"} <= names


def test_the_sdist_holds_sources_documents_and_examples_and_no_test_data(sdist):
    top = f"penstock-{penstock.__version__}/"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(top) for name in archive.getnames()}
    assert {"src/penstock/py.typed", "src/penstock/broker/jars.sha256", "README.md", "LICENSE", "CHANGELOG.md",
            "CITATION.cff", "pyproject.toml", "examples/word_count.py"} <= names  # fmt: skip
    assert {name.partition("/")[0] for name in names} <= {
        "src", "examples", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "PKG-INFO",
        ".gitignore",
    }  # fmt: skip
    assert not [name for name in names if name.endswith((".pyc", ".db", ".xz", ".jar"))]


def _with_requirements(name: str, seen: set[str]) -> set[str]:
    """The distributions that a plain ``pip install`` of a distribution brings, those of extras left out."""
    from packaging.requirements import Requirement

    for text in metadata.requires(name) or ():
        needed = Requirement(text)
        if needed.name not in seen and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            seen.add(needed.name)
            _with_requirements(needed.name, seen)
    return seen


def _required_by(wheel: Path) -> set[str]:
    from packaging.requirements import Requirement

    text = zipfile.ZipFile(wheel).read(f"penstock-{penstock.__version__}.dist-info/METADATA").decode()
    found: set[str] = set()
    for line in re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE):
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            found |= {needed.name, *_with_requirements(needed.name, {needed.name})}
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """A virtual environment with the wheel and links to just what it requires, as ``pip install penstock`` makes it."""
    pytest.importorskip("packaging", reason="packaging is not installed: make setup")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for name in _required_by(wheel):
        for file in metadata.files(name) or ():
            first = file.parts[0]
            if first not in ("..", "__pycache__") and not (packages / first).exists():
                (packages / first).symlink_to(metadata.distribution(name).locate_file(first))
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index",
        "--quiet", wheel)  # fmt: skip
    return folder


def test_the_wheel_works_with_nothing_but_its_requirements(environment, tmp_path):
    binaries = environment / "bin"
    assert run(binaries / "penstock", "--version", cwd=tmp_path).strip() == f"penstock {penstock.__version__}"
    where = run(binaries / "python", "-c", "import penstock; print(penstock.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(environment)
    run(binaries / "python", "-c", TOPOLOGY_TEST, cwd=tmp_path)


def test_the_embedded_log_needs_no_extra(environment, tmp_path):
    command = environment / "bin" / "penstock"
    run(command, "topics", "create", "lines", "-b", "logs.db", cwd=tmp_path)
    run(command, "topics", "produce", "lines", "-b", "logs.db", cwd=tmp_path, input="to be\nor not\n")
    shown = run(command, "topics", "list", "--json", "-b", "logs.db", cwd=tmp_path)
    (topic,) = json.loads(shown)
    assert (topic["name"], topic["records"]) == ("lines", 2)


def test_what_needs_an_extra_names_it(environment, tmp_path):
    command = environment / "bin" / "penstock"
    done = subprocess.run(
        [str(command), "topics", "list", "-b", "localhost:1"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert 'pip install "penstock[kafka]"' in done.stderr
