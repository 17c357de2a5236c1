"""Builds the documentation site from docs/, the docstrings, the notebook and the project's own pages.

    python tools/build_site.py
    python tools/build_site.py --into FOLDER    and puts it beside the sites of other versions in FOLDER

Pages are assembled in build/site-pages, as the site has some that are not in docs/ (the changelog, the notebook with
the outputs of its cells), and Zensical builds them to site/, strictly: a broken link or anchor fails. So does a page
that the navigation of tools/zensical.toml does not have, a public name without a page or a docstring, one that has gone
without a notice (tools/public_names.py), and anything that a browser would fetch from elsewhere. `llms.txt`, the index
for language models, is made from the same pages.

A folder of versions has a site for each MAJOR.MINOR, which stays as it was built; that of the same version is replaced.
Pages have a menu of all versions, read from `versions.json` beside them, so old pages know newer ones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import public_names
from public_api import DIRECTIVE, PublicApi

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "tools" / "zensical.toml"
BUILD = ROOT / "build"
PAGES = BUILD / "site-pages"
BUILT = BUILD / "site"
SITE = ROOT / "site"
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
_OPTIONAL = ("adr/", "benchmarks.md", "design.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_FOR_MODELS = (
    "Names are those of Kafka Streams in Python's spelling: "
    '`builder.stream("t").map_values(f).group_by_key().count()`. Everything is imported from `penstock`; topologies '
    "are tested with `TopologyTestDriver`, without Spark and without a broker. Read patterns.md before you write code: "
    "it has programs that run, and the mistakes that are often made."
)
OWN_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_TO_FIRST = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock</title>'
    '<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">Penstock {0}</a></html>\n'
)
_PROGRAM = re.compile(r"^\[`[\w.]+\.py`\]\((?P<path>[\w./]+\.py)\)$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_LINK = re.compile(r"\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?(https?://[^"'\s>]+)|<link[^>]+href=["']?(https?://[^"'\s>]+)"""
)


def assemble(api: PublicApi, *, has_menu: bool = False) -> None:
    """Write all pages of the site to PAGES, and the configuration beside them.

    Args:
        api: The public names.
        has_menu: Whether the pages get the menu of versions.
    """
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES)
    config = CONFIG.read_text(encoding="utf-8").replace("@VERSION@", version("penstock"))
    menu = '\n[project.extra.version]\nprovider = "mike"\n' if has_menu else ""  # the form of versions.json
    (BUILD / CONFIG.name).write_text(config + menu, encoding="utf-8")
    shutil.copy(ROOT / "tools" / "site.css", PAGES / "site.css")
    for name in OWN_PAGES:
        (PAGES / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    (PAGES / "notebook.md").write_text(notebook_page(), encoding="utf-8")
    for page in PAGES.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        text = DIRECTIVE.sub(lambda found: f"::: {api.path_of(found['name'])}", text)
        origin = ROOT / page.name if page.name in OWN_PAGES else DOCS / page.relative_to(PAGES)
        text = with_programs(text, origin)
        page.write_text(on_site(text, origin, page), encoding="utf-8")


def with_programs(text: str, origin: Path) -> str:
    """The text of a page with the program in place of each paragraph that is nothing but a link to one.

    Args:
        text: Of the page.
        origin: The file that its links start from.
    """
    return _PROGRAM.sub(
        lambda found: f"```python\n{(origin.parent / found['path']).read_text(encoding='utf-8')}```", text
    )


def on_site(text: str, origin: Path, page: Path) -> str:
    """The text of a page with its links as they are on the site.

    Args:
        text: Of the page.
        origin: The file that its links start from.
        page: Where it stands in PAGES.
    """

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(origin.parent / found["target"]))
        if target.is_relative_to(DOCS):
            there = PAGES / target.relative_to(DOCS)
        elif target == NOTEBOOK:
            there = PAGES / "notebook.md"
        elif target.parent == ROOT and target.name in OWN_PAGES:
            there = PAGES / target.name
        elif target == ROOT / "README.md":
            there = PAGES / "index.md"
        else:  # a file of the repository that the site does not have: only its name stays
            return f"] (`{target.relative_to(ROOT)}`)"
        return f"]({os.path.relpath(there, page.parent)}{found['anchor'] or ''})"

    return re.sub(r"\[([^\]]*)\] \(`([^`]+)`\)", _name_only, _LINK.sub(link, text))


def _name_only(found: re.Match[str]) -> str:
    words, path = found[1], found[2]
    return words if path in words else f"{words} (`{path}`)"


def llms_txt() -> str:
    """The index of the site for language models, in the form of llmstxt.org: a line for each page of the navigation.

    Pages are linked as Markdown, as `with_markdown` puts them beside those for browsers. The API reference has its text
    in the docstrings, so its pages are linked as HTML.
    """
    project = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]
    lines = ["# Penstock", "", f"> {_about(DOCS / 'index.md')}", "", _FOR_MODELS]
    optional = ["", "## Optional", ""]
    for entry in project["nav"]:
        ((section, inner),) = entry.items()
        pages = [inner] if isinstance(inner, str) else list(_pages_of(inner))
        main = [page for page in pages if not page.startswith(_OPTIONAL)]
        lines += ["", f"## {section}", "", *map(_line, main)] if main else []
        optional += [_line(page) for page in pages if page not in main]
    return "\n".join([*lines, *optional]) + "\n"


def _line(page: str) -> str:
    source = _source_of(page)
    if source == NOTEBOOK:
        return f"- [Notebook]({page}): a topology, its picture, its tables and its store in cells"
    title = re.search(r"^# (.+)$", source.read_text(encoding="utf-8"), re.MULTILINE)
    assert title is not None, f"{page} has no title"
    is_api = page.startswith("reference/api/")
    about = _about(source)
    return f"- [{title[1]}]({page.removesuffix('.md') + '.html' if is_api else page})" + (f": {about}" if about else "")


def _source_of(page: str) -> Path:
    if page == "notebook.md":
        return NOTEBOOK
    return ROOT / page if page in OWN_PAGES else DOCS / page


def _about(source: Path) -> str:
    """The first sentence of a page, without its markup."""
    paragraphs = source.read_text(encoding="utf-8").partition("\n# ")[2] or source.read_text(encoding="utf-8")
    for paragraph in paragraphs.split("\n\n")[1:]:
        if re.match(r"[A-Z*\[]|`(?!``)", paragraph) and not paragraph.startswith("How-to:"):
            text = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).replace("**", "").split())
            return re.split(r"(?<=[.:?]) (?=[A-Z`])", text, maxsplit=1)[0].rstrip(":")
    return ""


def with_markdown() -> None:
    """Put llms.txt and the text of all pages as Markdown into the built site."""
    (BUILT / "llms.txt").write_text(llms_txt(), encoding="utf-8")
    for page in PAGES.rglob("*.md"):
        shutil.copy(page, BUILT / page.relative_to(PAGES))


def dead_links_of_llms_txt() -> Iterator[str]:
    """Links of llms.txt without a file in the built site."""
    for target in re.findall(r"\]\(([^)]+)\)", (BUILT / "llms.txt").read_text(encoding="utf-8")):
        if not (BUILT / target).is_file():
            yield f"llms.txt links {target}, which is not there"


def notebook_page() -> str:
    """The notebook as a page, run here, with what its cells show."""
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("IPYTHONDIR", f"{folder}/ipython")
        quiet = ["--IPKernelApp.log_level=ERROR"]
        place = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=120, resources=place, extra_arguments=quiet).execute()
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data: dict[str, str] = output.get("data", {})
            shown = data.get("text/html") or data.get("image/svg+xml")
            parts.append(f'<div class="cell-output">\n{shown}\n</div>' if shown else f"```text\n{_text(output)}\n```")
    return "\n\n".join(parts) + "\n"


def _text(output: Any) -> str:
    return str(output.get("text") or output.get("data", {}).get("text/plain", "")).rstrip()


def not_in_navigation() -> Iterator[str]:
    """Pages that nobody would find, and entries without a page."""
    listed = set(_pages_of(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | {*OWN_PAGES, "notebook.md"}
    yield from (
        f"{page} is not in the navigation: add it to {CONFIG.relative_to(ROOT)}" for page in sorted(there - listed)
    )
    yield from (f"{CONFIG.relative_to(ROOT)} lists {page}, which is not there" for page in sorted(listed - there))


def _pages_of(entries: Any) -> Iterator[str]:
    for entry in entries:
        for inner in entry.values():
            yield from [inner] if isinstance(inner, str) else _pages_of(inner)


def fetched_from_elsewhere() -> Iterator[str]:
    """What a browser would fetch from other servers when it shows the site."""
    for page in sorted(BUILT.rglob("*.html")):
        for found in _FETCHED.finditer(page.read_text(encoding="utf-8")):
            yield f"{page.relative_to(BUILT)} fetches {found[1] or found[2]}"


def keep_version(site: Path, folder: Path, version: str) -> None:
    """Put a site beside those of other versions, and note it in their list and as the one that is shown first.

    Args:
        site: The site.
        folder: The folder of all versions.
        version: For example ``1.2.0``; its site is that of ``1.2``. Candidates (``1.2.0rc1``) are not shown first.
    """
    name = version if "rc" in version else ".".join(version.split(".")[:2])
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "versions.json"
    entries = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else []
    titles = {entry["version"]: entry["title"] for entry in entries} | {name: version}
    shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(site, folder / name)
    order = sorted(titles, key=_order, reverse=True)
    first = next((each for each in order if "rc" not in each), order[0])
    made = [{"version": each, "title": titles[each], "aliases": ["latest"] if each == first else []} for each in order]
    listed.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_TO_FIRST.format(first), encoding="utf-8")


def _order(version: str) -> tuple[float, ...]:
    numbers, _, candidate = version.partition("rc")
    parts = [*map(float, numbers.split(".")), 0.0, 0.0][:3]
    return (*parts, float(candidate or "inf"))


def main() -> int:
    """Build the site; print what is wrong with it."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="keep it beside those of other versions")
    folder = parser.parse_args().into
    api = PublicApi()
    findings = sorted(set(api.findings()))
    if not findings:
        findings = [*not_in_navigation(), *public_names.findings(api)]
    if not findings:
        assemble(api, has_menu=folder is not None)
        shutil.rmtree(BUILT, ignore_errors=True)
        zensical = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
        done = subprocess.run(zensical, cwd=BUILD, capture_output=True, text=True, check=False)
        if done.returncode:
            findings = [_COLOUR.sub("", done.stdout + done.stderr).partition("Traceback")[0].rstrip()]
    if not findings:
        with_markdown()
        findings = [*fetched_from_elsewhere(), *dead_links_of_llms_txt()]
    print(*findings, sep="\n", end="\n" if findings else "")
    if findings:
        print("site: not built")
        return 1
    shutil.rmtree(SITE, ignore_errors=True)
    BUILT.rename(SITE)
    print(f"site: {len(list(SITE.rglob('*.html')))} pages; open {SITE.relative_to(ROOT)}/index.html")
    if folder is not None:
        keep_version(SITE, folder, version("penstock"))
        print(f"kept in {folder}, with the versions there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
