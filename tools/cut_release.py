"""Cuts a release: the changelog's *Unreleased* becomes a version, and all files name it.

    python tools/cut_release.py 1.0.0              writes, commits and tags v1.0.0
    python tools/cut_release.py 1.0.0 --dry-run    prints what would change
    python tools/cut_release.py --notes 1.0.0      prints the changelog of a version

The public names are recorded anew (tools/public_names.py). The date is that of SOURCE_DATE_EPOCH, else today (UTC).
Refused: a version that is not above the present one, a changelog with nothing to release (the version after its
candidate may have nothing new), *Removed* in anything but a major version (before 1.0 a minor one), a tree with changes
that are not committed, a tag that is there. If the commit fails, for a hook for example, all files are as before. The
rest is done by .github/workflows/release.yml when the tag is pushed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import difflib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Refused", "cut", "notes"]

ROOT = Path(__file__).parents[1]
CHANGELOG = "CHANGELOG.md"
_NUMBER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:rc([1-9]\d*))?")
_HEAD = re.compile(r"^## .*$", re.MULTILINE)
_VERSIONED = {  # file -> what stands before the version in it
    "src/penstock/base/version.py": r'^__version__ = "',
    "CITATION.cff": r"^version: ",
    "deploy/helm/penstock/Chart.yaml": r"^(?:version|appVersion): ",
}
_ENTRY = re.compile(r"^- ", re.MULTILINE)


class Refused(Exception):  # noqa: N818 - what the tool says, no error of a library
    """The release cannot be cut; the message says why."""


def cut(files: Mapping[str, str], version: str, date: str) -> dict[str, str]:
    """Return the files as the release has them.

    Args:
        files: The changelog and all files that name the version, by path.
        version: For example ``1.0.0``, or ``1.0.0rc1`` for a candidate.
        date: For example ``2026-11-27``.

    Raises:
        Refused: The version is none, or not one that may follow.
    """
    present = re.search(r'__version__ = "([^"]+)"', files["src/penstock/base/version.py"])
    assert present is not None
    if _parts(version) <= _parts(present[1]):
        raise Refused(f"{version} is not above {present[1]}, the present version")
    made = {}
    for name, before in _VERSIONED.items():
        old, new = (_of_chart(each) if name.endswith("Chart.yaml") else each for each in (present[1], version))
        made[name], times = re.subn(
            rf"({before}){re.escape(old)}(?![\w.-])", rf"\g<1>{new}", files[name], flags=re.MULTILINE
        )
        if not times:
            raise Refused(f"{name} does not name {present[1]}, the present version")
    changelog = files[CHANGELOG]
    unreleased = notes(changelog, "Unreleased")
    is_final = present[1].partition("rc")[0] == version  # what it has is under its candidates
    if not _ENTRY.search(unreleased):
        if unreleased or not is_final:
            raise Refused("the changelog has nothing under Unreleased")
        unreleased = f"No changes since {present[1]}."
    if "### Removed" in unreleased and not _may_remove(_parts(version)):
        raise Refused(f"{version} may not remove anything, and the changelog has ### Removed: only a major version may")
    above, heading, below = changelog.partition("## Unreleased\n")
    if unreleased not in below:
        below = f"\n{unreleased}\n{below}"
    made[CHANGELOG] = f"{above}{heading}\n## {version} - {date}\n{below}"
    return made


def _of_chart(version: str) -> str:
    """A version as charts write it: candidates as semantic versions have them."""
    return version.replace("rc", "-rc.")


def notes(changelog: str, version: str) -> str:
    """Return what the changelog has of a version, without its heading.

    Raises:
        Refused: It has no such version.
    """
    heads = [*_HEAD.finditer(changelog)]
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        if re.fullmatch(rf"## {re.escape(version)}(?: - [\d-]+)?", head[0]):
            return changelog[head.end() : after.start() if after else None].strip()
    raise Refused(f"the changelog has no version {version}")


def _parts(version: str) -> tuple[int, int, int, float]:
    found = _NUMBER.fullmatch(version)
    if found is None:
        raise Refused(f"{version!r} is no version: MAJOR.MINOR.PATCH, or with rc1 for a candidate")
    major, minor, patch = map(int, found.groups()[:3])
    return major, minor, patch, float(found[4] or "inf")


def _may_remove(parts: tuple[int, int, int, float]) -> bool:
    major, minor, patch, _ = parts
    return patch == 0 and (minor == 0 or major == 0)


def _git(*words: str) -> str:
    """Run git in this tree.

    Raises:
        Refused: It fails.
    """
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"git {words[0]} fails: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _refuse_what_is_there(tag: str) -> None:
    if _git("status", "--porcelain"):
        raise Refused("the tree has changes that are not committed")
    if _git("tag", "--list", tag):
        raise Refused(f"there is a tag {tag} already")


def _commit(made: Mapping[str, str], version: str) -> None:
    """Write the files, commit and tag them; where that fails, all is as before.

    Raises:
        Refused: It fails.
    """
    before = _git("rev-parse", "HEAD").strip()
    try:
        for name, text in made.items():
            (ROOT / name).write_text(text, encoding="utf-8")
        _git("commit", "--quiet", "--all", "--message", f"Version {version}")
        _git("tag", "--annotate", f"v{version}", "--message", f"Version {version}")
    except BaseException:
        _git("reset", "--hard", "--quiet", before)  # what the tree had was committed
        raise


def main() -> int:
    """Cut the release, or print what it would be."""
    parser = argparse.ArgumentParser(description="Cut a release.")
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="print what would change")
    parser.add_argument("--notes", action="store_true", help="print the changelog of the version")
    chosen = parser.parse_args()
    files = {name: (ROOT / name).read_text(encoding="utf-8") for name in (CHANGELOG, *_VERSIONED)}
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = dt.datetime.now(dt.UTC) if epoch is None else dt.datetime.fromtimestamp(int(epoch), dt.UTC)
    try:
        if chosen.notes:
            print(notes(files[CHANGELOG], chosen.version))
            return 0
        made = cut(files, chosen.version, f"{now:%Y-%m-%d}")
        if not chosen.dry_run:
            _refuse_what_is_there(f"v{chosen.version}")
    except Refused as refusal:
        print(f"not released: {refusal}", file=sys.stderr)
        return 1
    if chosen.dry_run:
        for name, text in made.items():
            sys.stdout.writelines(
                difflib.unified_diff(files[name].splitlines(keepends=True), text.splitlines(keepends=True), name, name)
            )
        return 0
    record = [sys.executable, str(ROOT / "tools" / "public_names.py"), "--record"]
    if subprocess.run(record, check=False).returncode:  # before the changelog is cut: it reads what was removed
        return 1
    try:
        _commit(made, chosen.version)
    except Refused as refusal:
        print(f"not released: {refusal}", file=sys.stderr)
        return 1
    print(f"v{chosen.version} is committed and tagged; push it: git push origin HEAD v{chosen.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
