"""The record of all public names: what users write in programs, settings and scripts.

    python tools/public_names.py            compares the sources with tools/public_names.txt
    python tools/public_names.py --record   writes the record anew

A name is a class, function, method or property of the API reference with its parameters, an error, a setting, or a
command with its options. A name that is no longer there breaks programs: `--record` takes it out only if *Removed*
of the changelog's *Unreleased* names it (docs/compatibility.md says what comes before that). New names are recorded
when a release is cut, and are kept from then on. Exits with 1 if a recorded name is gone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import griffe

from public_api import PublicApi, public_members

__all__ = ["findings", "names_now", "names_of_api", "read_record", "without_notice"]

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tools" / "public_names.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
_UNRELEASED = re.compile(r"^## Unreleased$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_REMOVED = re.compile(r"^### Removed$(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)


def names_now(api: PublicApi) -> set[str]:
    """All names of the sources as they are."""
    return {*names_of_api(api), *_settings(), *_commands()}


def names_of_api(api: PublicApi) -> Iterator[str]:
    """Names of Python: ``penstock.KStream.filter``, and ``penstock.KStream.filter(predicate)`` for a parameter.

    Args:
        api: The names, and the sources.
    """
    owners = dict(api.exported)
    owners |= {found.name: found for _, found in api.returned().values()}
    for path, found in owners.items():
        yield path
        if isinstance(found, griffe.Class):
            yield from _with_parameters(path, found.all_members.get("__init__"))
            for member in public_members(found):
                yield f"{path}.{member.name}"
                yield from _with_parameters(f"{path}.{member.name}", member)
        else:
            yield from _with_parameters(path, found)


def _with_parameters(path: str, found: griffe.Object | griffe.Alias | None) -> Iterator[str]:
    target = found.final_target if isinstance(found, griffe.Alias) else found
    if not isinstance(target, griffe.Function) or "property" in target.labels:
        return
    for parameter in target.parameters:
        # One that is told by its position alone, or takes what is left, has no name that a program writes.
        if parameter.kind in (griffe.ParameterKind.positional_or_keyword, griffe.ParameterKind.keyword_only) and (
            parameter.name not in ("self", "cls") and not parameter.name.startswith("_")
        ):
            yield f"{path}({parameter.name})"


def _settings() -> Iterator[str]:
    from penstock.config.definitions import CONFIG_DEFS

    yield from (f"setting {name}" for name in CONFIG_DEFS)


def _commands() -> Iterator[str]:
    from typer.main import get_command

    from build_docs import commands
    from penstock.cli.main import app

    for path, command in commands(get_command(app), ("penstock",)):
        yield " ".join(path)
        for option in command.params:
            names = [] if getattr(option, "hidden", False) else [*option.opts, *option.secondary_opts]
            yield from (f"{' '.join(path)} {name}" for name in names if name.startswith("-"))


def read_record() -> set[str]:
    """The names that are recorded."""
    return set(RECORD.read_text(encoding="utf-8").splitlines())


def without_notice(removed: Iterable[str], changelog: str) -> list[str]:
    """Names that are to go, and which *Removed* of the changelog's *Unreleased* does not have.

    A method is named by its class and its own name (``KStream.through``), a parameter by its name beside these, a
    setting or an option by itself.

    Args:
        removed: The names as they are recorded.
        changelog: The text of the changelog.
    """
    unreleased = _UNRELEASED.search(changelog)
    section = _REMOVED.search(unreleased[1]) if unreleased else None
    notices = section[1].split("\n- ") if section else []
    return sorted(name for name in removed if not any(_is_named(name, notice) for notice in notices))


def _is_named(name: str, notice: str) -> bool:
    """Return whether a notice names it, or the class or command that it belongs to, as code."""
    codes = set(re.findall(r"`([^`]+)`", notice))
    if name.startswith("setting "):
        return name.removeprefix("setting ") in codes
    if " " in name:  # a command or its option
        command, _, option = name.rpartition(" ")
        return name in codes or command in codes or (option.startswith("-") and f"{command} {option}" in codes)
    path, _, parameter = name.rstrip(")").partition("(")
    parts = path.removeprefix("penstock.").split(".")
    spellings = {".".join(parts[start:]) for start in range(len(parts))} | {path}
    owners = {".".join(parts[start:-1]) for start in range(len(parts) - 1)} - {""}
    if parameter:
        return parameter in codes and bool(spellings & codes)
    return bool((spellings | owners) & codes)


def findings(api: PublicApi) -> Iterator[str]:
    """Recorded names that are gone, and what to do about them."""
    gone = read_record() - names_now(api)
    silent = without_notice(gone, CHANGELOG.read_text(encoding="utf-8"))
    yield from (f"{name}: removed without a notice in CHANGELOG.md, Unreleased, Removed" for name in silent)
    for name in sorted(gone - set(silent)):
        yield f"{name}: recorded, and gone with a notice; run: python tools/public_names.py --record"


def main() -> int:
    """Compare or record."""
    parser = argparse.ArgumentParser(description="The record of all public names.")
    parser.add_argument("--record", action="store_true", help="write the record anew")
    record = parser.parse_args().record
    api = PublicApi()
    found = [*findings(api)]
    if record and not any("without a notice" in finding for finding in found):
        RECORD.write_text("\n".join(sorted(names_now(api))) + "\n", encoding="utf-8")
        return 0
    print(*found, f"public names: {len(found) or 'no'} findings", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
