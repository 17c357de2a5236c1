"""The helpers of ``penstock.api`` take handles and return handles; only the fluent classes import each other."""

import ast
from pathlib import Path

from penstock import api

FOLDER = Path(api.__file__).parent
FLUENT = {
    "async_verbs",
    "branched",
    "cogrouped",
    "grouped",
    "grouped_table",
    "join_verbs",
    "stream",
    "table",
    "table_join_verbs",
    "windowed",
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
    return found


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = set(graph[start])
    while waiting:
        module = waiting.pop()
        seen.add(module)
        waiting |= graph[module] - seen
    return seen


def test_only_the_fluent_classes_form_a_circle_of_imports():
    graph = {path.stem: imported(path) for path in FOLDER.glob("*.py")}
    assert {module for module in graph if module in reached(module, graph)} == FLUENT


def test_only_the_builder_imports_fluent_classes_from_outside_the_circle():
    graph = {path.stem: imported(path) for path in FOLDER.glob("*.py")}
    assert {module for module in graph.keys() - FLUENT if graph[module] & FLUENT} == {"builder"}


def test_no_private_name_of_another_object_is_used():
    assert [path.name for path in FOLDER.glob("*.py") if "SLF001" in path.read_text(encoding="utf-8")] == []
