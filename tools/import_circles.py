"""Finds circles of imports: between files, and between the rooms of a package.

A room of a package is a sub-package or a file that stands beside them. All imports count: those inside functions and
those for type checkers too, as a reader follows them all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

__all__ = ["file_circles", "imported_files", "imported_modules", "room_circles", "upward_imports"]

Imports = Mapping[str, set[str]]


def imported_files(root: Path) -> dict[str, set[str]]:
    """Read which files import which, as dotted names with the package's own in front; packages are left out."""
    files = {_module(path, root): path for path in root.rglob("*.py") if path.name != "__init__.py"}
    return {module: {found for found in _imports(path, files) if found != module} for module, path in files.items()}


def imported_modules(root: Path) -> dict[str, set[str]]:
    """Read which modules import which, packages too: ``from penstock.log import X`` imports ``penstock.log``."""
    modules = {_module(path, root).removesuffix(".__init__"): path for path in root.rglob("*.py")}
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = set(_imports(path, modules))
        parents = {name.rpartition(".")[0] for name in names}  # from penstock.log import base: base alone is meant
        imports[module] = {
            name for name in names if name != module and not (name in parents and _is_package(modules[name]))
        }
    return imports


def _is_package(path: Path) -> bool:
    return path.name == "__init__.py"


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root.parent).with_suffix("").parts)


def _imports(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name in files)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements; their expressions, most of a tree, hold none."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, blocks, ())


def file_circles(imports: Imports, but_in: str) -> list[str]:
    """List files that import each other in a circle, one circle at a time; those inside of ``but_in`` are let be."""
    seen = {module: found for module, found in imports.items() if not module.startswith(f"{but_in}.")}
    return _circles({module: {f for f in found if f in seen} for module, found in seen.items()})


def room_circles(imports: Imports, package: str) -> list[str]:
    """List the rooms of a package that import each other in a circle."""
    inside = [module for module in imports if module.startswith(f"{package}.")]
    folders = {room for module in inside if (room := _room(module, package)) != module}

    def room(module: str) -> str:
        found = _room(module, package)
        return found if found in folders else module

    rooms: dict[str, set[str]] = {}
    for module in inside:
        others = {room(found) for found in imports[module] if found.startswith(f"{package}.")}
        rooms.setdefault(room(module), set()).update(others - {room(module)})
    return _circles(rooms)


def _room(module: str, package: str) -> str:
    return f"{package}.{module.removeprefix(f'{package}.').split('.', 1)[0]}"


def _circles(imports: Imports) -> list[str]:
    """One circle in words for each that has to be cut."""
    left = {module: set(found) for module, found in imports.items()}
    circles = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = list(reversed(error.args[1]))
            circles.append(" -> ".join(circle))
            left[circle[0]].discard(circle[1])
        else:
            return circles


def upward_imports(imports: Imports, package: str, order: tuple[str, ...]) -> list[tuple[str, str]]:
    """List (file, import) where a sub-package imports one that comes after it in ``order``."""
    ranks = {f"{package}.{name}": rank for rank, name in enumerate(order)}
    return [
        (module, found)
        for module, names in imports.items()
        for found in sorted(names)
        if ranks.get(_room(module, package), len(order)) < ranks.get(_room(found, package), -1)
    ]
