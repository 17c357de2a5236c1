"""The wheel and the sdist: what is in them, and that the wheel works where nothing but its own requirements is installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import penstock
from penstock.tools.broker.broker_settings import free_port

ROOT = Path(__file__).parents[2]
EPOCH = "1767225600"
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
README_PROGRAM = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]


def _bare() -> dict[str, str]:
    """The environment of processes, without what the tests' own has for Python and Penstock; jars come from the cache."""
    kept = ("PENSTOCK_CACHE", "PENSTOCK_JAVA_ARCHIVE")
    return {"SOURCE_DATE_EPOCH": EPOCH} | {name: text for name, text in os.environ.items()
            if name in kept or not name.startswith(("PYTHON", "PENSTOCK", "PYSPARK"))}  # fmt: skip


def run(*command, **options) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=300, env=_bare(), **options
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


def test_a_build_elsewhere_and_later_has_the_same_bytes(built, tmp_path):
    copy = tmp_path / "elsewhere" / "penstock"
    for name in ("src", "examples"):
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", ".gitignore"):
        shutil.copy(ROOT / name, copy / name)
    for path in copy.rglob("*.py"):
        if not path.is_symlink():
            path.chmod(0o600)
            os.utime(path, (1e9, 1e9))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", copy, umask=0o077)
    made = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "dist").iterdir()}
    assert made == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built.iterdir()}


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
    assert {"penstock/py.typed", "penstock/base/jars.sha256", f"{info}/licenses/LICENSE"} <= names


def test_the_sdist_holds_sources_documents_and_examples_and_no_test_data(sdist):
    top = f"penstock-{penstock.__version__}/"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(top) for name in archive.getnames()}
    assert {"src/penstock/py.typed", "src/penstock/base/jars.sha256", "README.md", "LICENSE", "CHANGELOG.md",
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


def _environment(folder: Path, wheel: Path, names: set[str]) -> Path:
    """A virtual environment with the wheel and links to distributions of this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for name in names:
        for file in metadata.files(name) or ():
            first = file.parts[0]
            if first not in ("..", "__pycache__") and not (packages / first).exists():
                (packages / first).symlink_to(metadata.distribution(name).locate_file(first))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index"]
    run(*pip, "--no-compile", "--quiet", wheel)  # Python compiles what is imported, which is less
    return folder


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """What ``pip install penstock`` makes: the wheel and what it requires, without an extra."""
    pytest.importorskip("packaging", reason="packaging is not installed: make setup")
    return _environment(tmp_path_factory.mktemp("environment"), wheel, _required_by(wheel))


@pytest.fixture(scope="module")
def small_environment(wheel, tmp_path_factory) -> Path:
    """What the page about installing says for tests alone."""
    pytest.importorskip("packaging", reason="packaging is not installed: make setup")
    page = (ROOT / "docs/how-to/install.md").read_text()
    (named,) = re.findall(r"^pip install --no-deps penstock\npip install (.*)$", page, re.MULTILINE)
    names = {name for first in named.split() for name in (first, *_with_requirements(first, {first}))}
    return _environment(tmp_path_factory.mktemp("small"), wheel, names)


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


def test_topologies_are_tested_without_pyspark(small_environment, tmp_path):
    python = small_environment / "bin" / "python"
    run(python, "-c", "import importlib.util as u; assert not u.find_spec('pyspark') and not u.find_spec('pandas')")
    run(python, "-c", TOPOLOGY_TEST, cwd=tmp_path)
    (tmp_path / "app.py").write_text(README_PROGRAM)
    run(python, "-c", "import app", cwd=tmp_path)  # imports KafkaStreams, and tests the topology
    done = subprocess.run([str(python), "app.py"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert "PySpark is not installed" in done.stderr


def test_all_brings_each_extra_of_users():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["all"] == [f"penstock[{','.join(sorted(extras.keys() - {'all', 'dev'}))}]"]
    page = (ROOT / "docs/how-to/install.md").read_text()
    named = {extra for names in re.findall(r'"penstock\[([\w,]+)\]"', page) for extra in names.split(",")}
    assert named == extras.keys() - {"dev"}


# What a reader of the README has said for each of its commands in a plain installation: the command has succeeded, has
# said something by which it is seen to work (it is interrupted then), or names the extra that it needs.
_SUCCEEDS = ""
_EXTRA = "the extra "
_README_COMMANDS = {
    "penstock datagen access-log": _SUCCEEDS,
    "python app.py": r"records/s, lag 0, .* [1-9][\d,]* in",
    "penstock topics consume": _SUCCEEDS,
    "penstock describe": _SUCCEEDS,
    "penstock explain": _SUCCEEDS,
    "penstock topics list": _SUCCEEDS,
    "penstock run": r"os-check",
    "penstock groups lag": _SUCCEEDS,
    "penstock query": _SUCCEEDS,
    "penstock state list": _SUCCEEDS,
    "penstock groups reset": _SUCCEEDS,
    "penstock ui": _EXTRA + "ui",
    "penstock connect file": r"running; Ctrl-C stops it",
    "penstock connect worker": _EXTRA + "connect",
    "penstock datagen shop": _SUCCEEDS,
    "penstock broker start": _SUCCEEDS,
    "penstock registry start": _EXTRA + "registry",
    "penstock doctor": _SUCCEEDS,
}


def _readme_commands() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(("penstock ", "python "))]


def test_each_command_of_the_readme_in_a_plain_installation(environment, tmp_path):
    (tmp_path / "app.py").write_text(README_PROGRAM)
    (tmp_path / "access.log").write_text("a line\nanother\n")
    commands = [(line, expected) for line in _readme_commands() for start, expected in _README_COMMANDS.items()
                if line.startswith(start)]  # fmt: skip
    assert [line for line, _ in commands] == _readme_commands(), "each command stands in the table, once"
    ports = [str(free_port()), str(free_port())]
    try:
        for line, expected in commands:
            more = ["--port", ports[0], "--controller-port", ports[1]] if line == "penstock broker start" else []
            code, said = _say(environment, [*line.split(), *more], tmp_path, expected)
            assert "not a message for users" not in said, f"{line}\n{said}"
            if expected.startswith(_EXTRA):
                assert code == 1, f"{line}\n{said}"
                assert f'pip install "penstock[{expected.removeprefix(_EXTRA)}]"' in said, f"{line}\n{said}"
            else:
                assert re.search(expected, said), f"{line} has never said {expected!r}\n{said}"
                assert code == 0, f"{line}: exit code {code}\n{said}"
    finally:
        if (tmp_path / ".kafka").exists():
            run(environment / "bin" / "penstock", "broker", "stop", cwd=tmp_path)


@pytest.mark.whole
def test_uvx_runs_the_demo_and_names_itself_where_an_extra_is_missing(wheel, tmp_path):
    if shutil.which("uvx") is None:
        pytest.skip("uvx is not installed: pip install uv")
    uvx = ["uvx", "--quiet", "--from", str(wheel), "--python", sys.executable, "penstock"]
    shown = run(*uvx, "demo", "--seconds", "5", cwd=tmp_path)
    assert "verified: a recount of the file finds exactly these counts" in shown
    done = subprocess.run([*uvx, "ui"], capture_output=True, text=True, check=False, cwd=tmp_path, env=_bare())
    assert done.returncode == 1
    assert 'uvx --from "penstock[ui]" penstock' in done.stderr


def _say(environment: Path, words: list[str], folder: Path, until: str) -> tuple[int, str]:
    """Run a command to its end, or until it has said something; return its exit code and all that it has said."""
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen([str(environment / "bin" / words[0]), *words[1:]], stdout=said, stderr=said,
                                   cwd=folder, env=_bare())  # fmt: skip
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            if until and not until.startswith(_EXTRA) and re.search(until, (folder / "said").read_text()):
                break
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        code = process.wait(60)
    return code, (folder / "said").read_text()
