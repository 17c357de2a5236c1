"""The documentation site: what its builder refuses. Whether the present pages are right, `make docs-check` shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "__init__.py": '''
"""A package."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from shop.inner.orders import Order as Order
__all__ = ["Order"]
''',
    "inner/__init__.py": '"""Inside."""',
    "inner/orders.py": '''
"""Orders."""
__all__ = ["Order", "Receipt"]
class Receipt:
    """A receipt."""
class Order:
    """An order."""
    def pay(self) -> "Receipt":
        """Pay it."""
    def refund(self) -> None:
        self.paid = False
''',
}


@pytest.fixture
def tools(monkeypatch):
    pytest.importorskip("griffe", reason="griffe is not installed: make setup")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


@pytest.fixture
def findings(tools, tmp_path):
    from public_api import PublicApi

    for name, text in SOURCES.items():
        path = tmp_path / "src" / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pages = tmp_path / "pages"
    pages.mkdir()

    def found(text: str) -> set[str]:
        (pages / "orders.md").write_text(text)
        return set(PublicApi(pages, tmp_path / "src", ("shop",)).findings())

    return found


def test_a_public_name_without_a_page_is_found(findings):
    assert findings("# Orders\n\n::: Receipt\n") == {
        "shop.Order: no page of the API reference describes it; add a line ::: shop.Order"
    }


def test_a_class_that_a_public_method_returns_needs_a_page_too(findings):
    assert findings("::: shop.Order\n") == {
        "Receipt: Order.pay returns it, and no page describes it; add a line ::: Receipt",
        "shop.inner.orders.Order.refund: no docstring",
    }


def test_a_name_on_two_lines_is_found(findings):
    (finding,) = findings("::: shop.Order\n\n::: Receipt\n\n::: Receipt\n") - {
        "shop.inner.orders.Order.refund: no docstring"
    }
    assert finding.startswith("shop.inner.orders.Receipt: described more than once")


def test_a_line_that_names_nothing_is_refused(findings):
    with pytest.raises(LookupError, match="no class is called Invoice"):
        findings("::: Invoice\n")


@pytest.mark.whole  # of `make test`, docs-check looks first
def test_every_public_name_has_a_page_and_a_docstring(tools):
    from public_api import PublicApi

    assert not list(PublicApi().findings())


def test_every_page_is_in_the_navigation(tools):
    from build_site import not_in_navigation

    assert not list(not_in_navigation())


def test_the_index_for_language_models_has_each_page_of_the_site_once(tools):
    from build_site import NOTEBOOK, OWN_PAGES, llms_txt

    text = llms_txt()
    title, _, summary, *_ = text.splitlines()
    assert title == "# Penstock"
    assert summary.startswith("> Kafka Streams for Python")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections[-1] == "Optional"
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: \S.*)?$", text, re.MULTILINE)
    assert len(links) == len(re.findall(r"^- ", text, re.MULTILINE)) == len(set(links))
    for link in links:
        page = link.removesuffix(".html") + ".md" if link.endswith(".html") else link
        is_there = (ROOT / "docs" / page).exists() or page in OWN_PAGES or page == NOTEBOOK.stem + ".md"
        assert is_there, link
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {link.removesuffix(".html") + ".md" if link.endswith(".html") else link for link in links}
    assert "patterns.md" in text.partition("## ")[0]


def test_examples_of_docstrings_become_markdown(tools):
    from griffe_docstrings import as_markdown

    assert as_markdown("Add.\n\n>>> 1 + 1\n2\n") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n"
    assert as_markdown("Add.\n\nExample:\n    >>> 1 + 1\n    2\n") == "Add.\n\nExamples:\n    >>> 1 + 1\n    2\n"
    assert as_markdown("Add::\n\n    1 + 1\n") == "Add:\n\n    1 + 1\n"
    assert as_markdown("Run it.\n\nExample:\n    run()\n") == "Run it.\n\n```python\nrun()\n```\n"


def test_links_to_files_outside_the_site_become_names(tools):
    from build_site import PAGES, on_site

    origin, page = ROOT / "docs" / "how-to" / "operate.md", PAGES / "how-to" / "operate.md"
    assert on_site("[a](kafka.md#users)", origin, page) == "[a](kafka.md#users)"
    assert on_site("[a](../../CHANGELOG.md)", origin, page) == "[a](../CHANGELOG.md)"
    assert on_site("[a](../../examples/notebook.ipynb)", origin, page) == "[a](../notebook.md)"
    assert on_site("[a](../../examples/pipe.py)", origin, page) == "a (`examples/pipe.py`)"
    assert on_site("[a](https://kafka.apache.org)", origin, page) == "[a](https://kafka.apache.org)"


def test_a_link_to_a_program_that_stands_alone_becomes_the_program(tools):
    from build_site import with_programs

    origin = ROOT / "docs" / "tutorials" / "index.md"
    program = (ROOT / "examples" / "pipe.py").read_text()
    alone = "See\n\n[`pipe.py`](../../examples/pipe.py)\n"
    assert with_programs(alone, origin) == f"See\n\n```python\n{program}```\n"
    in_a_sentence = "See [`pipe.py`](../../examples/pipe.py) for that.\n"
    assert with_programs(in_a_sentence, origin) == in_a_sentence


@pytest.mark.parametrize("target", ["nowhere.md", "second.md#nothing"])
def test_a_broken_link_ends_the_build(target, tmp_path):
    pytest.importorskip("zensical", reason="zensical is not installed: make setup")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# First\n\n[there]({target})\n")
    (tmp_path / "docs" / "second.md").write_text("# Second\n")
    config = (ROOT / "tools" / "zensical.toml").read_text()
    validation = config[config.index("[project.validation]") : config.index("[project.markdown_extensions]")]
    (tmp_path / "zensical.toml").write_text(f'[project]\nsite_name = "x"\n\n{validation}')
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode
    assert target in re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
