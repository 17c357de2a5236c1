"""Compiles what pytest imports and rewrites: the tests, and the package and Hypothesis, which have plugins of pytest.

pytest keeps what it has compiled, but each process of ``-n 4`` begins with the same files at the same time, and where
``PYTHONDONTWRITEBYTECODE`` is set none of them keeps anything. Files that are up to date are left as they are.

    python tools/compile_tests.py [PROCESSES]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parent.parent
_STATE: Any = SimpleNamespace(trace=lambda _: None)


def files() -> Iterator[Path]:
    """Yield the files that pytest rewrites."""
    for package in ("penstock", "hypothesis"):
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            yield from Path(spec.origin).parent.rglob("*.py")
    for pattern in ("test_*.py", "conftest.py"):
        yield from (ROOT / "tests").rglob(pattern)


def compile_file(path: Path) -> None:
    """Write what pytest would write when it imports the file."""
    from _pytest.assertion import rewrite

    folder = rewrite.get_cache_dir(path)
    compiled = folder / (path.name[:-3] + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, compiled) is not None:  # noqa: SLF001 - there is no public way
        return
    try:
        source, code = rewrite._rewrite_test(path, None)  # noqa: SLF001
    except SyntaxError:  # pytest says it better
        return
    if rewrite.try_makedirs(folder):
        rewrite._write_pyc(_STATE, code, source, compiled)  # noqa: SLF001


def main() -> None:
    processes = int(sys.argv[1]) if sys.argv[1:] else None
    try:
        with ProcessPoolExecutor(processes) as pool:
            list(pool.map(compile_file, sorted(files()), chunksize=20))
    except Exception as error:  # noqa: BLE001 - it only saves time
        print(f"pytest compiles the tests itself ({type(error).__name__}: {error})", file=sys.stderr)


if __name__ == "__main__":
    main()
