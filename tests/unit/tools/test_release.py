"""What makes a release: the record of public names, the changelog's cut, the bill of materials, the workflow."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[3]
VERSIONED = ("src/penstock/base/version.py", "CITATION.cff", "deploy/helm/penstock/Chart.yaml")
CHANGELOG = (
    "# Changelog\n\nAll changes.\n\n## Unreleased\n\n### Added\n\n- A verb.\n\n## 0.1.0 - 2026-01-01\n\n- All.\n"
)


@pytest.fixture
def tools(monkeypatch):
    for needed in ("griffe", "cyclonedx"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: make setup")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


# Public names


@pytest.mark.whole  # of `make test`, docs-check looks first
def test_no_public_name_has_gone(tools):
    """A name that is gone needs a notice in the changelog; then: public_names.py --record."""
    from public_api import PublicApi
    from public_names import findings

    assert list(findings(PublicApi())) == []


@pytest.mark.parametrize(
    ("source", "gone"),
    [
        ("def open_shop(name: str, *, at: int = 0) -> None: ...\n", set()),
        ("def open_shop(name: str, *, at: int = 0, until: int = 9) -> None: ...\n", set()),
        ("def open_shop(name: str) -> None: ...\n", {"shop.open_shop(at)"}),
        ("def open_shop(title: str, *, at: int = 0) -> None: ...\n", {"shop.open_shop(name)"}),
        ("__all__ = []\n", {"shop.open_shop", "shop.open_shop(name)", "shop.open_shop(at)"}),
    ],
)
def test_a_name_or_a_parameter_that_goes_is_seen(source, gone, tools, tmp_path):
    from public_api import PublicApi
    from public_names import names_of_api

    exported = "" if "__all__" in source else '__all__ = ["open_shop"]\n'
    names = []
    for folder, text in (
        ("before", '__all__ = ["open_shop"]\ndef open_shop(name: str, *, at: int = 0) -> None: ...\n'),
        ("after", exported + source),
    ):
        package = tmp_path / folder / "shop"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        names.append(set(names_of_api(PublicApi(tmp_path, package.parent, ("shop",)))))
    assert names[0] - names[1] == gone


@pytest.mark.parametrize(
    ("name", "notice"),
    [
        ("penstock.KStream.through", "`KStream.through`: use `repartition`."),
        ("penstock.KStream.through(topic)", "`topic` of `KStream.through`."),
        ("penstock.KStream.through", "`KStream`, whose place `Stream` takes."),
        ("setting num.stream.things", "`num.stream.things`, which had no effect."),
        ("penstock query --app", "`penstock query --app`: the topology is the first argument."),
        ("penstock query --app", "`penstock query`."),
        ("penstock query", "`penstock query`."),
    ],
)
def test_what_goes_needs_a_notice_under_removed(name, notice, tools):
    from public_names import without_notice

    def changelog(text: str) -> str:
        return f"## Unreleased\n\n### Removed\n\n- {text}\n\n### Fixed\n\n- A fault.\n\n## 0.1.0\n\n### Removed\n\n- {notice}\n"

    assert without_notice([name], changelog(notice)) == []
    assert without_notice([name], changelog("`KStream.other(topic)`, `num.stream`, `penstock topics`.")) == [name]


# The cut


@pytest.fixture
def files():
    return {"CHANGELOG.md": CHANGELOG} | {name: (ROOT / name).read_text() for name in VERSIONED}


def test_the_changelog_is_cut_and_all_files_name_the_version(tools, files):
    from cut_release import cut, notes

    made = cut(files, "7.2.0", "2027-03-01")
    assert "## Unreleased\n\n## 7.2.0 - 2027-03-01\n\n### Added\n\n- A verb.\n\n## 0.1.0" in made["CHANGELOG.md"]
    assert notes(made["CHANGELOG.md"], "7.2.0") == "### Added\n\n- A verb."
    assert notes(made["CHANGELOG.md"], "Unreleased") == ""
    for name in VERSIONED:
        assert "7.2.0" in made[name]
        assert penstock.__version__ not in made[name]


@pytest.mark.parametrize(
    ("version", "change", "why"),
    [
        (penstock.__version__, {}, "is not above"),
        ("0.0.9", {}, "is not above"),
        ("1.0", {}, "is no version"),
        ("v1.0.0", {}, "is no version"),
        ("1.0.0", {"### Added\n\n- A verb.\n\n": ""}, "nothing under Unreleased"),
        ("1.0.0", {"- A verb.\n\n": "### Fixed\n\n"}, "nothing under Unreleased"),
        ("8.1.0", {"### Added": "### Removed"}, "may not remove anything"),
        ("0.2.1", {"### Added": "### Removed"}, "may not remove anything"),
    ],
)
def test_a_version_that_may_not_follow_is_refused(version, change, why, tools, files):
    from cut_release import Refused, cut

    for before, after in change.items():
        files["CHANGELOG.md"] = files["CHANGELOG.md"].replace(before, after)
    with pytest.raises(Refused, match=why):
        cut(files, version, "2027-03-01")


def test_versions_that_may_follow(tools, files):
    from cut_release import Refused, cut, notes

    files["CHANGELOG.md"] = CHANGELOG.replace("### Added", "### Removed")
    for version in ("0.2.0", "1.0.0rc1", "1.0.0", "2.0.0"):
        assert f"## {version} - " in cut(files, version, "2027-03-01")["CHANGELOG.md"]
    candidate = cut(files, "1.0.0rc1", "2027-03-01")
    assert cut({**candidate, "CHANGELOG.md": CHANGELOG}, "1.0.0", "2027-03-02")
    with pytest.raises(Refused, match="nothing under Unreleased"):
        cut(candidate, "1.0.1", "2027-03-02")
    final = cut(candidate, "1.0.0", "2027-03-02")
    assert notes(final["CHANGELOG.md"], "1.0.0") == "No changes since 1.0.0rc1."
    assert "- A verb." in notes(final["CHANGELOG.md"], "1.0.0rc1")
    chart = "deploy/helm/penstock/Chart.yaml"
    assert (
        re.findall(r"^\w*[vV]ersion: (\d.*)$", candidate[chart], re.MULTILINE) == ["1.0.0-rc.1"] * 2
    )  # helm takes no other
    assert re.findall(r"^\w*[vV]ersion: (\d.*)$", final[chart], re.MULTILINE) == ["1.0.0"] * 2


@pytest.fixture
def repository(tools, files, tmp_path, monkeypatch):
    """A repository with all that names the version, and a stand-in for the record of public names."""
    import cut_release

    record = "from pathlib import Path; Path(__file__).with_suffix('.txt').write_text('recorded\\n')\n"
    for name, text in {**files, "tools/public_names.py": record, "tools/public_names.txt": "before\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cut_release, "ROOT", tmp_path)
    for name, value in {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
                        **{f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER")
                           for what in ("NAME", "EMAIL")}}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # tests may run in a hook
        monkeypatch.delenv(name, raising=False)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "All")
    return tmp_path, git


def _release(monkeypatch, version: str) -> int:
    import cut_release

    monkeypatch.setattr(sys, "argv", ["cut_release.py", version])
    return cut_release.main()


def test_a_release_is_one_commit_with_a_tag(repository, monkeypatch):
    folder, git = repository
    assert _release(monkeypatch, "1.0.0") == 0
    assert git("log", "--format=%s") == "Version 1.0.0\nAll"
    assert git("rev-parse", "v1.0.0^{commit}") == git("rev-parse", "HEAD")
    assert git("status", "--porcelain") == ""
    assert (folder / "tools" / "public_names.txt").read_text() == "recorded\n"
    assert '__version__ = "1.0.0"' in (folder / "src/penstock/base/version.py").read_text()


@pytest.mark.parametrize("what", ["a file", "a tag", "a hook"])
def test_a_release_that_fails_leaves_all_as_it_was(what, repository, monkeypatch, capsys):
    folder, git = repository
    if what == "a file":
        (folder / "notes.txt").write_text("not committed")
    if what == "a tag":
        git("tag", "v1.0.0")
    if what == "a hook":
        hook = folder / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho the hook says no >&2; exit 1\n")
        hook.chmod(0o755)
    before = git("status", "--porcelain"), git("rev-parse", "HEAD"), git("tag")
    assert _release(monkeypatch, "1.0.0") == 1
    assert (git("status", "--porcelain"), git("rev-parse", "HEAD"), git("tag")) == before
    why = {"a file": "not committed", "a tag": "there is a tag v1.0.0", "a hook": "the hook says no"}
    assert why[what] in capsys.readouterr().err


def test_this_changelog_can_be_cut(tools):
    shown = subprocess.run(
        [sys.executable, ROOT / "tools" / "cut_release.py", "99.0.0", "--dry-run"],
        capture_output=True, text=True, check=True, timeout=60, env={"SOURCE_DATE_EPOCH": "1795000000"},
    ).stdout  # fmt: skip
    assert "+## 99.0.0 - 2026-11-18" in shown
    assert '+__version__ = "99.0.0"' in shown


# The bill of materials


def test_the_bill_has_what_penstock_needs_and_what_the_wheel_and_the_tools_bring(tools):
    from importlib.metadata import distributions

    from cyclonedx.output.json import JsonV1Dot6

    from sbom import bill_of, written

    at = dt.datetime(2026, 11, 27, tzinfo=dt.UTC)
    bom, again = bill_of(distributions(), at), bill_of(distributions(), at)
    assert JsonV1Dot6(bom).output_as_string() == JsonV1Dot6(again).output_as_string()
    bill = json.loads(written(bom))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("penstock", penstock.__version__)
    by_name = {component["name"]: component for component in bill["components"]}
    scopes = {name: by_name[name]["scope"] for name in ("pyspark", "py4j", "polars", "dagre", "uplot", "jinja2")}
    assert scopes.pop("jinja2") == "optional"
    assert set(scopes.values()) == {"required"}
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & by_name.keys(), "tools of developers are not shipped"
    assert by_name["rocksdbjni"]["hashes"][0]["alg"] == "SHA-256"
    edges = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    assert by_name["py4j"]["purl"] in edges[by_name["pyspark"]["purl"]]
    assert by_name["polars"]["purl"] in edges[root["bom-ref"]]


def test_the_bill_follows_requirements_and_extras_as_far_as_they_are_installed(tools, tmp_path):
    from sbom import bill_of

    metadata = {
        "penstock": ["Provides-Extra: ui", "Provides-Extra: dev", "Requires-Dist: alpha[fast]>=1",
                     'Requires-Dist: beta; extra == "ui"', 'Requires-Dist: testing; extra == "dev"',
                     'Requires-Dist: absent; extra == "ui"'],
        "alpha": ["Provides-Extra: fast", 'Requires-Dist: gamma; extra == "fast"', 'Requires-Dist: delta; extra == "slow"'],
        "beta": ["Requires-Dist: alpha"], "gamma": [], "delta": [], "testing": [],
    }  # fmt: skip
    for name, lines in metadata.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            "\n".join([f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0", *lines]) + "\n"
        )
    found = [PathDistribution(folder) for folder in sorted(tmp_path.iterdir())]
    bom = bill_of(found, dt.datetime(2026, 11, 27, tzinfo=dt.UTC))
    scopes = {each.name: each.scope.value for each in bom.components if each.purl and each.purl.type == "pypi"}
    assert scopes == {"alpha": "required", "gamma": "required", "beta": "optional"}


# The documentation of several versions


def test_sites_of_versions_stay_beside_each_other(tools, tmp_path):
    from build_site import keep_version

    folder = tmp_path / "all"
    for version in ("0.9.0", "1.0.0", "1.10.0", "1.2.0", "2.0.0rc1", "1.10.3"):
        site = tmp_path / version
        site.mkdir()
        (site / "index.html").write_text(version)
        keep_version(site, folder, version)
    listed = json.loads((folder / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["2.0.0rc1", "1.10", "1.2", "1.0", "0.9"]
    assert [each["title"] for each in listed if each["aliases"] == ["latest"]] == ["1.10.3"]
    for version, text in (("1.10", "1.10.3"), ("1.2", "1.2.0"), ("1.0", "1.0.0"), ("0.9", "0.9.0")):
        assert (folder / version / "index.html").read_text() == text
    assert 'url=1.10/"' in (folder / "index.html").read_text()


# The workflow


@pytest.fixture
def workflow():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: make setup")
    return yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())


def test_the_workflow_starts_by_a_tag_and_each_job_has_the_rights_that_it_needs(workflow):
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as a truth value
    assert workflow["permissions"] == {"contents": "read"}
    rights = {name: set(job.get("permissions", {})) for name, job in workflow["jobs"].items()}
    assert rights == {
        "build": set(), "sign": {"contents", "id-token", "attestations"}, "publish": {"id-token"}, "site": {"contents"},
    }  # fmt: skip
    order = {name: job.get("needs") for name, job in workflow["jobs"].items()}
    assert order == {"build": None, "sign": "build", "publish": "sign", "site": "publish"}
    assert all(step.get("uses", "@").partition("@")[1] for job in workflow["jobs"].values() for step in job["steps"])


def test_the_tools_and_targets_that_the_workflow_calls_exist(workflow):
    lines = "\n".join(step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"])
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^ *make ([\w-]+)|^make ([\w-]+)", lines, re.MULTILINE))
    assert {name for found in re.findall(r"\bmake ([a-z-]+)", lines) for name in found.split()} <= targets
    called = re.findall(r"tools/\w+\.py", lines)
    assert called
    assert not [path for path in called if not (ROOT / path).is_file()]
