"""The Python command of Spark's workers: this Python, with the installed PySpark.

Spark puts PySpark's zip files first in the path of each of its Python processes. Modules imported from there are
compiled anew each time: half a second of CPU time in each of six processes of a start. The installed package is the
same, and compiled already.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from penstock.base.jars import cache_directory
from penstock.engines.spark import forked_processes
from penstock.errors import PenstockError
from penstock.state.private_folders import new_file, own_folder

__all__ = ["worker_python", "workers_have_this_python", "workers_with_this_python"]

_PYTHON, _HOME = "PYSPARK_PYTHON", "SPARK_HOME"
_OTHERS = "PYSPARK_DRIVER_PYTHON"
_NAME = "worker-python"
_SCRIPT = """#!/bin/sh
# Penstock: PySpark as it is installed, instead of its zip files, which Spark names once or twice
theirs={theirs}
for _ in 1 2; do
  PYTHONPATH=${{PYTHONPATH#"$theirs"}}
  PYTHONPATH=${{PYTHONPATH#:}}
done
export PYTHONPATH
case "$*" in {forked}) [ -z "${{{variable}}}" ] || exec {python} -I -S {program} "$@" ;; esac
unset {variable}
exec {python} "$@"
"""


def worker_python(home: Path) -> str:
    """Return a command that runs this Python without PySpark's zip files; this Python itself where that is impossible.

    Args:
        home: Spark's home, which contains the zip files.
    """
    archives = [*sorted((home / "python/lib").glob("pyspark.zip")), *sorted((home / "python/lib").glob("py4j-*.zip"))]
    cores = sorted((home / "jars").glob("spark-core_*.jar"))  # Spark puts it behind them
    if os.name != "posix" or len(archives) != 2 or len(cores) != 1:
        return sys.executable
    theirs = ":".join(str(each) for each in (*archives, *cores))
    text = _SCRIPT.format(
        theirs=shlex.quote(theirs),
        python=shlex.quote(sys.executable),
        program=shlex.quote(forked_processes.__file__),
        forked="|".join(each.replace(" ", "\\ ") for each in forked_processes.MODULES),
        variable=forked_processes.ENVIRONMENT,
    ).encode()
    try:
        folder = own_folder(cache_directory())
        path = folder / f"{_NAME}-{_mark(text)}"
        if not path.is_file() or path.read_bytes() != text:
            with new_file(folder, path.name) as (temporary, file):
                file.write(text)
                file.flush()
                temporary.chmod(0o700)
                temporary.replace(path)
    except (OSError, PenstockError):
        return sys.executable
    return str(path) if os.access(path, os.X_OK) else sys.executable  # a file system may forbid executables


def _mark(text: bytes) -> str:
    import hashlib

    return hashlib.sha256(text).hexdigest()[:16]


@contextmanager
def workers_with_this_python() -> Iterator[None]:
    """Let a Spark that is started inside run its workers with this Python, unless the user names another."""
    changed: dict[str, str] = {}
    home = Path(pyspark.__file__).parent
    if os.environ.get(_PYTHON, sys.executable) == sys.executable and _OTHERS not in os.environ:
        is_installed = _find_spark_home() == str(home)
        changed = {_PYTHON: worker_python(home), _HOME: str(home)} if is_installed else {_PYTHON: sys.executable}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        _restore(before)


def workers_have_this_python() -> bool:
    """Return whether a Spark that starts now has workers of this Python, with the PySpark of this process."""
    home = Path(pyspark.__file__).parent
    is_it = os.environ.get(_HOME) == str(home) and os.environ.get(_PYTHON) == worker_python(home)
    return is_it and os.name == "posix"


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
