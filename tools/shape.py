"""Prints the shape of the tree in numbers: how large it is, how its parts hang together, and what a record crosses.

    python tools/shape.py [--json]

The numbers say nothing by themselves; two of them, before and after a change of the layout, do. Nothing checks them.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType, FunctionType, MethodType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests")]
from check_architecture import imports  # noqa: E402
from import_circles import imported_modules  # noqa: E402

__all__ = ["Shape", "crossed_files", "floors_of"]

SOURCES = ROOT / "src" / "penstock"
SHORT = 80  # lines of a module that is hardly worth a file of its own
VAGUE = ("found", "place", "known", "made", "given", "wanted")
# Families of modules that one list names, each found by its name, and what stands between packages.
SEAMS = {
    "penstock.cli": "a command each",
    "penstock.connect.connectors": "a connector each",
    "penstock.console.web.api": "a group of requests each",
    "penstock.console.web.pages": "a page each",
    "penstock.engines.factory": "between what runs and the two engines",
    "penstock.sql.functions": "a family of functions each",
}
MODES = {"processing.mode", "continuous", "micro_batch"}


class Shape:
    """The sources as they are read.

    Args:
        root: The folder of the package.
    """

    def __init__(self, root: Path = SOURCES) -> None:
        self._root = root
        self._texts = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        """File -> its syntax tree."""
        return {path: ast.parse(text) for path, text in self._texts.items()}

    @cached_property
    def nodes(self) -> dict[Path, list[ast.AST]]:
        """File -> all nodes of its syntax tree."""
        return {path: list(ast.walk(tree)) for path, tree in self.trees.items()}

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """Module -> the modules and packages of ours that it imports, also in functions and for type checkers."""
        return imported_modules(self._root)

    @cached_property
    def arrows(self) -> set[tuple[str, str]]:
        """Pairs of entries of the root of which the first imports the second, imports for type checkers left out."""
        entries = {_entry(_module(path, self._root)) for path in self._texts} - {"", "__main__"}
        pairs = {
            (_entry(_module(path, self._root)), _entry(name))
            for path, nodes in self.nodes.items()
            for _, name in imports(nodes)
            if name.startswith("penstock.")
        }
        return {(one, other) for one, other in pairs if one != other and {one, other} <= entries}

    def is_seam(self, module: str, importer: str) -> bool:
        """Whether a module stands for itself though one other imports it.

        That is so if the package passes it on, if it is imported late, as what it needs is heavy or optional, or if
        SEAMS names its family.
        """
        if importer == module.rpartition(".")[0] or any(f"{module}.".startswith(f"{family}.") for family in SEAMS):
            return True
        path = next(path for path in self._texts if _module(path, self._root) == importer)
        functions = (node for node in self.nodes[path] if isinstance(node, ast.FunctionDef))
        within = {id(each) for function in functions for each in ast.walk(function)}
        return all(id(node) in within for node in self.nodes[path] if module in _imported_names(node))

    def numbers(self) -> dict[str, int | float]:
        """All numbers but those of `crossed_files`, by what they count."""
        lines = sum(text.count("\n") for text in self._texts.values())
        importers: dict[str, set[str]] = defaultdict(set)
        for module, names in self.imports.items():
            for name in names:
                importers[name].add(module)
        lengths = {_module(path, self._root): text.count("\n") for path, text in self._texts.items()}
        alone = [
            name for name, by in importers.items() if len(by) == 1 and name in lengths and _is_file(name, self._root)
        ]
        short = [name for name in alone if lengths[name] < SHORT]
        asking = [path for path, nodes in self.nodes.items() if _asks_for_the_mode(nodes)]
        nodes = [node for nodes in self.nodes.values() for node in nodes]
        classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name[0] != "_")
        bound = Counter(_bindings(nodes))
        entries = {_entry(module) for module in self.imports} - {"", "__main__"}
        return {
            "files": len(self._texts),
            "lines": lines,
            "lines of imports": (imported := sum(map(_import_lines, self.nodes.values()))),
            "lines of imports, %": round(100 * imported / lines, 1),
            "entries of the root": len(entries),
            "floors of the root": max(floors_of(self.arrows).values(), default=0),
            "arrows at the root": len(self.arrows),
            "modules with one importer": len(alone),
            f"of those, under {SHORT} lines": len(short),
            "of those, no seams": sum(not self.is_seam(name, *importers[name]) for name in short),
            "files that ask for the mode": len(asking),
            "of those, outside of the engines": sum(_entry(_module(path, self._root)) != "engines" for path in asking),
            "class names with several classes": sum(count > 1 for count in classes.values()),
            **{f"bindings of `{name}`": bound[name] for name in VAGUE},
        }


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def _is_file(name: str, root: Path) -> bool:
    return root.parent.joinpath(*name.split(".")).with_suffix(".py").is_file()


def _entry(module: str) -> str:
    """``penstock.log.base`` -> ``log``."""
    return module.split(".")[1] if "." in module else ""


def _imported_names(node: ast.AST) -> set[str]:
    """Names of what a statement imports, modules or things in them."""
    if isinstance(node, ast.Import):
        return {each.name for each in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return set()


def _import_lines(nodes: Iterable[ast.AST]) -> int:
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((each.end_lineno or each.lineno) - each.lineno + 1 for each in statements)


def _asks_for_the_mode(nodes: Iterable[ast.AST]) -> bool:
    """Whether code compares or looks up the mode: texts of messages and documentation do not count."""
    for node in nodes:
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Call):
            named = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if named == "isinstance" and "ContinuousEngine" in ast.dump(node):
                return True
            parts = list(node.args) if named == "get" else []
        if any(isinstance(part, ast.Constant) and part.value in MODES for part in parts):
            return True
    return False


def _bindings(nodes: Iterable[ast.AST]) -> Iterable[str]:
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def floors_of(arrows: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Entry -> its floor, the longest way down from it; entries that import each other share one.

    Example:
        >>> floors_of([("cli", "log"), ("log", "base"), ("log", "errors"), ("errors", "base"), ("base", "errors")])
        {'base': 1, 'cli': 3, 'errors': 1, 'log': 2}
    """
    below: dict[str, set[str]] = defaultdict(set)
    for one, other in arrows:
        below[one].add(other)
    entries = sorted({*below, *(name for names in below.values() for name in names)})
    reached = {entry: _reached(entry, below) for entry in entries}
    together = {entry: {entry, *(other for other in reached[entry] if entry in reached[other])} for entry in entries}
    floors: dict[str, int] = {}

    def floor(entry: str) -> int:
        if entry not in floors:
            under = {name for one in together[entry] for name in below[one]} - together[entry]
            floors[entry] = 1 + max(map(floor, sorted(under)), default=0)
        return floors[entry]

    return {entry: floor(entry) for entry in entries}


def _reached(entry: str, below: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [entry]
    while waiting:
        new = below.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


KEY, VALUE = "key-of-the-record", "value-of-the-record"
_DEEPEST = 8  # levels of containers and objects in which a record is looked for


def crossed_files() -> dict[str, bool]:
    """Files with code that runs while a stream thread takes one record from the fetch to the committed output.

    The topology keeps the newest record of each key, so that key and value come through. A first record goes the same
    way before, so that what is only set up does not count.

    Returns:
        File -> whether the record passes through it: a function in it takes or returns the record's key or value, alone
        or within a batch. The others run beside it: clocks, figures, plans, the schedule of commits.
    """
    from penstock import Consumed, Produced, StreamsBuilder
    from penstock.log.open import open_log
    from threads import append, new_thread, settle, thread_app  # of tests/

    log: Any = open_log("memory://shape")
    for topic in ("lines", "newest"):
        log.create_topic(topic, 1)
    builder = StreamsBuilder()
    stream = builder.stream("lines", Consumed(key_serde="string", value_serde="string"))
    newest = stream.filter(lambda _, line: bool(line)).group_by_key().reduce(lambda _, line: line)
    newest.to_stream().to("newest", Produced(key_serde="string", value_serde="string"))
    thread = new_thread(thread_app(builder.build(), {"processing.guarantee": "exactly_once_v2"}, log), log)
    thread.start()
    files: dict[str, bool] = {}

    def note(frame: FrameType, event: str, returned: Any) -> None:
        name = frame.f_code.co_filename
        if not name.startswith(str(SOURCES)) or event not in ("call", "return"):
            return
        files.setdefault(name, False)
        if not files[name]:
            arguments = [each for name, each in frame.f_locals.items() if name not in ("self", "cls")]
            sys.setprofile(None)  # what looks for the record is no part of the way
            files[name] = _holds_record(arguments if event == "call" else returned)
            sys.setprofile(note)

    for profile, key, value in ((None, "k", "v"), (note, KEY, VALUE)):
        append(log, "lines", [(key, value, 1_000)])
        sys.setprofile(profile)
        settle(thread)
        sys.setprofile(None)
    thread.close(commit=True)
    log.close()
    return {str(Path(name).relative_to(SOURCES)): files[name] for name in sorted(files)}


def _holds_record(item: Any, depth: int = 0) -> bool:
    """Whether an argument or a result holds the record's key or value, as text or bytes, itself or somewhere within."""
    if isinstance(item, str | bytes | bytearray | memoryview):
        text = bytes(item).decode("latin-1") if not isinstance(item, str) else item
        return KEY in text or VALUE in text
    if depth > _DEEPEST or item is None or isinstance(item, int | float | type | FunctionType | MethodType):
        return False
    if type(item).__module__.split(".")[0] in ("pyarrow", "polars", "numpy"):
        return any(text in str(_values(item)) for text in (KEY, VALUE))
    if isinstance(item, Mapping):
        item = [*item.keys(), *item.values()]
    if isinstance(item, list | tuple | set | frozenset | deque):
        return any(_holds_record(each, depth + 1) for each in item)
    if type(item).__module__.split(".")[0] != "penstock":
        return False
    slots = {name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())}
    if not slots and not is_dataclass(item):
        return False  # a part of the machinery, which may hold the record and does not carry it
    names = slots | getattr(item, "__dict__", {}).keys()
    return any(_holds_record(getattr(item, name, None), depth + 1) for name in names)


def _values(item: Any) -> Any:
    for method in ("to_pylist", "to_list", "tolist", "to_pybytes"):
        if hasattr(item, method):
            return getattr(item, method)()
    return None


def main() -> int:
    """Print the numbers, or all of them and the crossed files as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json",
        action="store_true",
        help="as JSON, with the names of the files that run for a record: those that it crosses, and those beside",
    )
    args = parser.parse_args()
    running = crossed_files()
    crossed = [name for name, is_crossed in running.items() if is_crossed]
    numbers = {
        **Shape().numbers(),
        "files that run for a record": len(running),
        "of those, files that it passes through": len(crossed),
        "of those, in engines": sum(name.startswith("engines/") for name in crossed),
    }
    if args.json:
        print(
            json.dumps(
                {**numbers, "crossed": crossed, "beside": [name for name in running if name not in crossed]}, indent=2
            )
        )
        return 0
    for name, number in numbers.items():
        print(f"{number:>10,}  {name}")
    return 0


if __name__ == "__main__":
    gc.disable()  # syntax trees of the whole package stay until the end
    sys.exit(main())
