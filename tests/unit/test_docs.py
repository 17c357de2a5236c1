"""The documentation is true: its commands, settings and links exist. Whether its code runs: tests/docs."""

from __future__ import annotations

import importlib.util
import re
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from penstock import errors

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page for page in sorted((ROOT / "docs").rglob("*.md"))} | {
    "README.md": ROOT / "README.md"
}


def _tool():
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "tools" / "build_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[name].read_text()):
        assert (PAGES[name].parent / target).exists(), target


def test_the_index_leads_to_every_page():
    """The pages of reference and decisions have an index of their own."""
    linked = set(re.findall(r"\]\(([^)#]+\.md)", PAGES["docs/index.md"].read_text()))
    pages = {name.removeprefix("docs/") for name in PAGES} - {"README.md", "index.md"}
    own = ("reference/", "adr/", "sql/reference/", "connect/connectors/")
    assert {page for page in pages if not page.startswith(own)} <= linked


@pytest.mark.parametrize("name", PAGES)
def test_commands_exist(name):
    from typer.main import get_command

    from penstock.cli.main import app

    commands = get_command(app).commands
    for words in re.findall(r"(?:^ {4}|\| |`)penstock ([a-z]+(?: [a-z-]+)?)", PAGES[name].read_text(), re.MULTILINE):
        first, _, second = words.partition(" ")
        assert first in commands, words
        inner = getattr(commands[first], "commands", None)
        has_default = getattr(commands[first], "default", "") in (inner or ())
        assert not second or inner is None or second in inner or has_default, words


def test_the_pages_of_settings_errors_and_the_command_are_current():
    tool = _tool()
    assert PAGES["docs/reference/configuration.md"].read_text() == tool.configuration(), "run make docs"
    assert PAGES["docs/reference/cli.md"].read_text() == tool.command(), "run make docs"
    assert PAGES["docs/reference/errors.md"].read_text() == tool.errors(), "run make docs"
    for page, text in tool.connector_pages(ROOT / "docs").items():
        assert page.read_text() == text, "run make docs"
    assert (ROOT / "docs" / "pictures" / "word-count.svg").read_text() == tool.picture(), "run make docs"


def test_the_reference_of_sql_is_current():
    tool = _tool()
    assert PAGES["docs/sql/reference/functions.md"].read_text() == tool.sql_reference.functions_page(), "run make docs"
    assert PAGES["docs/sql/reference/statements.md"].read_text() == tool.sql_reference.statements_page(), (
        "run make docs"
    )


def test_the_formats_of_data_have_the_numbers_that_the_policy_names():
    from penstock.log.embedded import database
    from penstock.sql.session import journal
    from penstock.state.lmdb_replicas import lmdb_replica
    from penstock.state.segments import segment
    from penstock.topology.plan import plan_json as stored

    page = PAGES["docs/compatibility.md"].read_text().partition("| what | format |")[2]
    numbers = [int(number) for number in re.findall(r"^\| [^|]+ \| (\d+) \|", page, re.MULTILINE)]
    formats = [stored.FORMAT, segment.FORMAT_VERSION, database.FORMAT, journal.FORMAT, lmdb_replica._FORMAT]
    assert numbers == formats


def test_the_counts_of_recorded_cases_are_those_of_the_archive():
    tool = _tool()
    with tarfile.open(tool.ARCHIVE) as archive:
        families = Counter(name.partition("__")[0] for name in archive.getnames())
    assert families == tool.RECORDED, "tools/build_docs.py: RECORDED"
    assert f"{families.total()} cases were recorded" in PAGES["README.md"].read_text()
    assert f"{families.total()} cases were recorded" in PAGES["docs/parity.md"].read_text()


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_whole_and_load_nothing_from_elsewhere(picture):
    text = picture.read_text()
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.findall(r"""(?:url\(|href=)["']?https?://[^"')]*""", text)


def test_each_picture_is_on_a_page():
    text = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert [path.name for path in (ROOT / "docs" / "pictures").iterdir() if f"pictures/{path.name})" not in text] == []


def test_the_picture_of_the_demo_shows_a_run_that_was_verified():
    text = (ROOT / "docs" / "pictures" / "demo.svg").read_text().replace("&#160;", " ")
    assert "make demo" in text
    assert "verified: a recount of the file finds exactly these counts" in text


@pytest.mark.parametrize("name", errors.__all__)
def test_each_error_says_where_the_documentation_describes_it(name):
    page, _, anchor = getattr(errors, name)("x").docs.partition("#")
    assert f"## {name}\n" in PAGES[page].read_text()
    assert anchor == name.lower()


def test_an_error_of_a_private_kind_is_described_as_the_public_one():
    class Inner(errors.FencedError):
        pass

    assert Inner("x").docs == errors.FencedError("x").docs


def test_each_error_has_a_cause_and_a_remedy():
    for name in set(errors.__all__) - {"PenstockError"}:
        assert re.search(r"\n\n    Cause: .*\n\n    Remedy: ", getattr(errors, name).__doc__, re.DOTALL), name


def test_the_command_shows_where_an_error_is_described(capsys, monkeypatch, tmp_path):
    from penstock.cli.main import main

    monkeypatch.setattr("sys.argv", ["penstock", "topics", "consume", "nowhere", "-b", str(tmp_path / "logs.db")])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.splitlines()[-1] == "See docs/reference/errors.md#logerror"
