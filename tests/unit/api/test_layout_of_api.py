"""The helpers of ``penstock.api`` take handles and return handles; only the fluent classes import each other."""

import ast
from pathlib import Path

from penstock import api

FOLDER = Path(api.__file__).parent
FILES = {
    ".".join(path.relative_to(FOLDER).with_suffix("").parts): path
    for path in FOLDER.rglob("*.py")
    if path.stem != "__init__"
}
FLUENT = {
    "groups.grouped",
    "joins.table_verbs",
    "joins.verbs",
    "processing.async_verbs",
    "stream",
    "table",
}


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.startswith("penstock.api."):
                found.add(node.module.removeprefix("penstock.api."))
            elif node.module == "penstock.api":
                found.update(alias.name for alias in node.names)
            if node.module.startswith("penstock.api"):
                inside = node.module.removeprefix("penstock.api").lstrip(".")
                found.update(f"{inside}.{alias.name}" for alias in node.names)
    return found & FILES.keys()


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = set(graph[start])
    while waiting:
        module = waiting.pop()
        seen.add(module)
        waiting |= graph[module] - seen
    return seen


def test_only_the_fluent_classes_form_a_circle_of_imports():
    graph = {name: imported(path) for name, path in FILES.items()}
    assert {module for module in graph if module in reached(module, graph)} == FLUENT


def test_only_the_builder_imports_fluent_classes_from_outside_the_circle():
    graph = {name: imported(path) for name, path in FILES.items()}
    assert {module for module in graph.keys() - FLUENT if graph[module] & FLUENT} == {"builder"}


def test_no_private_name_of_another_object_is_used():
    # `handle` defines the fluent classes' handle, and the one way to it for builders outside of the package.
    assert [name for name, path in FILES.items() if "SLF001" in path.read_text(encoding="utf-8")] == ["handle"]
