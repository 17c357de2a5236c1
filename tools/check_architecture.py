"""Checks the rules of the tree, so that nobody has to remember them.

1. Packages import downwards only (LAYERS, which names those that are there and no others); the root has at most 20
   entries, on at most 10 floors.
2. pyspark is imported in penstock/engines alone, and nothing below that package imports it.
3. The core imports none of its products (PRODUCTS), neither in functions, for type checkers nor by ``import_module``;
   only ``penstock/__init__.py`` declares them as extensions.
4. A source file has at most 1,000 lines and says what it exports in ``__all__``.
5. Public classes and functions have docstrings (short ones need none), and so has every module.
6. Test files have names of their own, as pytest imports them by basename.
7. ``import penstock`` loads neither Polars, PyArrow, NumPy nor PySpark.
8. Sub-packages import each other one way (ROOMS), and no files import each other in a circle, outside of the fluent
   classes of ``penstock.api``; imports in functions and for type checkers count.
9. Formats that run code when they are read (pickle and its kin) stay where UNPICKLES says, with the reason; SECURITY.md
   tells users. Only what GENERATES names calls ``eval`` or ``exec``.
10. Loggers of the package come from ``penstock.base.log_lines.own_logger``, which escapes what their lines hold.
11. Only tools for tests (packages of the name ``testing``) import ``penstock.testing``.
12. Only the engines and what defines or describes the setting (ASKS_FOR_THE_MODE) ask for ``processing.mode``.

Run it without arguments; it prints one line a finding and exits with 1 if there are any.
"""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from import_circles import file_circles, imported_files, room_circles, upward_imports

__all__ = ["check_circles", "check_file", "check_picture", "check_places", "check_test_names", "check_tree", "main"]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "penstock"
MAX_LINES = 1_000
MAX_ENTRIES, MAX_FLOORS = 20, 10  # of the root, but for `python -m penstock`
MIN_DOCUMENTED_LINES = 15  # what is shorter may speak for itself
HEAVY = ("polars", "pyarrow", "numpy", "pandas", "pyspark")

# A package may import itself and what stands in an earlier row; in the same row only itself.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base", "errors"),
    ("config", "serving", "serde"),
    ("log",),
    ("topology",),
    ("api", "state", "metrics"),
    ("query", "runtime"),
    ("engines",),
    ("connect", "console", "testing"),
    ("sql", "tools"),
    ("cli", "extensions", "__main__"),
)
RANK = {package: rank for rank, row in enumerate(LAYERS) for package in row}
# Messages of errors escape what they quote, and what checks raises errors; `python -m penstock` is the command.
ALSO: dict[str, frozenset[str]] = {
    "base": frozenset({"errors"}),
    "errors": frozenset({"base"}),
    "__main__": frozenset({"cli"}),
}

# What builds on the core, and plugs into it by extension points. No other package imports these.
PRODUCTS = frozenset({"cli", "connect", "console", "sql", "tools"})

# Of the sub-packages of a package each may import those before it.
ROOMS: dict[str, tuple[str, ...]] = {
    "api": ("processing", "windowed", "groups", "joins"),
    "base": ("java_names", "java_text", "terminal"),
    "cli": ("servers", "connect", "topics", "application", "sql", "testing"),
    "console": ("web",),
    "console/web": ("pages", "api"),
    "connect": (
        "data",
        "config",
        "converters",
        "transforms",
        "plugins",
        "registry_converters",
        "delivery",
        "testing",
        "mirror",
        "connectors",
        "storage",
        "tasks",
        "worker",
        "rest",
    ),
    "engines": (
        "offsets",
        "spark",
        "application",
        "threads",
        "micro_batches",
        "committed_state",
    ),
    "engines/micro_batches": ("worker", "recovery"),
    "engines/spark": ("connector",),
    "engines/threads": ("replicas", "loop", "hosting"),
    "log": ("streams_groups", "embedded", "kafka", "clients", "groups"),
    "log/kafka": ("security", "wire", "clients", "checkup", "transactions"),
    "query": ("http",),
    "runtime": ("fold", "joins", "suppress", "aggregate"),
    "serde": ("data", "formats", "registry", "schemas"),
    "sql": (
        "parse",
        "types",
        "functions",
        "evaluate",
        "formats",
        "analyse",
        "compile",
        "queries",
        "session",
        "server",
        "testing",
    ),
    "state": ("views", "segments", "lmdb_replicas", "restores", "changelog"),
    "testing": ("simulation",),
    "tools": ("broker", "demo"),
    "topology": ("operations", "building", "plan"),
}
FLUENT = "penstock.api"  # streams make tables and tables streams

RUNS_CODE = frozenset({"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"})
UNPICKLES: dict[str, str] = {
    "penstock.engines.spark.job": "the job, which Spark carries from the driver to workers in the code that it runs",
    "penstock.engines.spark.topology_bytes": "writes the topology inside of that job; loads only what it wrote",
}
# Who may read ``processing.mode``: all else goes by `penstock.engines.engine.Engine`.
ASKS_FOR_THE_MODE = ("penstock.config", "penstock.engines", "penstock.topology.plan.explain")

# Programs that are written here: no text of a user becomes part of them, except numbers and strings by their repr.
GENERATES = frozenset({"penstock.sql.evaluate.compiled"})


# What the checks of a file look at.
CHECKED = (ast.Import, ast.ImportFrom, ast.If, ast.Call, ast.Subscript, ast.Attribute)


def package_of(module: str) -> str:
    """``penstock.log.base`` -> ``log``; ``penstock`` -> the empty string."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module that the nodes import, those only for type checkers left out."""
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    skipped = {
        id(child)
        for node in statements
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in statements:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "penstock":
                yield from ((node.lineno, f"penstock.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module


def check_imports(module: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Findings about the import order."""
    package = package_of(module)
    if package and package not in RANK:
        yield 1, f"package {package!r} has no place in the layers: add it to LAYERS"
        return
    for line, name in imports(nodes):
        if name.split(".", 1)[0] == "pyspark" and package != "engines":
            yield line, "pyspark is imported outside penstock.engines"
        if not name.startswith("penstock.") or not package:
            continue
        target = package_of(name)
        if target in (package, "") or target not in RANK:
            continue
        allowed = RANK[target] < RANK[package] or target in ALSO.get(package, ())
        if not allowed:
            yield line, f"penstock.{package} must not import penstock.{target}"
        elif target == "testing" and "testing" not in module.split("."):
            yield line, "penstock.testing is for tests: what both need belongs into penstock.runtime"


def check_products(module: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Findings about the core's imports of its products; all imports count."""
    if package_of(module) in PRODUCTS | {"", "__main__"}:
        return
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "penstock":
            names = [f"penstock.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names = [str(node.args[0].value)] if called == "import_module" else []
        for name in names:
            if name.startswith("penstock.") and package_of(name) in PRODUCTS:
                yield node.lineno, f"{name} is a product: the core reaches it by an extension point alone"


def check_modes(module: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Findings about reads of ``processing.mode`` outside of the engines."""
    if any(module == each or module.startswith(f"{each}.") for each in ASKS_FOR_THE_MODE):
        return
    for node in nodes:
        asked: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            asked = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            asked = node.args[0] if node.args else None
        if isinstance(asked, ast.Constant) and asked.value == "processing.mode":
            yield node.lineno, "asks for the processing mode: let the Engine answer, or add a method to it"


def check_runs_code(module: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Findings about formats and calls that run what they read."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [node.attr.removeprefix("read_")]  # pandas.read_pickle
        for name in names:
            if module not in UNPICKLES and RUNS_CODE & set(name.split(".")):
                yield node.lineno, f"{name} runs code from what it reads: use JSON or Arrow, or say why in UNPICKLES"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            if module in GENERATES:
                continue
            yield node.lineno, f"{node.func.id} runs code from text"


def check_loggers(module: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Findings about loggers whose lines may hold control characters of records."""
    for node in nodes:
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger"
        if is_call and node.args and module != "penstock.base.log_lines" and "__name__" in ast.dump(node.args[0]):
            yield node.lineno, "its lines are not escaped: use own_logger of penstock.base.log_lines"


def check_text(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Findings about length, ``__all__`` and docstrings."""
    length = text.count("\n")
    if length > MAX_LINES:
        yield MAX_LINES, f"{length} lines; a file has one idea and at most {MAX_LINES} lines"
    if not ast.get_docstring(tree):
        yield 1, "the module has no docstring"
    bodies = [node for node in tree.body if not isinstance(node, ast.Expr)]
    exported = _exported(tree)
    if bodies and exported is None:
        yield 1, "__all__ is missing"
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name not in (exported or ()):
            continue
        small = (node.end_lineno or node.lineno) - node.lineno < MIN_DOCUMENTED_LINES
        if not ast.get_docstring(node) and not _is_data(node) and not small:
            yield node.lineno, f"{node.name} has no docstring"


def check_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Findings about names that a module defines twice: the later value would count everywhere, as after a merge."""
    lines: dict[str, int] = {}
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [] if any("overload" in ast.dump(each) for each in node.decorator_list) else [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            names = [part.id for part in parts if isinstance(part.ctx, ast.Store)]
        for name in names:
            if name in lines:
                yield node.lineno, f"{name} is defined in line {lines[name]} already, and this value counts there too"
            lines[name] = node.lineno


def _exported(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            value = node.value
            if isinstance(value, ast.List | ast.Tuple):
                return {e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
            return set()
    return None


def _is_data(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether it is a dataclass without methods: its fields say what it is."""
    return isinstance(node, ast.ClassDef) and all(isinstance(b, ast.AnnAssign | ast.Pass | ast.Expr) for b in node.body)


def check_file(path: Path, module: str) -> list[tuple[int, str]]:
    """All findings in one source file: (line, text)."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = [node for node in ast.walk(tree) if isinstance(node, CHECKED)]  # once: the walk costs more than the checks
    return [
        *check_text(text, tree),
        *check_names(tree),
        *check_imports(module, nodes),
        *check_products(module, nodes),
        *check_modes(module, nodes),
        *check_runs_code(module, nodes),
        *check_loggers(module, nodes),
    ]


def check_tree(root: Path = SOURCES) -> list[str]:
    """All findings under the package's folder, as ``file:line: text``."""
    findings = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        shown = path.relative_to(root.parent.parent)
        findings += [f"{shown}:{line}: {text}" for line, text in check_file(path, module)]
    return findings


def check_circles(root: Path = SOURCES) -> list[str]:
    """Circles of imports, and sub-packages that import upwards."""
    imports = imported_files(root)
    findings = [f"files import each other: {circle}" for circle in file_circles(imports, FLUENT)]
    for package in sorted({name.split(".")[1] for name in imports if name.count(".") > 1} | ROOMS.keys()):
        whole = f"penstock.{package.replace('/', '.')}"
        order = ROOMS.get(package, ())
        folders = {path.parent.name for path in (root / package).glob("*/__init__.py")}
        homeless = sorted(folders - set(order))
        upward = upward_imports(imports, whole, order)
        findings += [f"{whole}.{folder} has no place among its neighbours: add it to ROOMS" for folder in homeless]
        findings += [f"{module} must not import {found}: its package comes before" for module, found in upward]
        if whole != FLUENT:
            findings += [f"parts of {whole} import each other: {circle}" for circle in room_circles(imports, whole)]
    return findings


def check_places(root: Path = SOURCES) -> list[str]:
    """Names in LAYERS and ROOMS of packages that do not exist, and a root that has grown."""
    named = [*RANK, *(f"{package}/{room}" for package, rooms in ROOMS.items() for room in rooms)]
    found = [name for name in named if (root / name).is_dir() or (root / f"{name}.py").is_file()]
    findings = [f"LAYERS or ROOMS name {name}, which does not exist" for name in named if name not in found]
    if len(RANK.keys() - {"__main__"}) > MAX_ENTRIES or len(LAYERS) > MAX_FLOORS:
        findings.append(
            f"the root has {len(RANK) - 1} entries on {len(LAYERS)} floors, and may have {MAX_ENTRIES} on {MAX_FLOORS}"
        )
    return findings


def check_picture() -> list[str]:
    """Whether the picture of the packages shows the imports as they are."""
    script = ROOT / "tools" / "package_map.py"
    drawn = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    return (drawn.stdout + drawn.stderr[-500:]).splitlines()


def check_test_names(root: Path = ROOT / "tests") -> list[str]:
    """Test files that share a basename."""
    seen: dict[str, Path] = {}
    findings = []
    for path in sorted(root.rglob("test_*.py")):
        first = seen.setdefault(path.name, path)
        if first != path:
            findings.append(f"{path.relative_to(root.parent)}:1: {first.relative_to(root.parent)} has the same name")
    return findings


def check_light_import() -> list[str]:
    """Whether ``import penstock`` stays free of the heavy libraries."""
    code = f"import sys, penstock; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if loaded.returncode:
        return [f"import penstock fails: {loaded.stderr.strip().splitlines()[-1]}"]
    return [f"import penstock loads {name}" for name in loaded.stdout.split()]


def main() -> int:
    """Prints the findings; the exit code says whether there were any."""
    findings = [
        *check_tree(),
        *check_circles(),
        *check_places(),
        *check_test_names(),
        *check_light_import(),
        *check_picture(),
    ]
    for finding in findings:
        print(finding)
    print(f"architecture: {len(findings) or 'no'} finding{'s' if len(findings) != 1 else ''}")
    return 1 if findings else 0


if __name__ == "__main__":
    gc.disable()  # syntax trees of the whole package stay until the end
    sys.exit(main())
