"""Which names are public, and which page of docs/reference/api describes each.

A page names them in lines ``::: penstock.KStream``. What no package exports, but a method of a public class returns
(such as KGroupedStream), is named without a module: ``::: KGroupedStream``; the site looks for the one class of that
name, so pages know nothing of the layout below the public packages.

    python tools/public_api.py

prints public names without a page or a docstring, and exits with 1 if there are any. `tools/build_site.py` uses it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference" / "api"

# Their __all__ is what users import.
MODULES = ("penstock", "penstock.agg", "penstock.connect", "penstock.connect.testing", "penstock.errors",
           "penstock.extensions",
           "penstock.log", "penstock.metrics", "penstock.query", "penstock.serde", "penstock.sql",
           "penstock.testing")  # fmt: skip
DIRECTIVE = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)


@dataclass
class PublicApi:
    """The public names of the sources, and the pages that describe them."""

    pages: Path = PAGES
    sources: Path = ROOT / "src"
    modules: tuple[str, ...] = MODULES
    _classes: dict[str, list[griffe.Object]] = field(default_factory=dict, init=False)

    @cached_property
    def package(self) -> griffe.Module:
        """The tree of the sources, read without running them."""
        loaded = griffe.load(self.modules[0], search_paths=[self.sources], resolve_aliases=True)
        assert isinstance(loaded, griffe.Module)
        for module in _modules(loaded):
            for member in module.members.values():
                if isinstance(member, griffe.Class) and not member.name.startswith("_"):
                    self._classes.setdefault(member.name, []).append(member)
        return loaded

    @cached_property
    def exported(self) -> dict[str, griffe.Object]:
        """Public path -> object, as users import it."""
        found = {}
        for name in self.modules:
            module = self._resolve(name)
            for export in module.exports or ():
                path = f"{name}.{export}"
                if isinstance(export, str) and not export.startswith("__") and path not in self.modules:
                    found[path] = _target(module.members[export])
        return found

    @cached_property
    def described(self) -> dict[str, list[tuple[Path, str]]]:
        """Canonical path -> the pages and lines that describe it."""
        found: dict[str, list[tuple[Path, str]]] = {}
        for page in sorted(self.pages.glob("*.md")):
            for match in DIRECTIVE.finditer(page.read_text(encoding="utf-8")):
                found.setdefault(self.object_of(match["name"]).canonical_path, []).append((page, match["name"]))
        return found

    def object_of(self, name: str) -> griffe.Object:
        """What a page calls ``name``.

        Raises:
            LookupError: There is no such thing, or several classes have the name.
        """
        if "." in name:
            return self._resolve(name)
        _ = self.package
        match self._classes.get(name, []):
            case [one]:
                return one
            case []:
                raise LookupError(f"no class is called {name}")
            case several:
                raise LookupError(f"{name} is the name of {', '.join(c.canonical_path for c in several)}")

    def path_of(self, name: str) -> str:
        """The path under which mkdocstrings finds what a page calls ``name``."""
        return name if "." in name else self.object_of(name).canonical_path

    def findings(self) -> Iterator[str]:
        """What has no page, several, or no docstring."""
        for path, found in self.exported.items():
            if not self._pages_of(found):
                yield f"{path}: no page of the API reference describes it; add a line ::: {path}"
        exported = {found.canonical_path for found in self.exported.values()}
        for method, found in self.returned().values():
            if not self._pages_of(found) and found.canonical_path not in exported:
                yield f"{found.name}: {method} returns it, and no page describes it; add a line ::: {found.name}"
        for canonical, places in self.described.items():
            if len(places) > 1:
                yield f"{canonical}: described more than once: {', '.join(f'{p.name} ({n})' for p, n in places)}"
            yield from _undocumented(self._resolve(canonical))

    def _pages_of(self, found: griffe.Object) -> list[tuple[Path, str]]:
        parent = found.parent.canonical_path if found.parent else ""
        return self.described.get(found.canonical_path) or self.described.get(parent, [])

    def returned(self) -> dict[str, tuple[str, griffe.Object]]:
        """Classes of ours that methods of exported classes return: path -> a method that does, the class."""
        found: dict[str, tuple[str, griffe.Object]] = {}
        waiting = list(self.exported.values())
        seen = set()
        while waiting:
            owner = waiting.pop()
            if owner.canonical_path in seen or not isinstance(owner, griffe.Class):
                continue
            seen.add(owner.canonical_path)
            for method in filter(lambda member: member.is_function, public_members(owner)):
                for target in self._classes_of(method):
                    found.setdefault(target.canonical_path, (f"{owner.name}.{method.name}", target))
                    waiting.append(target)
        return found

    def _classes_of(self, method: griffe.Object) -> Iterator[griffe.Class]:
        """Classes of ours in the annotation of what a method returns."""
        returned = getattr(method, "returns", None)
        if not isinstance(returned, griffe.Expr):
            return
        for part in returned.iterate(flat=True):
            if isinstance(part, griffe.ExprName) and part.canonical_path.startswith(f"{self.modules[0]}."):
                try:
                    target = self._resolve(part.canonical_path)
                except (KeyError, griffe.AliasResolutionError):  # of another library, perhaps by a module of ours
                    continue
                if isinstance(target, griffe.Class) and not target.name.startswith("_"):
                    yield target

    def _resolve(self, path: str) -> griffe.Object:
        _, _, rest = path.partition(".")
        try:
            return _target(self.package[rest]) if rest else self.package
        except KeyError:
            raise LookupError(f"there is no {path}") from None


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for inner in module.modules.values():
        if isinstance(inner, griffe.Module):
            yield from _modules(inner)


def _target(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def public_members(owner: griffe.Class) -> Iterator[griffe.Object]:
    """Methods and properties, those of base classes too."""
    for member in owner.all_members.values():
        if not member.name.startswith("_") and (member.is_function or "property" in member.labels):
            yield _target(member)


def _undocumented(found: griffe.Object) -> Iterator[str]:
    if not found.has_docstring:
        yield f"{found.canonical_path}: no docstring"
    if isinstance(found, griffe.Class):
        for member in public_members(found):
            if not _has_docstring(found, member):
                yield f"{found.canonical_path}.{member.name}: no docstring"
    elif isinstance(found, griffe.Module):
        for name in found.exports or ():
            yield from _undocumented(_target(found.members[str(name)]))


def _has_docstring(owner: griffe.Class, member: griffe.Object) -> bool:
    """Whether it, or what it overrides, has one."""
    bases = [_target(base.all_members[member.name]) for base in owner.mro() if member.name in base.members]
    return member.has_docstring or any(base.has_docstring for base in bases)


def main() -> int:
    """Print the findings."""
    api = PublicApi()
    findings = sorted(set(api.findings()))
    print(*findings, f"public API: {len(api.exported)} names, {len(findings) or 'no'} findings", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
